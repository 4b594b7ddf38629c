package outbox

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/event"
	"github.com/capstan-hub/capstan/internal/promotions"
)

// A promotion that ended before every backend was created needs no entry: the hub has many of
// them. When it is retried, only the events of the retry are published.
func TestAPastPromotionNeedsNoEntry(t *testing.T) {
	g := NewWithT(t)
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	to := &published{}
	b := New(Options{Hub: event.Hub{Name: "hub"}, Clock: clocktesting.NewFakeClock(now)})
	b.PublishTo(to)
	at := func(before time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(-before)} }
	ended := func(name string, before time.Duration) *capstanv1.Promotion {
		return &capstanv1.Promotion{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "uid-of-a-promotion", CreationTimestamp: *at(before + time.Hour)},
			Status: capstanv1.PromotionStatus{
				Phase: capstanv1.PhaseSucceeded, StartTime: at(before + time.Minute), FinishTime: at(before), Attempt: &capstanv1.Attempt{Number: 1},
			},
		}
	}
	b.observe(ended("recent", time.Minute))
	past := ended("past", time.Hour)
	b.observe(past)
	g.Expect(b.lockedState.entries).To(HaveLen(1), "there is no backend, so only a recent end may be needed by a new one")

	b.observe(&eventingv1.EventingBackend{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "bus", UID: "bus", CreationTimestamp: *at(24 * time.Hour)}})
	b.observe(ended("wanted", 2*time.Hour))
	b.observe(ended("from before the backend", 48*time.Hour))
	b.observe(ended("beyond the horizon", DefaultHorizon+time.Hour))
	g.Expect(b.lockedState.entries).To(HaveLen(3), "the recent and the wanted one, and the backend")

	old := ended("old", 48*time.Hour)
	b.observe(old)
	strip := promotions.NewStripper(clocktesting.NewFakePassiveClock(now)).Strip
	b.observe(strip(old.DeepCopy()))
	g.Expect(b.lockedState.entries).To(HaveLen(3), "as the cache has it, too")
	needed := ended("needed", 2*time.Hour)
	b.observe(strip(needed.DeepCopy()))
	g.Expect(b.lockedState.entries).To(HaveLen(4))
	g.Expect(b.lockedState.entries[keyOf(needed)].object).To(BeAssignableToTypeOf(needed), "an entry has it whole")
	b.lockedState.leading = true
	retried := old.DeepCopy()
	retried.Generation, retried.Spec.Retry, retried.Status = 2, 1, capstanv1.PromotionStatus{
		Retry: 1, Phase: capstanv1.PhasePromoting, StartTime: at(0), Attempt: &capstanv1.Attempt{Number: 2},
	}
	b.recall(strip(old), retried)
	b.observe(retried)
	g.Expect(to.kinds).To(HaveLen(1), "the start of the retry, and nothing of the past run")
}
