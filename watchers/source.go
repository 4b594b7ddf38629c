package watchers

import (
	"context"
	"fmt"
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
// cluster stops all.) The demand ends with the engagement's context.
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
	handler eventHandler
	queue   queue
}

var subscriptions atomic.Int64

// subscribe demands the kind and replays what is stored.
func (w *Watcher) subscribe(ctx context.Context, name multicluster.ClusterName, gk schema.GroupKind, h eventHandler, q queue) {
	owner := fmt.Sprintf("source/%d", subscriptions.Add(1))
	w.SetDemand(owner, []Demand{{Cluster: name, Kind: gk}})
	s := &subscription{ctx: ctx, handler: h, queue: q}
	w.mu.Lock()
	k := w.lockedState.clusters[name].kinds[gk]
	k.lockedSources[s] = struct{}{}
	informers := make([]*informer, 0, len(k.lockedInformers))
	for _, i := range k.lockedInformers {
		informers = append(informers, i)
	}
	w.mu.Unlock()
	context.AfterFunc(ctx, func() {
		w.mu.Lock()
		delete(k.lockedSources, s)
		w.mu.Unlock()
		w.SetDemand(owner, nil)
	})
	for _, i := range informers {
		for _, item := range i.shared.GetStore().List() {
			if o, ok := item.(storedObject); ok && !isKey(o) {
				s.tell(nil, o, true)
			}
		}
	}
}

// tellSources brings an event to the kind's subscriptions.
func (k *keeper) tellSources(before, after storedObject, initial bool) {
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

// tell the handler, which only enqueues.
func (s *subscription) tell(before, after storedObject, initial bool) {
	if s.ctx.Err() != nil {
		return
	}
	switch {
	case after == nil:
		if !isKey(before) {
			s.handler.Delete(s.ctx, event.TypedDeleteEvent[client.Object]{Object: before}, s.queue)
		}
	case isKey(after):
	case before == nil || isKey(before):
		s.handler.Create(s.ctx, event.TypedCreateEvent[client.Object]{Object: after, IsInInitialList: initial}, s.queue)
	default:
		s.handler.Update(s.ctx, event.TypedUpdateEvent[client.Object]{ObjectOld: before, ObjectNew: after}, s.queue)
	}
}
