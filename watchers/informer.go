package watchers

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/index"
)

// storedObject is what informers store.
type storedObject = client.Object

// key is what is stored of an object that nobody demands.
type key struct {
	metav1.TypeMeta
	metav1.ObjectMeta
}

// DeepCopyObject implements runtime.Object.
func (k *key) DeepCopyObject() runtime.Object {
	c := *k
	return &c
}

func newKey(u *unstructured.Unstructured) *key {
	return &key{ObjectMeta: metav1.ObjectMeta{
		Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(),
	}}
}

func isKey(o storedObject) bool {
	_, ok := o.(*key)
	return ok
}

// informer is client-go's shared informer on one scope.
type informer struct {
	shared cache.SharedIndexInformer
	synced <-chan struct{}
	stop   context.CancelFunc

	mu sync.Mutex
	// lockedInitial are whom the initial list concerns, until it is whole.
	lockedInitial map[types.NamespacedName]struct{}
}

// startInformer starts the informer of a scope and waits until it has its initial
// list, at most as long as that may hold one of the slots. A list that takes
// longer goes on without, and the keeper is told when it is whole.
func (r *watching) startInformer(ctx context.Context, namespace string) {
	select {
	case r.w.slots <- struct{}{}:
		defer func() { <-r.w.slots }()
	case <-ctx.Done():
		return
	}
	i := r.newInformer(ctx, namespace)
	timer := r.w.o.Clock.NewTimer(r.w.o.Timings.ListSlot)
	defer timer.Stop()
	select {
	case <-i.synced:
		return
	case <-ctx.Done():
		return
	case <-timer.C():
	}
	r.running.Add(1)
	go func() {
		defer r.running.Done()
		select {
		case <-i.synced:
			r.tellChanged()
		case <-ctx.Done():
		}
	}()
}

func (r *watching) newInformer(ctx context.Context, namespace string) *informer {
	ctx, cancel := context.WithCancel(ctx)
	i := &informer{stop: cancel, lockedInitial: map[types.NamespacedName]struct{}{}}
	i.shared = cache.NewSharedIndexInformerWithOptions(r.listerWatcher(namespace), &unstructured.Unstructured{}, cache.SharedIndexInformerOptions{
		ObjectDescription: r.resource.String(),
	})
	// These fail only on an informer that was started.
	_ = i.shared.SetTransform(r.transform)
	_ = i.shared.SetWatchErrorHandlerWithContext(r.watchFailed)
	registration, _ := i.shared.AddEventHandler(r.handler(i))
	i.synced = registration.HasSyncedChecker().Done()
	r.w.mu.Lock()
	r.informers[namespace] = i
	r.w.mu.Unlock()
	r.running.Add(1)
	go func() {
		defer r.running.Done()
		i.shared.RunWithContext(ctx)
	}()
	return i
}

func (i *informer) isSynced() bool {
	select {
	case <-i.synced:
		return true
	default:
		return false
	}
}

func (r *watching) listerWatcher(namespace string) cache.ListerWatcher {
	var from dynamic.ResourceInterface = r.client
	if namespace != metav1.NamespaceAll {
		from = r.client.Namespace(namespace)
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			r.w.m.lists.WithLabelValues(r.kind.GroupKind.String()).Inc()
			return from.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if o.SendInitialEvents != nil && *o.SendInitialEvents {
				r.w.m.lists.WithLabelValues(r.kind.GroupKind.String()).Inc()
			}
			return from.Watch(ctx, o)
		},
	}
}

// transform is what client-go stores in place of an object. It may see its own
// answer again.
func (r *watching) transform(in any) (any, error) {
	u, ok := in.(*unstructured.Unstructured)
	if !ok {
		return in, nil
	}
	return r.reduce(u), nil
}

// watchFailed ends the run when what is served or allowed changed; everything else
// the reflector tries again by itself.
func (r *watching) watchFailed(_ context.Context, _ *cache.Reflector, err error) {
	if endsRun(err) {
		r.fail(err)
	}
}

// handler is the only one of an informer.
func (r *watching) handler(i *informer) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(in any, initial bool) {
			if o, ok := in.(storedObject); ok {
				r.saw(i, o, initial)
				r.tellSources(nil, o, initial)
			}
		},
		UpdateFunc: func(before, in any) {
			o, ok := in.(storedObject)
			if !ok {
				return
			}
			r.saw(i, o, false)
			old, _ := before.(storedObject)
			r.tellSources(old, o, false)
		},
		DeleteFunc: func(in any) {
			if gone, ok := in.(cache.DeletedFinalStateUnknown); ok {
				in = gone.Obj
			}
			o, ok := in.(storedObject)
			if !ok {
				return
			}
			if r.kind.Observe != nil {
				r.wake(r.seen.gone(r.keeper, o), false)
			}
			r.tellSources(o, nil, false)
		},
	}
}

// saw an object: observe it, and wake whom it concerns; after the initial list is
// whole, if it is part of it.
func (r *watching) saw(i *informer, o storedObject, initial bool) {
	if r.kind.Observe == nil || isKey(o) {
		return
	}
	woken := r.seen.at(r.keeper, o)
	if initial && i.hold(woken) {
		return
	}
	r.wake(woken, initial)
}

// hold keeps wakes until the initial list is whole; false when it is.
func (i *informer) hold(woken []types.NamespacedName) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.lockedInitial == nil {
		return false
	}
	for _, p := range woken {
		i.lockedInitial[p] = struct{}{}
	}
	return true
}

// takeInitial returns the held wakes, once.
func (i *informer) takeInitial() []types.NamespacedName {
	i.mu.Lock()
	defer i.mu.Unlock()
	held := make([]types.NamespacedName, 0, len(i.lockedInitial))
	for p := range i.lockedInitial {
		held = append(held, p)
	}
	i.lockedInitial = nil
	return held
}

// seen keeps the order of what is observed of an object by two ways, the watch and
// a read of one object: an older resourceVersion never overwrites a newer one.
//
// Locking: mu is held over the index's own lock, and nothing else.
type seen struct {
	mu       sync.Mutex
	versions map[wanted]string
}

// at observes a stored object.
func (s *seen) at(k *keeper, o storedObject) []types.NamespacedName {
	want := wanted{o.GetNamespace(), o.GetName()}
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, known := s.versions[want]; known {
		if order, err := resourceversion.CompareResourceVersion(o.GetResourceVersion(), before); err == nil && order < 0 {
			return nil
		}
	}
	if s.versions == nil {
		s.versions = map[wanted]string{}
	}
	s.versions[want] = o.GetResourceVersion()
	return k.observe(want.namespace, want.name, k.kind.Observe(o))
}

// gone observes that an object was deleted.
func (s *seen) gone(k *keeper, o storedObject) []types.NamespacedName {
	want := wanted{o.GetNamespace(), o.GetName()}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.versions, want)
	return k.observe(want.namespace, want.name, index.Observation{})
}

// absent observes that a demanded object does not exist, unless it was seen.
func (s *seen) absent(k *keeper, want wanted) []types.NamespacedName {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.versions[want]; known {
		return nil
	}
	return k.observe(want.namespace, want.name, index.Observation{})
}
