package explain_test

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/explain"
)

func TestWriteBackend(t *testing.T) {
	now := time.Date(2026, 1, 10, 10, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(-d)} }
	backend := func(status eventingv1.EventingBackendStatus) *eventingv1.EventingBackend {
		return &eventingv1.EventingBackend{
			ObjectMeta: metav1.ObjectMeta{Namespace: "capstan-system", Name: "events", Generation: 2}, Spec: eventingv1.EventingBackendSpec{Type: "sqs"}, Status: status,
		}
	}
	ready := func(status metav1.ConditionStatus, reason, message string) []eventingv1.Condition {
		return []eventingv1.Condition{{Type: eventingv1.ReadyCondition, Status: status, Reason: reason, Message: message, LastTransitionTime: *ago(time.Hour)}}
	}
	for name, c := range map[string]struct {
		status eventingv1.EventingBackendStatus
		want   []string
	}{
		"not observed": {eventingv1.EventingBackendStatus{}, []string{
			"EventingBackend capstan-system/events (sqs)", "", "Why: the hub has not observed this EventingBackend, or its last change: check", "that the hub runs and leads.",
		}},
		"ready": {
			eventingv1.EventingBackendStatus{
				ObservedGeneration: 2, Conditions: ready(metav1.ConditionTrue, "Backend ready", ""),
				Delivery: &eventingv1.Delivery{LastSuccess: ago(10 * time.Second)},
			},
			[]string{
				"EventingBackend capstan-system/events (sqs)", "  ready         yes, for 60m", "  waiting       0 events", "  last success  10s ago", "", "Why: it is ready.",
			},
		},
		"all at once": {
			eventingv1.EventingBackendStatus{
				ObservedGeneration: 2, Conditions: ready(metav1.ConditionFalse, "Backend not ready", "the receiver answers 301"),
				Delivery: &eventingv1.Delivery{
					Waiting: 12, InFlight: 3, OldestWaiting: ago(5 * time.Minute), RefusedInARow: 25, DeadLetters: 2, GivenUp: 24,
					LastGivenUp: &eventingv1.GivenUp{Time: *ago(4 * time.Minute), Reason: "http-404"},
				},
				ValidationErrors: []eventingv1.ValidationError{{Config: "role", Error: "must be set"}},
			},
			[]string{
				"EventingBackend capstan-system/events (sqs)",
				"  ready         no, for 60m",
				"  waiting       12 events, and 3 in flight; the oldest for 5m",
				"  last success  never",
				"  refused       25 events since the last one was accepted",
				"  dead letters  2 in the dead-letter queue",
				"  given up      24 events so far, the last one 4m ago: http-404",
				"", "Why: Backend not ready: the receiver answers 301.", "role: must be set",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var out strings.Builder
			g.Expect(explain.WriteBackend(&out, backend(c.status), now)).To(Succeed())
			g.Expect(out.String()).To(Equal(strings.Join(c.want, "\n") + "\n"))
		})
	}
}
