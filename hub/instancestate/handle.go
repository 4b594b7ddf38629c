package instancestate

import (
	"context"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/lru"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/capstan-hub/capstan/hub/instancestate/owner"
)

// Woken is the argument of a handler: an object with a new event behind its label.
type Woken struct {
	// Cluster that the object lives in; empty for the management cluster.
	Cluster multicluster.ClusterName
	// Object is the metadata of the AWSMachine or pool.
	Object *metav1.PartialObjectMetadata
}

// Handler acts on events in this process.
type Handler struct {
	name string
	r    *Labeler
}

// Handle registers a handler, before the manager starts. wake is called when the event
// behind an object's label changes, once for each object after a start, and again while
// its message waits. It must not block: it should only enqueue.
func (r *Labeler) Handle(name string, wake func(Woken)) *Handler {
	r.handlers.add(name, wake)
	return &Handler{name: name, r: r}
}

// Processed reports that the handler has acted on an event, of GetEventFromSQS, or has
// nothing to do for it.
func (h *Handler) Processed(w Woken, eventID string) {
	h.r.handlers.report(h.name, owner.Key{
		Cluster: string(w.Cluster), Kind: w.Object.GroupVersionKind().GroupKind(),
		Namespace: w.Object.Namespace, Name: w.Object.Name,
	}, eventID)
}

// IsEventProcessed reports whether every registered handler has reported an event on every
// object whose label it is behind: its message is not deleted before. Without handlers it
// is true for every event.
func (r *Labeler) IsEventProcessed(_ context.Context, eventID string) bool {
	return r.handlers.processed(eventID)
}

// remembers is how many processed events are remembered: more than a queue's window.
const remembers = 20_000

// handlers are the registered handlers, and the reports that are missing. The zero value has
// no handler.
type handlers struct {
	mu          sync.Mutex
	lockedState struct {
		wake map[string]func(Woken)
		// behind: object → the event behind its label.
		behind map[owner.Key]*awaited
		// open: event → objects on which a report of it is missing.
		open map[string]int
		// done are the ids of processed events.
		done *lru.Cache
		// unreported are the ids of open events that were not reported on an object that is not followed any more.
		unreported *lru.Cache
	}
}

// awaited is an event behind the label of one object.
type awaited struct {
	event string
	// missing are the handlers that have not reported.
	missing map[string]struct{}
	// woken is set when a watch has delivered the event and the handlers were called for it.
	woken bool
	// settled is set when then was called.
	settled bool
	// then is called when no report is missing, or the event is superseded: with acknowledged, or with
	// released when the object is not followed any more.
	then []func(outcome)
}

func (h *handlers) add(name string, wake func(Woken)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &h.lockedState
	if s.wake == nil {
		s.wake, s.behind, s.open, s.done = map[string]func(Woken){}, map[owner.Key]*awaited{}, map[string]int{}, lru.New(remembers)
		s.unreported = lru.New(remembers)
	}
	s.wake[name] = wake
}

func (h *handlers) processed(event string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.lockedState.wake) == 0 {
		return true
	}
	_, done := h.lockedState.done.Get(event)
	return done && h.lockedState.open[event] == 0
}

// await calls then when every handler has reported an event on an object, perhaps at once.
// It returns the wake functions of the handlers that have not.
func (h *handlers) await(key owner.Key, event string, then func(outcome)) (wake []func(Woken)) {
	h.mu.Lock()
	over := h.supersedeLocked(key, event, acknowledged)
	if a := h.ofLocked(key, event); a == nil || len(a.missing) == 0 {
		over = append(over, then)
	} else {
		a.then = append(a.then, then)
		for name := range a.missing {
			wake = append(wake, h.lockedState.wake[name])
		}
	}
	h.mu.Unlock()
	call(over, acknowledged)
	return wake
}

