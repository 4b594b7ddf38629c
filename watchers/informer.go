package watchers

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/clusters/transport"
)

// clientVerbosity is at which level client-go's own lines show.
const clientVerbosity = 2

// informer is client-go's shared informer on one scope.
type informer struct {
	namespace string
	shared    cache.SharedIndexInformer
	synced    <-chan struct{}
	stop      context.CancelFunc
	// began is when it was asked for.
	began time.Time
	// stream follows its watches.
	stream *transport.Stream
	// objects it holds.
	objects atomic.Int64

	// Guarded by the Watcher's mutex:

	// lockedReady: the initial list is whole, and every demanded object observed.
	lockedReady bool
	// lockedProblem is that of the last list or watch call, and lockedFailing since
	// when they fail.
	lockedProblem problem
	lockedFailing time.Time

	// Guarded by mu:

	mu sync.Mutex
	// initial are whom the initial list concerns, until they are taken.
	initial map[types.NamespacedName]struct{}
	// taken: the initial list is over.
	taken bool
}

// start starts the informer of a scope when one of the slots is free, which it
// holds until its initial list is whole, at most Timings.ListSlot: a list that takes
// longer goes on without.
func (r *run) start(namespace string) {
	ctx, stop := context.WithCancel(r.ctx)
	i := &informer{namespace: namespace, stop: stop, began: r.w.o.Clock.Now(), initial: map[types.NamespacedName]struct{}{}}
	i.stream = transport.NewStream(r.w.o.Clock, func() { r.fail(transport.ErrTooLarge) })
	i.shared = cache.NewSharedIndexInformerWithOptions(r.listerWatcher(i), &unstructured.Unstructured{}, cache.SharedIndexInformerOptions{
		ObjectDescription: r.resource.String(),
	})
	// These fail only on an informer that was started.
	_ = i.shared.SetTransform(r.transform)
	_ = i.shared.SetWatchErrorHandlerWithContext(r.watchEnded)
	registration, _ := i.shared.AddEventHandler(r.handler(i))
	i.synced = registration.HasSyncedChecker().Done()

	r.w.mu.Lock()
	r.lockedInformers[namespace] = i
	r.w.lockedLook(r.c)
	r.w.mu.Unlock()
	r.spawn(func() {
		select {
		case r.w.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		r.spawn(func() { r.awaitSync(ctx, i) })
		r.w.m.relists.WithLabelValues(r.kind.GroupKind.String()) // The series is there, at 0, from the start.
		running := r.w.m.informers.WithLabelValues(r.kind.GroupKind.String())
		running.Inc()
		defer running.Dec()
		// client-go speaks of every watch that ends.
		i.shared.RunWithContext(klog.NewContext(ctx, r.w.o.Logger.V(clientVerbosity)))
	})
}

// awaitSync gives the slot back, and has the run look when the list is whole.
func (r *run) awaitSync(ctx context.Context, i *informer) {
	timer := r.w.o.Clock.NewTimer(r.w.o.Timings.ListSlot)
	select {
	case <-i.synced:
	case <-ctx.Done():
	case <-timer.C():
	}
	timer.Stop()
	<-r.w.slots
	select {
	case <-i.synced:
		i.stream.Lift()
		r.poke()
	case <-ctx.Done():
	}
}

func (i *informer) isSynced() bool {
	select {
	case <-i.synced:
		return true
	default:
		return false
	}
}

// listerWatcher makes the calls, and notes how they went.
func (r *run) listerWatcher(i *informer) cache.ListerWatcher {
	listing := func() {
		r.w.m.lists.WithLabelValues(r.kind.GroupKind.String()).Inc()
		if i.isSynced() {
			r.w.m.relists.WithLabelValues(r.kind.GroupKind.String()).Inc()
		}
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			listing()
			list, err := r.list(ctx, i.namespace, o)
			if errors.Is(err, transport.ErrTooLarge) || errors.Is(err, errTooMany) {
				r.fail(err)
			}
			r.failed(i, err)
			if err != nil {
				return nil, err
			}
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if o.SendInitialEvents != nil && *o.SendInitialEvents {
				listing()
				i.stream.Bound()
			}
			o.Watch = true
			body, err := r.request(i.namespace).VersionedParams(&o, metav1.ParameterCodec).
				Stream(transport.Following(ctx, i.stream))
			err = unquoted(err)
			r.failed(i, err)
			if err != nil {
				return nil, err
			}
			return newWatch(body), nil
		},
	}
}

// watchEnded is told by the reflector, which tries again; failed knows already what
// matters of it.
func (r *run) watchEnded(_ context.Context, _ *cache.Reflector, err error) {
	r.w.o.Logger.V(1).Info("watch ended", "cluster", r.c.name, "kind", r.kind.GroupKind.String(), "error", err.Error())
}

// transform is what client-go stores in place of an object. It may be given its own
// answer again.
func (r *run) transform(in any) (any, error) {
	u, ok := in.(*unstructured.Unstructured)
	if !ok {
		return in, nil
	}
	return r.reduce(u), nil
}

// handler is the only one of an informer.
func (r *run) handler(i *informer) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		// The first that is told after a list was begun says that it is whole.
		AddFunc: func(in any, initial bool) {
			i.stream.Lift()
			if o, ok := in.(client.Object); ok {
				if i.objects.Add(1) > int64(r.w.o.MaxObjects) {
					r.fail(errTooMany)
				}
				r.saw(i, o, initial)
				r.tellSources(nil, o, initial)
			}
		},
		UpdateFunc: func(before, in any) {
			i.stream.Lift()
			if o, ok := in.(client.Object); ok {
				old, _ := before.(client.Object)
				r.saw(i, o, false)
				r.tellSources(old, o, false)
			}
		},
		DeleteFunc: func(in any) {
			i.stream.Lift()
			if gone, ok := in.(cache.DeletedFinalStateUnknown); ok {
				in = gone.Obj
			}
			if o, ok := in.(client.Object); ok {
				i.objects.Add(-1)
				if r.kind.Observe != nil {
					r.wake(r.observeGone(o), false)
				}
				r.tellSources(o, nil, false)
			}
		},
	}
}

// saw an object: observe it, and wake whom it concerns; what is part of the initial
// list, when that is whole.
func (r *run) saw(i *informer, o client.Object, initial bool) {
	if k := keyOf(o); k != nil && !k.unreadable {
		// Reduced before it was demanded, and stored after: settle reads it.
		if r.wants(o.GetNamespace(), o.GetName()) {
			r.ledger.unread(wanted{o.GetNamespace(), o.GetName()})
			r.poke()
		}
		return
	}
	if r.kind.Observe == nil {
		return
	}
	if r.ledger.goesBack(o) {
		r.fail(errRestored)
		return
	}
	woken := r.observe(o)
	if initial && i.hold(woken) {
		return
	}
	r.wake(woken, initial)
}

// hold keeps wakes until the initial list is whole; false when it is.
func (i *informer) hold(woken []types.NamespacedName) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.taken {
		return false
	}
	for _, p := range woken {
		i.initial[p] = struct{}{}
	}
	return true
}

// takeInitial returns the held wakes, once.
func (i *informer) takeInitial() []types.NamespacedName {
	i.mu.Lock()
	defer i.mu.Unlock()
	held := make([]types.NamespacedName, 0, len(i.initial))
	for p := range i.initial {
		held = append(held, p)
	}
	i.initial, i.taken = nil, true
	return held
}
