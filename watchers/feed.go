package watchers

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/clusters/transport"
)

// How a run feeds an informer: the calls that it makes, and how its events are processed.

// clientVerbosity is the log level of client-go's own lines.
const clientVerbosity = 2

// start starts the informer of a namespace, or of all, when a slot is free. The informer
// holds the slot until its initial list is complete, for at most Timings.ListSlot. A list
// that takes longer continues without a slot.
func (r *run) start(namespace string) {
	shared, kind := r.subject.shared, r.subject.kind.GroupKind.String()
	ctx, stop := context.WithCancel(r.ctx)
	i := &informer{namespace: namespace, stop: stop}
	i.stream = transport.NewStream(shared.options.Clock)
	i.store = cache.NewStore(cache.MetaNamespaceKeyFunc)
	logger := shared.options.Logger.V(clientVerbosity) // client-go logs every watch that ends.
	queue := cache.NewRealFIFOWithOptions(cache.RealFIFOOptions{Logger: &logger, KeyFunction: cache.MetaNamespaceKeyFunc, KnownObjects: i.store})
	i.synced = queue.HasSyncedChecker().Done()
	// Objects arrive in their stored form, which is of more than one type.
	controller := cache.New(&cache.Config{
		Queue: queue, ListerWatcher: r.listerWatcher(i), ObjectDescription: r.calls.resource.String(),
		Process: func(in any, initial bool) error { return r.process(i, in, initial) }, WatchErrorHandlerWithContext: r.watchEnded,
	})

	r.addInformer(i)
	r.spawn(func() {
		select {
		case shared.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		r.noteBegun(i)
		r.spawn(func() { r.awaitSync(ctx, i) })
		shared.meters.relists.WithLabelValues(kind) // The series exists, at 0, from the start.
		running := shared.meters.informers.WithLabelValues(kind)
		running.Inc()
		defer running.Dec()
		controller.RunWithContext(klog.NewContext(ctx, logger))
	})
}

func (r *run) addInformer(i *informer) {
	shared := r.subject.shared
	shared.mu.Lock()
	defer shared.mu.Unlock()
	r.lockedState.informers[i.namespace] = i
	shared.changedLocked(r.subject.cluster.name)
}

// noteBegun notes that an informer's initial list begins.
func (r *run) noteBegun(i *informer) {
	shared := r.subject.shared
	shared.mu.Lock()
	defer shared.mu.Unlock()
	i.lockedState.began = shared.options.Clock.Now()
	shared.changedLocked(r.subject.cluster.name)
}

// awaitSync returns the slot, and makes the work goroutine work when the list is
// complete.
func (r *run) awaitSync(ctx context.Context, i *informer) {
	shared := r.subject.shared
	timer := shared.options.Clock.NewTimer(shared.options.Timings.ListSlot)
	select {
	case <-i.synced:
	case <-ctx.Done():
	case <-timer.C():
	}
	timer.Stop()
	<-shared.slots
	select {
	case <-i.synced:
		r.subject.poke()
	case <-ctx.Done():
	}
}

// listerWatcher makes the calls, and notes how they ended.
func (r *run) listerWatcher(i *informer) cache.ListerWatcher {
	meters, kind := r.subject.shared.meters, r.subject.kind.GroupKind.String()
	listing := func() {
		meters.lists.WithLabelValues(kind).Inc()
		if i.isSynced() {
			meters.relists.WithLabelValues(kind).Inc()
		}
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			listing()
			if o.ResourceVersion == "0" { // Any version: then the list could be older than the run (ledger.since).
				o.ResourceVersion = ""
			}
			list, err := r.calls.list(ctx, i.namespace, o)
			if exceeds(err) {
				r.fail(err)
			}
			r.noteCall(i, err)
			if err != nil {
				return nil, err
			}
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			initial := o.SendInitialEvents != nil && *o.SendInitialEvents
			if initial {
				listing()
			}
			o.Watch = true
			body, err := r.calls.request(i.namespace).VersionedParams(&o, metav1.ParameterCodec).
				Stream(transport.WithStream(ctx, i.stream))
			err = unquoted(err)
			if initial && apierrors.IsInvalid(err) {
				return nil, err // The server does not stream lists: client-go makes a list.
			}
			r.noteCall(i, err)
			if err != nil {
				return nil, err
			}
			return r.calls.newWatch(body, initial, r.fail), nil
		},
	}
}