// fresh returns the handlers to call for an event that a watch has delivered; event is empty for none.
// newest returns whether no newer state of the object was written. It is called under the mutex, so
// that the wait for an event that a worker has just written is not ended by the event before it.
func (h *handlers) fresh(key owner.Key, event string, newest func() bool) (wake []func(Woken), is bool) {
	h.mu.Lock()
	if !newest() {
		h.mu.Unlock()
		return nil, false
	}
	over := h.supersedeLocked(key, event, acknowledged)
	if a := h.ofLocked(key, event); a != nil && !a.woken {
		a.woken = true
		wake = slices.Collect(maps.Values(h.lockedState.wake))
	}
	h.mu.Unlock()
	call(over, acknowledged)
	return wake, true
}

// ofLocked returns the event behind the label of an object; nil without handlers or event.
func (h *handlers) ofLocked(key owner.Key, event string) *awaited {
	s := &h.lockedState
	if len(s.wake) == 0 || event == "" {
		return nil
	}
	if s.behind[key] == nil {
		a := &awaited{event: event, missing: map[string]struct{}{}}
		for name := range s.wake {
			a.missing[name] = struct{}{}
		}
		s.behind[key] = a
		s.open[event]++
	}
	return s.behind[key]
}

// report records the report of a handler.
func (h *handlers) report(name string, key owner.Key, event string) {
	h.mu.Lock()
	var then []func(outcome)
	if a := h.lockedState.behind[key]; a != nil && a.event == event {
		delete(a.missing, name)
		if len(a.missing) == 0 {
			then = h.settleLocked(a, acknowledged)
		}
	}
	h.mu.Unlock()
	call(then, acknowledged)
}

// supersede replaces the event behind the label of an object by another one, or by none when the
// object was deleted, or is not followed any more: then its message is released. No report of the
// old event is awaited any more.
func (h *handlers) supersede(key owner.Key, by string, what outcome) {
	h.mu.Lock()
	then := h.supersedeLocked(key, by, what)
	h.mu.Unlock()
	call(then, what)
}

// supersedeLocked is supersede. It returns what to call without the lock.
func (h *handlers) supersedeLocked(key owner.Key, by string, what outcome) []func(outcome) {
	a := h.lockedState.behind[key]
	if a == nil || a.event == by {
		return nil
	}
	delete(h.lockedState.behind, key)
	return h.settleLocked(a, what)
}

// settleLocked notes that no report of an event is awaited on one object, and returns what to
// call without the lock. An event that is not acknowledged is not processed.
func (h *handlers) settleLocked(a *awaited, what outcome) []func(outcome) {
	s, then := &h.lockedState, a.then
	if a.settled {
		return nil
	}
	a.settled, a.then = true, nil
	if what != acknowledged {
		s.unreported.Add(a.event, nil)
	}
	if s.open[a.event]--; s.open[a.event] == 0 {
		delete(s.open, a.event)
		if _, some := s.unreported.Get(a.event); !some {
			s.done.Add(a.event, nil)
		}
		s.unreported.Remove(a.event)
	}
	return then
}

func call(all []func(outcome), what outcome) {
	for _, f := range all {
		f(what)
	}
}

// wake calls the handlers if there is a new event behind an object's label, as a watch delivered
// it. Another replica may have removed the event. It returns false when this process has written a
// newer state of the object: the watch is about to deliver that.
func (r *Labeler) wake(key owner.Key, u *unstructured.Unstructured) (newest bool) {
	all, newest := r.handlers.fresh(key, eventID(u.GetAnnotations()), func() bool {
		return r.writer.caughtUp(key, u.GetResourceVersion())
	})
	for _, wake := range all {
		wake(objectFor(key, seenOf(u.GroupVersionKind(), u, key)))
	}
	return newest
}

// objectFor returns the argument for handlers.
func objectFor(key owner.Key, at seen) Woken {
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: key.Namespace, Name: key.Name, UID: at.uid, ResourceVersion: at.resourceVersion,
		Labels: map[string]string{labelOf(key): at.label, clusterv1.ClusterNameLabel: at.cluster}, Annotations: at.annotations,
	}}
	o.SetGroupVersionKind(at.gvk)
	return Woken{Cluster: multicluster.ClusterName(key.Cluster), Object: o.DeepCopy()}
}
