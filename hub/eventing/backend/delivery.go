package backend

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/publisher"
)

// DefaultDelivery is the least time between two writes of status.delivery. While only the last
// success changes, it is steadyFactor times as long: a queue is read all the time.
const (
	DefaultDelivery = time.Minute
	steadyFactor    = 5
)

// published returns the state of the events of a backend that is published to.
func published(s publisher.Status) eventingv1.Delivery {
	d := eventingv1.Delivery{
		Waiting: int64(s.Queued), OldestWaiting: eventingv1.DeliveryTime(s.Oldest), LastSuccess: eventingv1.DeliveryTime(s.LastPublish),
		RefusedInARow: int64(s.Refusals), GivenUp: int64(s.Dropped),
	}
	if s.Dropped > 0 {
		d.LastGivenUp = &eventingv1.GivenUp{Time: *eventingv1.DeliveryTime(s.LastDrop.At), Reason: s.LastDrop.Reason}
	}
	return d
}

// delivery returns the state of the events for the status; now is nil when there is none. What other
// processes have given up, and what the status says of the last success and of the last event that
// was given up, stays unless this process knows of a later one. The state in the status is returned
// while it must not be written again. A test is written at once.
func (e *entry) delivery(before, now *eventingv1.Delivery, at time.Time, every time.Duration) *eventingv1.Delivery {
	first := before == nil
	switch {
	case first && now == nil:
		return nil
	case first:
		before = &eventingv1.Delivery{}
	}
	if !e.counting {
		e.counting, e.othersGaveUp = true, before.GivenUp
	}
	if now == nil {
		now = &eventingv1.Delivery{GivenUp: e.gaveUp}
	}
	if now.GivenUp < e.gaveUp { // It counts anew, because the queue of the publisher is another one.
		e.othersGaveUp += e.gaveUp
	}
	e.gaveUp = now.GivenUp
	next := *now
	next.GivenUp += e.othersGaveUp
	next.LastSuccess = later(before.LastSuccess, now.LastSuccess)
	if last := before.LastGivenUp; last != nil && (next.LastGivenUp == nil || last.Time.After(next.LastGivenUp.Time.Time)) {
		next.LastGivenUp = last
	}
	if next.LastTest == nil {
		next.LastTest = before.LastTest
	}
	if first || next.LastTest != nil && (before.LastTest == nil || before.LastTest.ID != next.LastTest.ID) {
		return &next // The sender of a test waits for it.
	}
	if e.deliveryWritten.IsZero() { // Another leader may just have written it.
		e.deliveryWritten = at
	}
	steady := next
	steady.LastSuccess = before.LastSuccess
	if equality.Semantic.DeepEqual(steady, *before) {
		every *= steadyFactor
	}
	if at.Sub(e.deliveryWritten) < every {
		return before
	}
	return &next
}

// later returns the later of two times; nil is earlier than all.
func later(a, b *metav1.Time) *metav1.Time {
	if a == nil || b != nil && b.After(a.Time) {
		return b
	}
	return a
}

// losses describes the events that were given up; empty when there are none.
func losses(d *eventingv1.Delivery) string {
	if d == nil || d.GivenUp == 0 || d.LastGivenUp == nil {
		return ""
	}
	return fmt.Sprintf("%d events were given up so far, the last one at %s: %s", d.GivenUp, d.LastGivenUp.Time.UTC().Format(time.RFC3339), d.LastGivenUp.Reason)
}
