package instancestate

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/capstan-hub/capstan/hub/instancestate/owner"
)

// Woken is why a handler is woken: there is a new event behind the label of an object.
type Woken struct {
	// Cluster that the object lives in; empty for the management cluster.
	Cluster multicluster.ClusterName
	// Object is the AWSMachine or AWSMachinePool, as it was read: its metadata.
	Object *metav1.PartialObjectMetadata
}

// Handler acts on events in this process.
type Handler struct {
	name string
	r    *AWSInstanceStateReconciler
}

// Handle registers a handler, before the manager starts. wake is called when the event
// behind an object's label changes, once for each object after a start, and again while
// its message waits; it must not block: to enqueue is all that it should do.
func (r *AWSInstanceStateReconciler) Handle(name string, wake func(Woken)) *Handler {
	r.ledger.add(name)
	r.wakers.add(name, wake)
	return &Handler{name: name, r: r}
}

// Processed reports that the handler has acted on an event, of GetEventFromSQS, or has
// nothing to do for it.
func (h *Handler) Processed(w Woken, eventID string) {
	h.r.ledger.report(h.name, keyOf(w), eventID)
}

// IsEventProcessed is whether every registered handler has reported of an event: its
// message is not deleted before. Without handlers every event is.
func (r *AWSInstanceStateReconciler) IsEventProcessed(_ context.Context, eventID string) bool {
	return r.ledger.processed(eventID)
}

func keyOf(w Woken) owner.Key {
	return owner.Key{
		Cluster: string(w.Cluster), Pool: w.Object.Kind == AWSMachinePool.Kind,
		Namespace: w.Object.Namespace, Name: w.Object.Name,
	}
}

// wakers are the handlers' wake functions, and what they were woken for.
type wakers struct {
	mu          sync.Mutex
	lockedState struct {
		by map[string]func(Woken)
		// last: object → id of the event that its handlers were last woken for.
		last map[owner.Key]string
	}
}

func (w *wakers) add(name string, wake func(Woken)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lockedState.by == nil {
		w.lockedState.by, w.lockedState.last = map[string]func(Woken){}, map[owner.Key]string{}
	}
	w.lockedState.by[name] = wake
}

func (w *wakers) forget(key owner.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.lockedState.last, key)
}

// wake one handler.
func (w *wakers) wake(name string, woken Woken) {
	w.mu.Lock()
	wake := w.lockedState.by[name]
	w.mu.Unlock()
	wake(woken)
}

// fresh are the handlers to wake for an event behind an object's label.
func (w *wakers) fresh(key owner.Key, id string) []func(Woken) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.lockedState.by) == 0 || w.lockedState.last[key] == id {
		return nil
	}
	w.lockedState.last[key] = id
	all := make([]func(Woken), 0, len(w.lockedState.by))
	for _, wake := range w.lockedState.by {
		all = append(all, wake)
	}
	return all
}

// wake the handlers if there is another event behind an object's label.
func (r *AWSInstanceStateReconciler) wake(key owner.Key, u *unstructured.Unstructured) {
	id := eventID(u.GetAnnotations())
	if id == "" {
		return
	}
	wakes := r.wakers.fresh(key, id)
	if wakes == nil {
		return
	}
	r.ledger.superseded(key, id)
	woken := objectFor(key, seenOf(u.GroupVersionKind(), u, key))
	for _, wake := range wakes {
		wake(woken)
	}
}

// objectFor handlers.
func objectFor(key owner.Key, at seen) Woken {
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: key.Namespace, Name: key.Name, UID: at.uid, ResourceVersion: at.resourceVersion,
		Labels: map[string]string{labelOf(key): at.label, clusterNameLabel: at.cluster}, Annotations: at.annotations,
	}}
	o.SetGroupVersionKind(at.gvk)
	return Woken{Cluster: multicluster.ClusterName(key.Cluster), Object: o.DeepCopy()}
}
