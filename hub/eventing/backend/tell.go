package backend

import (
	"fmt"
	"strings"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/internal/truncate"
)

// Reasons and actions of Events.
const (
	eventReady    = "EventingReady"
	eventNotReady = "EventingNotReady"
	eventInvalid  = "InvalidConfig"
	eventDropped  = "EventsDropped"

	actionConnect = "Connect"
	actionPublish = "Publish"
	actionDelete  = "Delete"
)

// maxNote is how long an Event's note may be, in bytes.
const maxNote = 1000

// remember what was told of a status that another process wrote.
func (e *entry) remember(s eventingv1.EventingBackendStatus) {
	if c := conditionOf(s, eventingv1.ReadyCondition); c != nil {
		e.told = c.Status
	}
	e.toldErrors = listed(s.ValidationErrors)
}

// tell of a status that will last, where it differs from what was told.
func (r *Reconciler) tell(b *eventingv1.EventingBackend, e *entry) {
	ready := conditionOf(b.Status, eventingv1.ReadyCondition)
	mistakes := listed(b.Status.ValidationErrors)
	switch {
	case mistakes != "" && mistakes != e.toldErrors:
		r.event(b, corev1.EventTypeWarning, eventInvalid, actionConnect, mistakes)
	case ready.Status == e.told:
	case ready.Status == metav1.ConditionTrue:
		r.event(b, corev1.EventTypeNormal, eventReady, actionConnect, "the backend of type "+b.Status.BackendType+" is ready")
	default:
		r.event(b, corev1.EventTypeWarning, eventNotReady, actionConnect, ready.Reason+": "+ready.Message)
	}
	e.told, e.toldErrors = ready.Status, mistakes
}

// listed errors, in a line.
func listed(invalid []eventingv1.ValidationError) string {
	lines := make([]string, len(invalid))
	for i, v := range invalid {
		lines[i] = v.Config + ": " + v.Error
	}
	return strings.Join(lines, "; ")
}

func (r *Reconciler) event(b *eventingv1.EventingBackend, kind, reason, action, note string) {
	r.Recorder.Eventf(b, nil, kind, reason, action, "%s", truncate.Bytes(note, maxNote))
}

// tellGivenUp makes an Event of those events that were given up, seldom; it returns when
// it wants to look again.
func (r *Reconciler) tellGivenUp(b *eventingv1.EventingBackend, e *entry) time.Duration {
	now := r.Clock.Now()
	if !r.leads() {
		return r.Timings.Recheck
	}
	r.mu.Lock()
	n, code, wait := e.lockedGivenUp, e.lockedCode, tellGivenUp-now.Sub(e.lockedTold)
	if n > 0 && wait <= 0 {
		e.lockedGivenUp, e.lockedTold = 0, now
	}
	r.mu.Unlock()
	switch {
	case n == 0:
		return r.Timings.Recheck
	case wait > 0:
		return wait
	}
	r.event(b, corev1.EventTypeWarning, eventDropped, actionPublish, fmt.Sprintf("%d events were given up, the last one for: %s", n, code))
	return r.Timings.Recheck
}

// look at a backend of the publisher. Here and below: callbacks of the publisher, which
// do not block.
func (r *Reconciler) look(backend string) {
	namespace, name, _ := strings.Cut(backend, "/")
	r.Look(types.NamespacedName{Namespace: namespace, Name: name})
}

func (r *Reconciler) givenUp(backend string, _ ce.Event, code string) {
	r.note(backend, func(e *entry) {
		e.lockedGivenUp++
		e.lockedCode = code
	})
}

func (r *Reconciler) ended(backend string, left int) {
	r.note(backend, func(e *entry) { e.lockedLeft = left })
}

// note something of a backend that is known, and look at it.
func (r *Reconciler) note(backend string, edit func(*entry)) {
	namespace, name, _ := strings.Cut(backend, "/")
	r.mu.Lock()
	if e := r.lockedEntries[types.NamespacedName{Namespace: namespace, Name: name}]; e != nil {
		edit(e)
	}
	r.mu.Unlock()
	r.look(backend)
}
