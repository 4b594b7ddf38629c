package watchers

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mchandler "sigs.k8s.io/multicluster-runtime/pkg/handler"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
	mcsource "sigs.k8s.io/multicluster-runtime/pkg/source"

	"github.com/capstan-hub/capstan/clusters"
)

type (
	queue        = workqueue.TypedRateLimitingInterface[mcreconcile.Request]
	eventHandler = handler.TypedEventHandler[client.Object, mcreconcile.Request]
)

// Source feeds a multicluster controller with every object of a kind, in each
// cluster that it is engaged with.
//
// Contract: Start never blocks, whatever state the cluster is in; a cluster that
// lacks the kind delivers when it is installed. (multicluster-runtime's own kind
// source waits for the cluster's cache under the controller's lock, so that one
// cluster stops all.) The demand ends with the engagement's context, and while
// Options.SourcesIn says no. What stands in an initial list is told as it comes, and not
// again when the list is whole: who asks a Reader for it and is told that the kind is
// not synced, but demanded, asks again.
func (w *Watcher) Source(kind schema.GroupKind, handle mchandler.TypedEventHandlerFunc[client.Object, mcreconcile.Request]) mcsource.TypedSource[client.Object, mcreconcile.Request] {
	return &kindSource{watcher: w, kind: kind, handle: handle}
}

type kindSource struct {
	watcher *Watcher
	kind    schema.GroupKind
	handle  mchandler.TypedEventHandlerFunc[client.Object, mcreconcile.Request]
}

// ForCluster implements mcsource.TypedSource.
func (s *kindSource) ForCluster(name multicluster.ClusterName, cl cluster.Cluster) (source.TypedSource[mcreconcile.Request], bool, error) {
	h := s.handle(name, cl)
	return source.TypedFunc[mcreconcile.Request](func(ctx context.Context, q queue) error {
		s.watcher.subscribe(ctx, name, s.kind, h, q)
		return nil
	}), true, nil
}

// subscription is one source in one cluster.
type subscription struct {
	ctx     context.Context //nolint:containedctx // It is the engagement's life, which handlers are to be given.
	cluster multicluster.ClusterName
	kind    schema.GroupKind
	handler eventHandler
	queue   queue
	// owner of its demand.
	owner string

	// aligning is held while it begins and ends to be told.
	aligning sync.Mutex
	// told: it demands its kind.
	told bool
}

// subscriptions numbers the owners of sources' demands.
var subscriptions atomic.Int64

// subscribe demands the kind where Sources are wanted, for as long as that is so and
// the context lasts.
func (w *Watcher) subscribe(ctx context.Context, name multicluster.ClusterName, gk schema.GroupKind, h eventHandler, q queue) {
	s := &subscription{ctx: ctx, cluster: name, kind: gk, handler: h, queue: q, owner: fmt.Sprintf("source/%d", subscriptions.Add(1))}
	w.mu.Lock()
	w.lockedState.sources[s] = struct{}{}
	w.mu.Unlock()
	w.align(s)
	context.AfterFunc(ctx, func() {
		w.mu.Lock()
		delete(w.lockedState.sources, s)
		w.mu.Unlock()
		w.align(s)
	})
}

// align has a subscription told of its kind, or not any more.
func (w *Watcher) align(s *subscription) {
	s.aligning.Lock()
	defer s.aligning.Unlock()
	wanted := s.ctx.Err() == nil && (w.o.SourcesIn == nil || w.o.SourcesIn(s.cluster))
	switch {
	case wanted && !s.told:
		s.told = true
		w.attach(s)
	case !wanted && s.told:
		s.told = false
		w.detach(s)
	}
}

// attach demands the kind and replays what is stored. A change during the replay may
// be told twice, and never not at all.
func (w *Watcher) attach(s *subscription) {
	want := Demand{Cluster: s.cluster, Kind: s.kind}
	if s.cluster == clusters.LocalName && !w.o.Kinds(s.kind).ClusterScoped {
		want.Namespace = w.o.SourceNamespace
	}
	w.SetDemand(s.owner, []Demand{want})
	w.mu.Lock()
	k := w.lockedState.clusters[s.cluster].lockedKinds[s.kind] // It is there while it is demanded.
	k.lockedSources[s] = struct{}{}
	var informers []*informer
	if k.lockedRun != nil {
		for _, i := range k.lockedRun.lockedInformers {
			informers = append(informers, i)
		}
	}
	w.mu.Unlock()
	for _, i := range informers {
		i.each(func(o client.Object) bool {
			s.tell(nil, o, true)
			return true
		})
	}
}

func (w *Watcher) detach(s *subscription) {
	w.mu.Lock()
	delete(w.lockedState.clusters[s.cluster].lockedKinds[s.kind].lockedSources, s)
	w.mu.Unlock()
	w.SetDemand(s.owner, nil)
}

// ReferenceChanged implements clusters.Listener: Sources may be wanted in a cluster now,
// or not any more.
func (w *Watcher) ReferenceChanged(ref clusters.Ref) {
	name := ref.ClusterName()
	var some []*subscription
	w.mu.Lock()
	for s := range w.lockedState.sources {
		if s.cluster == name {
			some = append(some, s)
		}
	}
	w.mu.Unlock()
	for _, s := range some {
		w.align(s)
	}
}

// tellSources brings an event to the kind's subscriptions.
func (k *keeper) tellSources(before, after client.Object, initial bool) {
	k.w.mu.Lock()
	if len(k.lockedSources) == 0 {
		k.w.mu.Unlock()
		return
	}
	all := make([]*subscription, 0, len(k.lockedSources))
	for s := range k.lockedSources {
		all = append(all, s)
	}
	k.w.mu.Unlock()
	for _, s := range all {
		s.tell(before, after, initial)
	}
}

// tell the handler, which only enqueues. An object stored as its key does not exist
// for it.
func (s *subscription) tell(before, after client.Object, initial bool) {
	if keyOf(before) != nil {
		before = nil
	}
	if keyOf(after) != nil {
		after = nil
	}
	switch {
	case s.ctx.Err() != nil, before == nil && after == nil:
	case after == nil:
		s.handler.Delete(s.ctx, event.TypedDeleteEvent[client.Object]{Object: before}, s.queue)
	case before == nil:
		s.handler.Create(s.ctx, event.TypedCreateEvent[client.Object]{Object: after, IsInInitialList: initial}, s.queue)
	default:
		s.handler.Update(s.ctx, event.TypedUpdateEvent[client.Object]{ObjectOld: before, ObjectNew: after}, s.queue)
	}
}
