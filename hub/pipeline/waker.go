package pipeline

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/index"
)

// Waker adds Pipelines to the queue when the watchers observe a change, or when a
// connection or a reference changes.
//
// Contract: Wake and the Listener's methods never block. Live changes have a higher
// priority than the objects of an initial list: after a restart, a new release does not
// wait behind the lists of a thousand clusters.
//
// Locking: lockedQueue and lockedEarly are guarded by mu; nothing is added to the queue
// under it.
type Waker struct {
	index *index.Index
	// waits reports whether a Pipeline waits for targets and for a time, so that a reconcile would only
	// find that. attach of the Reconciler sets it.
	waits func(types.NamespacedName) bool
	// connected counts the clusters that were connected for the first time, or anew after all their state was dropped.
	connected atomic.Int64

	// mu guards the fields that follow.
	mu          sync.Mutex
	lockedQueue workqueue.TypedRateLimitingInterface[reconcile.Request]
	lockedEarly map[types.NamespacedName]bool
}

var (
	_ source.Source     = &Waker{}
	_ clusters.Listener = &Waker{}
)

// NewWaker makes a Waker.
func NewWaker(x *index.Index) *Waker {
	return &Waker{index: x, waits: func(types.NamespacedName) bool { return false }, lockedEarly: map[types.NamespacedName]bool{}}
}

// Start implements source.Source.
func (w *Waker) Start(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	w.mu.Lock()
	w.lockedQueue = q
	early := w.lockedEarly
	w.lockedEarly = nil
	w.mu.Unlock()
	for key, initial := range early {
		enqueue(q, key, initial)
	}
	return nil
}

// Wake enqueues Pipelines; initial ones with low priority.
func (w *Waker) Wake(pipelines []types.NamespacedName, initial bool) {
	w.mu.Lock()
	q := w.lockedQueue
	if q == nil {
		for _, key := range pipelines {
			before, known := w.lockedEarly[key]
			w.lockedEarly[key] = initial && (before || !known)
		}
	}
	w.mu.Unlock()
	if q == nil {
		return
	}
	for _, key := range pipelines {
		enqueue(q, key, initial)
	}
}

func enqueue(q workqueue.TypedRateLimitingInterface[reconcile.Request], key types.NamespacedName, initial bool) {
	request := reconcile.Request{NamespacedName: key}
	pq, ok := q.(priorityqueue.PriorityQueue[reconcile.Request])
	if !ok {
		q.Add(request)
		return
	}
	priority := 0
	if initial {
		priority = handler.LowPriority
	}
	pq.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, request)
}

// Observed wakes the Pipelines of applications whose observation or freshness in the index changed,
// but for those that wait for other targets.
func (w *Waker) Observed(pipelines []types.NamespacedName, initial bool) {
	w.Wake(slices.DeleteFunc(slices.Clone(pipelines), w.waits), initial)
}

// ConnectionChanged implements clusters.Listener.
func (w *Waker) ConnectionChanged(from, to clusters.Snapshot) {
	if from.State == capstanv1.ConnectionConnecting && to.State == capstanv1.ConnectionReady { // After an outage it is Unreachable.
		w.connected.Add(1)
	}
	w.Observed(w.index.PipelinesOfRef(string(to.Name)), false)
}

// ReferenceChanged implements clusters.Listener. It also wakes the Pipelines that select clusters of the kind: the
// cluster may have got the labels, or lost them.
func (w *Waker) ReferenceChanged(ref clusters.Ref) {
	for _, one := range []clusters.Ref{ref, clusters.SelectionRef(ref.Kind, ref.Namespace), clusters.SelectionRef(ref.Kind, pipelinesv1.AllNamespaces)} {
		w.Wake(w.index.PipelinesOfRef(string(one.ClusterName())), false)
	}
}
