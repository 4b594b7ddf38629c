package watchers

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/clusters/transport"
)

// informer is client-go's controller on one namespace, or on all. All that demands the kind
// shares it. It is no SharedIndexInformer, because it has one handler, which does not wait: a
// listener would cost 37 KiB and three goroutines for each kind of each cluster.
type informer struct {
	namespace string
	store     cache.Store
	synced    <-chan struct{}
	stop      context.CancelFunc
	// stream follows its watches.
	stream *transport.Stream
	// objects that it holds, and held are their bytes by the estimate of storedBytes.
	objects, held atomic.Int64
	initial       initialWakes

	// lockedState is guarded by shared.mu of the Watcher.
	lockedState informerState
}

type informerState struct {
	// began is when it got a slot for its initial list; zero while it waits for one.
	began time.Time
	// ready: the initial list is complete, and every demanded object is observed.
	ready bool
	// problem is that of the last list or watch call, and failing since when they fail.
	problem problem
	failing time.Time
}

func (i *informer) isSynced() bool {
	select {
	case <-i.synced:
		return true
	default:
		return false
	}
}

// stored returns what the informer stores of an object; nil if nothing.
func (i *informer) stored(want wanted) client.Object {
	at := want.name
	if want.namespace != "" {
		at = want.namespace + "/" + want.name
	}
	item, _, _ := i.store.GetByKey(at)
	o, _ := item.(client.Object)
	return o
}

// each calls do for each stored object until do returns false. It returns false then.
func (i *informer) each(do func(client.Object) bool) bool {
	for _, item := range i.store.List() {
		if o, ok := item.(client.Object); ok && !do(o) {
			return false
		}
	}
	return true
}

// lacks returns whether only the key of some object is stored, although all objects of its
// namespace, or of the cluster, are demanded.
func (i *informer) lacks(wide []wanted) bool {
	if len(wide) == 0 {
		return false
	}
	return !i.each(func(o client.Object) bool {
		if !isUnread(o) {
			return true
		}
		for _, want := range wide {
			if want.namespace == "" || want.namespace == o.GetNamespace() {
				return false
			}
		}
		return true
	})
}

// initialWakes holds the wakes of an initial list until the list is complete.
type initialWakes struct {
	mu          sync.Mutex
	lockedState initialWakesState
}

type initialWakesState struct {
	pipelines map[types.NamespacedName]struct{}
	// taken: the initial list is complete.
	taken bool
}

// hold keeps wakes until the initial list is complete; false if it is complete.
func (w *initialWakes) hold(woken []types.NamespacedName) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lockedState.taken {
		return false
	}
	if w.lockedState.pipelines == nil {
		w.lockedState.pipelines = map[types.NamespacedName]struct{}{}
	}
	for _, p := range woken {
		w.lockedState.pipelines[p] = struct{}{}
	}
	return true
}

// take returns the held wakes, once.
func (w *initialWakes) take() []types.NamespacedName {
	w.mu.Lock()
	defer w.mu.Unlock()
	held := make([]types.NamespacedName, 0, len(w.lockedState.pipelines))
	for p := range w.lockedState.pipelines {
		held = append(held, p)
	}
	w.lockedState = initialWakesState{taken: true}
	return held
}
