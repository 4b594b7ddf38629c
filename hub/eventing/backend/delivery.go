package backend

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/publisher"
)

const (
	// deliveryEvery is the least time between two writes of status.delivery.
	deliveryEvery = time.Minute
	// steadyEvery is the least time between two of them while only the last success changes: a
	// queue is read all the time.
	steadyEvery = 5 * time.Minute
)

// published returns the state of the events of a backend that is published to.
func published(s publisher.Status) eventingv1.Delivery {
	d := eventingv1.Delivery{
		Waiting: int64(s.Queued), OldestWaiting: timeOf(s.Oldest), LastSuccess: timeOf(s.LastPublish),
		RefusedInARow: int64(s.Refusals), GivenUp: int64(s.Dropped),
	}
	if s.Dropped > 0 {
		d.LastGivenUp = &eventingv1.GivenUp{Time: *timeOf(s.LastDrop.At), Reason: s.LastDrop.Reason}
	}
	return d
}

// timeOf returns a time for a status; nil for none.
func timeOf(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t.Truncate(time.Second)}
}

// delivery returns the state of the events for the status, and the number of events that this
// process has given up. now is nil when there is no state. What another process has counted stays
// in the total, and the time of its last success if this one has none yet. The state in the status
// is returned while it must not be written again.
func (e *entry) delivery(before *eventingv1.Delivery, now *eventingv1.Delivery, at time.Time) (*eventingv1.Delivery, int64) {
	if now == nil {
		if before != nil {
			before = &eventingv1.Delivery{LastSuccess: before.LastSuccess, GivenUp: before.GivenUp, LastGivenUp: before.LastGivenUp}
		}
		return before, e.givenUp
	}
	if now.GivenUp < e.givenUp {
		e.givenUp = 0 // It counts anew, with another configuration.
	}
	next := *now
	next.GivenUp -= e.givenUp
	if before != nil {
		next.GivenUp += before.GivenUp
		if next.LastGivenUp == nil {
			next.LastGivenUp = before.LastGivenUp
		}
		if next.LastSuccess == nil {
			next.LastSuccess = before.LastSuccess
		}
	}
	switch {
	case before == nil:
		return &next, now.GivenUp
	case e.deliveryWritten.IsZero(): // Another leader may just have written it.
		e.deliveryWritten = at
	}
	steady := next
	steady.LastSuccess = before.LastSuccess
	wait := deliveryEvery
	if equality.Semantic.DeepEqual(steady, *before) {
		wait = steadyEvery
	}
	if at.Sub(e.deliveryWritten) < wait {
		return before, e.givenUp
	}
	return &next, now.GivenUp
}

// losses describes the events that were given up; empty when there are none.
func losses(d *eventingv1.Delivery) string {
	if d == nil || d.GivenUp == 0 || d.LastGivenUp == nil {
		return ""
	}
	return fmt.Sprintf("%d events were given up so far, the last one at %s: %s", d.GivenUp, d.LastGivenUp.Time.UTC().Format(time.RFC3339), d.LastGivenUp.Reason)
}
