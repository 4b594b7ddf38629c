package instancestate

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-hub/capstan/hub/eventing/schema"
)

// SourceStatus is the state of reading a source's queue, on this replica.
type SourceStatus struct {
	// Config in use: the last valid one, while that of the object is invalid.
	Config schema.Config
	// Ready reports whether the last attempt to read the queue succeeded.
	Ready bool
	// Message is the error, and what to do about it; empty before the first attempt. It
	// stays the same while the error lasts.
	Message string
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
	return SourceStatus{Config: running.config, Ready: now.Ready, Message: now.Message}, true
}