// watchEnded is called by the reflector, which tries again. noteCall has already noted the
// error.
func (r *run) watchEnded(_ context.Context, _ *cache.Reflector, err error) {
	r.subject.shared.options.Logger.V(1).Info("watch ended",
		"cluster", r.subject.cluster.name, "kind", r.subject.kind.GroupKind.String(), "error", err.Error())
}

// process stores and observes what the queue of an informer delivers, one change after another.
// The queue takes nothing new meanwhile.
func (r *run) process(i *informer, in any, initial bool) error {
	deltas, is := in.(cache.Deltas)
	if !is {
		return fmt.Errorf("the queue delivered %T", in) // Cannot happen: see RealFIFO.
	}
	for _, d := range deltas {
		change := d.Object
		if unknown, gone := change.(cache.DeletedFinalStateUnknown); gone {
			change = unknown.Obj
		}
		o, is := change.(client.Object)
		if !is {
			continue
		}
		before, _, err := i.store.Get(o)
		if err != nil {
			return err
		}
		old, _ := before.(client.Object)
		if d.Type == cache.Deleted {
			if err := i.store.Delete(o); err != nil {
				return err
			}
			if old != nil {
				r.deleted(i, old, o)
			}
			continue
		}
		if err := i.store.Update(o); err != nil { // It adds what is not there.
			return err
		}
		if old == nil {
			r.added(i, o, initial)
		} else {
			r.updated(i, old, o)
		}
	}
	return nil
}

func (r *run) added(i *informer, o client.Object, initial bool) {
	if i.objects.Add(1) > int64(r.calls.limits.objects) {
		r.fail(errTooMany)
	}
	r.holds(i, storedBytes(o))
	r.received(i, o, initial)
	r.subject.notifySources(nil, o, initial)
}

func (r *run) updated(i *informer, old, o client.Object) {
	r.holds(i, storedBytes(o)-storedBytes(old))
	r.received(i, o, false)
	r.subject.notifySources(old, o, false)
}

func (r *run) deleted(i *informer, old, o client.Object) {
	i.objects.Add(-1)
	r.holds(i, -storedBytes(old))
	if r.subject.kind.Observe != nil && r.subject.wants(o.GetNamespace(), o.GetName()) {
		r.subject.wake(r.ledger.observeDeleted(o), false)
	}
	r.subject.notifySources(o, nil, false)
}

// holds counts the bytes that an informer stores.
func (r *run) holds(i *informer, more int64) {
	if i.held.Add(more) > r.calls.limits.stored {
		r.fail(errStored)
	}
}

// received observes an object of a list or watch, and wakes the Pipelines that it
// concerns; for an object of the initial list, when the list is complete.
func (r *run) received(i *informer, o client.Object, initial bool) {
	if isUnread(o) {
		// It was reduced before it was demanded, and stored after that: settle reads it.
		if r.subject.wants(o.GetNamespace(), o.GetName()) {
			r.ledger.unread(wanted{o.GetNamespace(), o.GetName()})
			r.subject.poke()
		}
		return
	}
	if r.subject.kind.Observe == nil {
		return
	}
	if r.ledger.goesBack(o) {
		r.fail(errRestored)
		return
	}
	woken := r.ledger.observe(o, r.subject.kind.Observe)
	if initial && i.initial.hold(woken) {
		return
	}
	r.subject.wake(woken, initial)
}
