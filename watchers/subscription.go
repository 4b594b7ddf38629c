package watchers

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

type (
	queue        = workqueue.TypedRateLimitingInterface[mcreconcile.Request]
	eventHandler = handler.TypedEventHandler[client.Object, mcreconcile.Request]
)

// subscription is one source in one cluster: of a kind, or one that left is set of.
type subscription struct {
	ctx     context.Context //nolint:containedctx // It ends with the engagement; handlers receive it.
	cluster multicluster.ClusterName
	kind    schema.GroupKind
	handler eventHandler
	queue   queue
	// owner of its demand.
	owner string
	// left is called when the subscription is detached. It has no kind then.
	left func()

	// mu guards attached. It is held while the subscription is attached or detached, so that
	// the two cannot overlap; shared.mu is taken under it.
	mu sync.Mutex
	// attached: it demands its kind, and receives events.
	attached bool
}

// align attaches or detaches the subscription, if that is a change.
func (s *subscription) align(wanted func() bool, attach, detach func(*subscription)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	want := wanted()
	switch {
	case want && !s.attached:
		s.attached = true
		attach(s)
	case !want && s.attached:
		s.attached = false
		detach(s)
	}
}

// notify calls the handler, which only enqueues. For the handler, an object that is stored
// as its key does not exist.
func (s *subscription) notify(before, after client.Object, initial bool) {
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
