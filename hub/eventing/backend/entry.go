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

// entry is what a Reconciler keeps of one EventingBackend. Its worker alone touches it,
// but for what is named locked: that is guarded by Reconciler.mu.
type entry struct {
	// active publishes; the publisher closes its sink. next is to take its place.
	active, next *connection
	// refused is a configuration that could not be opened, and why.
	refused *wanted
	why     string
	// leaving: the publisher was told to let the queue empty itself.
	leaving bool
	// held is the error for which events are held back, as it was at first: its text may
	// change with every try.
	held *sink.Error
	// wrote: the status is of this process.
	wrote bool
	// written is the status as this process left it; nil before.
	written *eventingv1.EventingBackendStatus
	// told is the readiness that an Event told of last; empty before the first.
	told metav1.ConditionStatus
	// toldErrors are those that an Event told of last.
	toldErrors string

	// lockedDeadLetter is the name of the dead letter backend of the one in use.
	lockedDeadLetter string

	// lockedLeft is how many events were in the queue when it ended.
	lockedLeft int
	// lockedGivenUp counts events given up since the last Event about that,
	// lockedCode is why the last was.
	lockedGivenUp int
	lockedCode    string
	lockedTold    time.Time
}

// entry of an object, made if there is none.
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

// forget an object that is gone.
func (r *Reconciler) forget(name types.NamespacedName) {
	e := r.entry(name)
	r.abandon(e)
	r.retire(e)
	r.secrets.Drop(name)
	r.mu.Lock()
	delete(r.lockedEntries, name)
	r.mu.Unlock()
}

// open a connection and have it pinged.
func (r *Reconciler) open(name types.NamespacedName, w wanted, secret map[string][]byte) (*connection, error) {
	c := &connection{wanted: w, wake: make(chan struct{}, 1)}
	made, err := r.Openers[w.config.Type](Opening{Config: w.config, Secret: secret, Name: name.String(), Changed: c.poke})
	if err != nil {
		return nil, err
	}
	c.sink = made
	ctx, stop := context.WithCancel(r.life)
	c.stop = stop
	r.runs.Go(func() { c.pinging(ctx, r.Options, func() { r.Look(name) }) })
	return c, nil
}

// use the next connection in place of the active one.
func (r *Reconciler) use(name types.NamespacedName, e *entry) error {
	if err := r.publisher.Set(name.String(), settings(name, e.next)); err != nil {
		r.abandon(e)
		return fmt.Errorf("publishing to EventingBackend %s: %w", name, err)
	}
	r.retire(e)
	e.active, e.next, e.leaving = e.next, nil, false
	r.mu.Lock()
	e.lockedDeadLetter, e.lockedLeft = e.active.config.String(keyDeadLetter), 0
	r.mu.Unlock()
	return nil
}

// retire the active connection, whose sink is the publisher's.
func (*Reconciler) retire(e *entry) {
	if e.active != nil {
		e.active.stop()
		e.active = nil
	}
}

// abandon the connection that was to be the next.
func (r *Reconciler) abandon(e *entry) {
	c := e.next
	if c == nil {
		return
	}
	e.next = nil
	c.stop()
	r.runs.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.life), closeTimeout)
		defer cancel()
		if err := c.sink.Close(ctx); err != nil {
			r.Logger.Info("closing a connection that was not used failed", "error", err.Error())
		}
	})
}

// release: stop publishing through the active connection, and let the queue empty itself.
func (r *Reconciler) release(name types.NamespacedName, e *entry) {
	r.abandon(e)
	if e.active != nil && !e.leaving {
		r.publisher.Remove(name.String(), drainGrace)
		e.leaving = true
	}
	r.retire(e)
}
