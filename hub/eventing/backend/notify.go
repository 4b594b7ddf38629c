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

// restoreReported reads which Events another process created for the status it wrote.
func (e *entry) restoreReported(s eventingv1.EventingBackendStatus) {
	if c := s.Condition(eventingv1.ReadyCondition); c != nil {
		e.reportedReady = c.Status
	}
	e.reportedErrors = joinErrors(s.ValidationErrors)
}

// recordEvents creates Events for a settled status where it differs from the last
// reported one.
func (r *Reconciler) recordEvents(b *eventingv1.EventingBackend, e *entry) {
	ready := b.Status.Condition(eventingv1.ReadyCondition)
	invalid := joinErrors(b.Status.ValidationErrors)
	switch {
	case invalid != "" && invalid != e.reportedErrors:
		r.event(b, corev1.EventTypeWarning, eventInvalid, actionConnect, invalid)
	case ready.Status == e.reportedReady:
	case ready.Status == metav1.ConditionTrue:
		r.event(b, corev1.EventTypeNormal, eventReady, actionConnect, "the backend of type "+b.Status.BackendType+" is ready")
	default:
		r.event(b, corev1.EventTypeWarning, eventNotReady, actionConnect, ready.Reason+": "+ready.Message)
	}
	e.reportedReady, e.reportedErrors = ready.Status, invalid
}

// joinErrors formats validation errors in one line.
func joinErrors(invalid []eventingv1.ValidationError) string {
	lines := make([]string, len(invalid))
	for i, v := range invalid {
		lines[i] = v.Config + ": " + v.Error
	}
	return strings.Join(lines, "; ")
}

func (r *Reconciler) event(b *eventingv1.EventingBackend, kind, reason, action, note string) {
	r.Recorder.Eventf(b, nil, kind, reason, action, "%s", note)
}

// recordDropped creates an Event about dropped events, at most one in
// droppedEventInterval. It returns the time until the next check.
func (r *Reconciler) recordDropped(b *eventingv1.EventingBackend, e *entry) time.Duration {
	now := r.Clock.Now()
	if !r.isLeader() {
		return r.Timings.Recheck
	}
	r.mu.Lock()
	n, code, wait := e.lockedDropped, e.lockedDropCode, droppedEventInterval-now.Sub(e.lockedDroppedAt)
	if n > 0 && wait <= 0 {
		e.lockedDropped, e.lockedDroppedAt = 0, now
	}
	r.mu.Unlock()
	switch {
	case n == 0:
		return r.Timings.Recheck
	case wait > 0:
		return wait
	}
	r.event(b, corev1.EventTypeWarning, eventDropped, actionPublish, fmt.Sprintf("%d events were dropped, the last one with error %s", n, code))
	return r.Timings.Recheck
}

// enqueueBackend enqueues a backend by the publisher's name. This and the next two methods
// are callbacks of the publisher, which must not block.
func (r *Reconciler) enqueueBackend(backend string) {
	namespace, name, _ := strings.Cut(backend, "/")
	r.Enqueue(types.NamespacedName{Namespace: namespace, Name: name})
}

func (r *Reconciler) givenUp(backend string, _ ce.Event, code string) {
	r.updateEntry(backend, func(e *entry) {
		e.lockedDropped++
		e.lockedDropCode = code
	})
}

func (r *Reconciler) ended(backend string, left int) {
	r.updateEntry(backend, func(e *entry) { e.lockedLeft = left })
}

// updateEntry edits the entry of a known backend, and enqueues it.
func (r *Reconciler) updateEntry(backend string, edit func(*entry)) {
	namespace, name, _ := strings.Cut(backend, "/")
	r.mu.Lock()
	if e := r.lockedEntries[types.NamespacedName{Namespace: namespace, Name: name}]; e != nil {
		edit(e)
	}
	r.mu.Unlock()
	r.enqueueBackend(backend)
}
