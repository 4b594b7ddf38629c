package watchers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mchandler "sigs.k8s.io/multicluster-runtime/pkg/handler"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
	mcsource "sigs.k8s.io/multicluster-runtime/pkg/source"

	"github.com/capstan-hub/capstan/clusters"
)

// Source feeds a multicluster controller with every object of a kind, in each
// cluster with which it is engaged.
//
// Contract: Start never blocks, in any state of the cluster. A cluster that lacks the kind
// delivers when the kind is installed. (multicluster-runtime's own kind source waits for
// the cluster's cache under the controller's lock, so one cluster blocks all.) There is a
// demand until the engagement's context ends, while Options.SourcesIn is true.
//
// The objects of an initial list are delivered as they arrive, and not again when the list
// is complete. A Reader may still return a NotSyncedError that is Demanded for them: the
// caller then tries again.
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
		s.watcher.subscribe(&subscription{
			ctx: ctx, cluster: name, kind: s.kind, handler: h, queue: q, owner: fmt.Sprintf("source/%d", subscriptions.Add(1)),
		})
		return nil
	}), true, nil
}

// Left returns a source that emits nothing. It calls do, with the queue of the controller, when
// Sources do not deliver objects of a cluster any more: its engagement has ended, or
// Options.SourcesIn is false. Delivers is false before do is called, unless the cluster is
// engaged again.
func (w *Watcher) Left(do func(name multicluster.ClusterName, q workqueue.TypedRateLimitingInterface[mcreconcile.Request])) MemberSource {
	return &leftSource{w, do}
}

type leftSource struct {
	watcher *Watcher
	do      func(multicluster.ClusterName, queue)
}

// ForCluster implements mcsource.TypedSource.
func (s *leftSource) ForCluster(name multicluster.ClusterName, _ cluster.Cluster) (source.TypedSource[mcreconcile.Request], bool, error) {
	return source.TypedFunc[mcreconcile.Request](func(ctx context.Context, q queue) error {
		s.watcher.subscribe(&subscription{ctx: ctx, cluster: name, left: func() { s.do(name, q) }})
		return nil
	}), true, nil
}

// Delivers reports whether Sources may deliver objects of a cluster: Options.SourcesIn. Readers
// still find the objects that a source delivered before, until the linger of its demand has
// passed.
func (w *Watcher) Delivers(name multicluster.ClusterName) bool {
	in := w.shared.options.SourcesIn
	return in == nil || in(name)
}

// subscriptions numbers the owners of sources' demands.
var subscriptions atomic.Int64

// subscribe attaches a subscription where Options.SourcesIn is true, for as long as that is so
// and its context lasts.
func (w *Watcher) subscribe(s *subscription) {
	w.shared.mu.Lock()
	w.lockedState.subscriptions[s] = struct{}{}
	w.shared.mu.Unlock()
	w.align(s)
	context.AfterFunc(s.ctx, func() {
		w.shared.mu.Lock()
		delete(w.lockedState.subscriptions, s)
		w.shared.mu.Unlock()
		w.align(s)
	})
}

// align attaches a subscription to its kind, or detaches it, as Options.SourcesIn and the
// subscription's context require.
func (w *Watcher) align(s *subscription) {
	s.align(func() bool { return s.ctx.Err() == nil && w.Delivers(s.cluster) }, w.attach, w.detach)
}

// attach demands the kind and replays what is stored. A change during the replay may
// be delivered twice, and is delivered at least once.
func (w *Watcher) attach(s *subscription) {
	if s.left != nil {
		return
	}
	demands := []Demand{{Cluster: s.cluster, Kind: s.kind}}
	if s.cluster == clusters.LocalName && !w.shared.options.Kinds(s.kind).ClusterScoped {
		demands = InNamespaces(demands[0], w.shared.options.Namespaces)
	}
	w.SetDemand(s.owner, demands)
	for _, i := range w.subscribed(s) {
		i.each(func(o client.Object) bool {
			s.notify(nil, o, true)
			return true
		})
	}
}

// subscribed adds the subscription to its kind, which exists while it is demanded, and
// returns the informers.
func (w *Watcher) subscribed(s *subscription) []*informer {
	w.shared.mu.Lock()
	defer w.shared.mu.Unlock()
	k := w.lockedState.clusters[s.cluster].lockedState.keepers[s.kind]
	k.subject.lockedState.subscriptions[s] = struct{}{}
	if k.lockedState.run == nil {
		return nil
	}
	return slices.Collect(maps.Values(k.lockedState.run.lockedState.informers))
}

func (w *Watcher) detach(s *subscription) {
	if s.left != nil {
		s.left()
		return
	}
	w.unsubscribe(s)
	w.SetDemand(s.owner, nil)
}

func (w *Watcher) unsubscribe(s *subscription) {
	w.shared.mu.Lock()
	defer w.shared.mu.Unlock()
	delete(w.lockedState.clusters[s.cluster].lockedState.keepers[s.kind].subject.lockedState.subscriptions, s)
}

// ReferenceChanged implements clusters.Listener: Options.SourcesIn may have changed for
// the cluster.
func (w *Watcher) ReferenceChanged(ref clusters.Ref) {
	name := ref.ClusterName()
	var some []*subscription
	w.shared.mu.Lock()
	for s := range w.lockedState.subscriptions {
		if s.cluster == name {
			some = append(some, s)
		}
	}
	w.shared.mu.Unlock()
	for _, s := range some {
		w.align(s)
	}
}
