package watchers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mccontroller "sigs.k8s.io/multicluster-runtime/pkg/controller"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
	mcsource "sigs.k8s.io/multicluster-runtime/pkg/source"
)

// MemberSource is a source of a multicluster controller.
type MemberSource = mcsource.TypedSource[client.Object, mcreconcile.Request]

// WatchMembers makes a controller receive the events of sources in each cluster that the manager
// engages. The sources' Start must not block.
//
// It replaces the controller's own MultiClusterWatch, which leaves a goroutine behind for each
// source of each engagement until the process ends. A cluster whose server or CA changes often
// would accumulate them.
func WatchMembers(mgr interface {
	Add(r mcmanager.Runnable) error
}, controller mccontroller.Controller, sources ...MemberSource) error {
	m := &members{sources: sources, lockedState: membersState{engaged: map[multicluster.ClusterName]*member{}}}
	if err := controller.Watch(source.TypedFunc[mcreconcile.Request](m.begin)); err != nil {
		return fmt.Errorf("watching the clusters that are engaged: %w", err)
	}
	return mgr.Add(m)
}

// members are the clusters that are engaged with one controller.
type members struct {
	sources []MemberSource

	mu          sync.Mutex
	lockedState membersState
}

type membersState struct {
	// queue is that of the controller, and ctx the context of its Start; nil before it.
	queue queue
	ctx   context.Context //nolint:containedctx // It ends with the controller.
	// engaged: name -> the present engagement.
	engaged map[multicluster.ClusterName]*member
}

// member is one engagement of a cluster.
type member struct {
	name    multicluster.ClusterName
	cluster cluster.Cluster
	// epoch is the context that the manager engaged it with.
	epoch context.Context //nolint:containedctx // It distinguishes engagements.
	ctx   context.Context //nolint:containedctx // It ends with the engagement.
	end   context.CancelFunc
}

var _ mcmanager.Runnable = &members{}

// Start implements manager.Runnable. Nothing runs: the sources begin with the controller.
func (*members) Start(context.Context) error { return nil }

// Engage implements multicluster.Aware. An engagement replaces an earlier one of the cluster. The
// manager repeats it, if another controller returned an error.
func (m *members) Engage(ctx context.Context, name multicluster.ClusterName, cl cluster.Cluster) error {
	engaged := &member{name: name, cluster: cl, epoch: ctx}
	engaged.ctx, engaged.end = context.WithCancel(ctx)
	before, queue, controller := m.add(engaged)
	if before == engaged {
		return nil // The present engagement stays.
	}
	if before != nil {
		before.end()
	}
	context.AfterFunc(engaged.ctx, func() { m.remove(engaged) })
	if queue == nil {
		return nil // begin starts its sources.
	}
	return m.start(controller, queue, engaged)
}

// add stores an engagement. It returns the one before, and the state of the controller. If the
// manager repeats the present engagement, it ends the repetition and returns that.
func (m *members) add(engaged *member) (before *member, q queue, controller context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before = m.lockedState.engaged[engaged.name]
	if before != nil && before.epoch == engaged.epoch && before.ctx.Err() == nil {
		engaged.end()
		return engaged, nil, nil
	}
	m.lockedState.engaged[engaged.name] = engaged
	return before, m.lockedState.queue, m.lockedState.ctx
}

// remove removes an engagement that has ended.
func (m *members) remove(engaged *member) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lockedState.engaged[engaged.name] == engaged {
		delete(m.lockedState.engaged, engaged.name)
	}
}

// begin is called when the controller starts.
func (m *members) begin(ctx context.Context, q queue) error {
	for _, engaged := range m.use(ctx, q) {
		if err := m.start(ctx, q, engaged); err != nil {
			return err
		}
	}
	return nil
}

// use stores the queue of the controller. It returns the clusters that were engaged before.
func (m *members) use(ctx context.Context, q queue) []*member {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lockedState.ctx, m.lockedState.queue = ctx, q
	return slices.Collect(maps.Values(m.lockedState.engaged))
}

// start starts the sources of one engagement. They end with it, or with the controller.
func (m *members) start(controller context.Context, q queue, engaged *member) error {
	unbind := context.AfterFunc(controller, engaged.end)
	context.AfterFunc(engaged.ctx, func() { unbind() })
	for _, s := range m.sources {
		of, wanted, err := s.ForCluster(engaged.name, engaged.cluster)
		if err == nil && wanted {
			err = of.Start(engaged.ctx, q)
		}
		if err != nil {
			engaged.end()
			return fmt.Errorf("engaging %s: %w", engaged.name, err)
		}
	}
	return nil
}
