package instancestate

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-hub/capstan/hub/eventing/schema"
)

// SourceStatus is how the reading of a source's queue goes, on this replica.
type SourceStatus struct {
	// Config in use: while that of the object is wrong, the last good one.
	Config schema.Config
	// Ready when the queue could be read at the last try.
	Ready bool
	// Message says why not, and how to mend it; empty when it was not tried yet. It stays
	// the same while the error lasts.
	Message string
}

// Source of an EventingBackend; false when nothing is read for it. Whoever writes the
// object's status asks, and is told by Options.SourceChanged when to ask again.
func (r *AWSInstanceStateReconciler) Source(name types.NamespacedName) (SourceStatus, bool) {
	running := r.sources.get(name)
	if running == nil {
		return SourceStatus{}, false
	}
	now := running.consumer.Status()
	return SourceStatus{Config: running.config, Ready: now.Ready, Message: now.Message}, true
}
