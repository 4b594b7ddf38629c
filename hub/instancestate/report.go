package instancestate

import (
	"k8s.io/apimachinery/pkg/types"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
)

// SourceStatus is the state of a source, on this replica.
type SourceStatus struct {
	// Config in use: the last valid one, while that of the object is invalid.
	Config schema.Config
	// Ready reports whether the queue is read, its messages are settled, and the objects of the
	// management cluster are known that its events are about.
	Ready bool
	// Message is the error, and what to do about it; empty before the first attempt. It
	// stays the same while the error lasts.
	Message string
	// Note is what a source that is ready cannot do; empty when there is nothing.
	Note string
	// Delivery is the state of the events. GivenUp counts since this replica began to read the
	// queue.
	Delivery eventingv1.Delivery
}

// Source returns the state of the queue of an EventingBackend; false when this replica does
// not read it. The writer of the object's status calls it, and again after each call of
// Options.SourceChanged.
func (r *Labeler) Source(name types.NamespacedName) (SourceStatus, bool) {
	running := r.sources.get(name)
	if running == nil {
		return SourceStatus{}, false
	}
	now := running.consumer.Status()
	s := SourceStatus{Config: running.config, Ready: now.Ready, Message: now.Message, Delivery: running.delivery()}
	unread, _ := r.unread.last(r.Clock.Now())
	switch {
	case unread.local != "" && s.Message == "":
		s.Ready, s.Message = false, unread.local+"; its events wait in the queue"
	case unread.member != "" && r.leads():
		s.Note = "events of instances without an object wait in the queue: " + unread.member
	}
	return s, true
}
