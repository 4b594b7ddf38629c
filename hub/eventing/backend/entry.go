package backend

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/sink"
)

// entry is the state of one EventingBackend in a Reconciler. Only its worker uses it,
// except the fields named locked, which Reconciler.mu guards.
type entry struct {
	// active publishes; the publisher closes its sink. next is to replace it.
	active, next *connection
	// refused is a configuration that could not be opened; refusedReason is the error.
	refused       *desired
	refusedReason string
	// draining: the publisher empties the queue and then removes the backend.
	draining bool
	// heldError is the first error since events are held back: its text may change with
	// every attempt.
	heldError *sink.Error
	// statusKnown: this process has checked or written the status.
	statusKnown bool
	// lastWritten is the status as this process left it; nil before.
	lastWritten *eventingv1.EventingBackendStatus
	// counting is set when status.delivery was first read. othersGaveUp is how many events it says
	// that were given up without gaveUp, the count of the queue or publisher in use.
	counting             bool
	othersGaveUp, gaveUp int64
	// deliveryWritten is when this process last wrote status.delivery.
	deliveryWritten time.Time
	// reportedReady is the readiness in the last Event; empty before the first.
	reportedReady metav1.ConditionStatus
	// reportedErrors are the validation errors in the last Event.
	reportedErrors string

	// lockedDeadLetter is the name of the dead letter backend in the configuration in use.
	lockedDeadLetter string

	// lockedLeft is the number of events in the queue when it ended.
	lockedLeft int
	// lockedDropped counts the events dropped since the last Event about it, at
	// lockedDroppedAt. lockedDropCode is the error code of the last one.
	lockedDropped   int
	lockedDropCode  string
	lockedDroppedAt time.Time
}

// entry returns the entry of an object, and adds it if it is missing.
func (r *Reconciler) entry(name types.NamespacedName) *entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.lockedEntries[name]
	if e == nil {
		e = &entry{}
		r.lockedEntries[name] = e
	}
	return e
}

// forget deletes the entry of an object that no longer exists.
func (r *Reconciler) forget(name types.NamespacedName) {
	e := r.entry(name)
	r.discardNext(e)
	r.retireActive(e)
	r.secrets.Drop(name)
	r.mu.Lock()
	delete(r.lockedEntries, name)
	r.mu.Unlock()
}

// open a connection and start to ping it.
func (r *Reconciler) open(name types.NamespacedName, w desired, secret map[string][]byte) (*connection, error) {
	c := &connection{desired: w, wake: make(chan struct{}, 1)}
	made, err := r.Openers[w.config.Type](Opening{Config: w.config, Secret: secret, Hosts: w.hosts, Name: name.String(), Changed: c.pingNow})
	if err != nil {
		return nil, err
	}
	c.sink = made
	ctx, stop := context.WithCancel(r.runContext)
	c.stop = stop
	r.goroutines.Go(func() { c.pingLoop(ctx, r.Options, func() { r.Enqueue(name) }) })
	return c, nil
}

// activate replaces the active connection by the next one.
func (r *Reconciler) activate(name types.NamespacedName, e *entry) error {
	if err := r.publisher.Set(name.String(), settings(name, e.next)); err != nil {
		r.discardNext(e)
		return fmt.Errorf("publishing to EventingBackend %s: %w", name, err)
	}
	r.retireActive(e)
	e.active, e.next, e.draining = e.next, nil, false
	r.mu.Lock()
	e.lockedDeadLetter, e.lockedLeft = e.active.config.String(keyDeadLetter), 0
	r.mu.Unlock()
	return nil
}

// retireActive stops to ping the active connection. The publisher closes its sink.
func (*Reconciler) retireActive(e *entry) {
	if e.active != nil {
		e.active.stop()
		e.active = nil
	}
}

// discardNext closes the next connection without using it.
func (r *Reconciler) discardNext(e *entry) {
	c := e.next
	if c == nil {
		return
	}
	e.next = nil
	c.stop()
	r.closeUnused(c.sink)
}

// closeUnused closes a sink that the publisher does not have, in the background.
func (r *Reconciler) closeUnused(s sink.Sink) {
	r.goroutines.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.runContext), closeTimeout)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			r.Logger.Info("failed to close an unused connection to a broker", "error", err.Error())
		}
	})
}

// release stops to publish through the active connection after its queue is empty.
func (r *Reconciler) release(name types.NamespacedName, e *entry) {
	r.discardNext(e)
	if e.active != nil && !e.draining {
		r.publisher.Remove(name.String(), r.Timings.DrainGrace)
		e.draining = true
	}
	r.retireActive(e)
}
