package backend

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
)

// The state of the events is written at once for the first time, then at most each minute, and
// each five minutes while only the last success changes. What several processes have given up is
// added up.
func TestDeliveryIsWrittenRarely(t *testing.T) {
	g := NewWithT(t)
	begin := time.Date(2026, 1, 10, 10, 0, 0, 0, time.UTC)
	at := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: begin.Add(d)} }
	lost := func(n int64, reason string) eventingv1.Delivery {
		return eventingv1.Delivery{LastSuccess: at(0), GivenUp: n, LastGivenUp: &eventingv1.GivenUp{Time: *at(0), Reason: reason}}
	}
	var status *eventingv1.Delivery
	write := func(e *entry, now eventingv1.Delivery, d time.Duration) bool {
		next := e.delivery(status, &now, begin.Add(d), time.Minute)
		wrote := next != status
		status = next
		if wrote {
			e.deliveryWritten = begin.Add(d)
		}
		return wrote
	}
	first := &entry{}
	g.Expect(write(first, eventingv1.Delivery{LastSuccess: at(0)}, 0)).To(BeTrue())
	g.Expect(write(first, eventingv1.Delivery{LastSuccess: at(time.Minute), Waiting: 1}, 59*time.Second)).To(BeFalse())
	g.Expect(write(first, eventingv1.Delivery{LastSuccess: at(time.Minute), Waiting: 1}, time.Minute)).To(BeTrue())
	g.Expect(write(first, eventingv1.Delivery{LastSuccess: at(2 * time.Minute), Waiting: 1}, 5*time.Minute)).To(BeFalse(), "only the last success has changed")
	g.Expect(write(first, eventingv1.Delivery{LastSuccess: at(2 * time.Minute), Waiting: 1}, 6*time.Minute)).To(BeTrue())
	g.Expect(write(first, lost(2, "http-400"), 10*time.Minute)).To(BeTrue())
	g.Expect(*status.LastSuccess).To(Equal(*at(2 * time.Minute)), "the later one stays")
	g.Expect(write(first, lost(3, "http-422"), 11*time.Minute)).To(BeTrue())
	g.Expect(status.GivenUp).To(BeEquivalentTo(3))
	// The status has the count, but the answer to its write was lost.
	again := first.delivery(status, &eventingv1.Delivery{GivenUp: 3, Waiting: 9}, begin.Add(12*time.Minute), time.Minute)
	g.Expect(again.GivenUp).To(BeEquivalentTo(3))

	second := &entry{}
	g.Expect(write(second, eventingv1.Delivery{}, 13*time.Minute)).To(BeFalse(), "the first one may just have written it")
	late := lost(1, "full")
	late.LastGivenUp.Time = *at(13 * time.Minute)
	g.Expect(write(second, late, 14*time.Minute)).To(BeTrue())
	g.Expect(*status).To(Equal(eventingv1.Delivery{LastSuccess: at(2 * time.Minute), GivenUp: 4, LastGivenUp: late.LastGivenUp}))
	g.Expect(losses(status)).To(Equal("4 events were given up so far, the last one at 2026-01-10T10:13:00Z: full"))
	// With another queue, it counts anew.
	g.Expect(write(second, eventingv1.Delivery{Waiting: 1}, 15*time.Minute)).To(BeTrue())
	g.Expect(status.GivenUp).To(BeEquivalentTo(4))
	g.Expect(write(second, lost(2, "full"), 16*time.Minute)).To(BeTrue())
	g.Expect(status.GivenUp).To(BeEquivalentTo(6))

	next := second.delivery(status, nil, begin.Add(time.Hour), time.Minute)
	g.Expect(*next).To(Equal(eventingv1.Delivery{LastSuccess: at(2 * time.Minute), GivenUp: 6, LastGivenUp: status.LastGivenUp}), "nothing else is known without a connection")
	g.Expect(losses(&eventingv1.Delivery{})).To(BeEmpty())
}

// A test event is written at once, because its sender waits; once, and the next leader keeps it.
func TestATestIsWrittenAtOnce(t *testing.T) {
	g := NewWithT(t)
	now := time.Date(2026, 1, 10, 10, 0, 0, 0, time.UTC)
	with := func(id string) *eventingv1.Delivery {
		return &eventingv1.Delivery{Waiting: 1, LastTest: &eventingv1.ReceivedTest{ID: id, Received: metav1.NewTime(now)}}
	}
	status := &eventingv1.Delivery{}
	e := &entry{deliveryWritten: now, counting: true}
	g.Expect(e.delivery(status, &eventingv1.Delivery{Waiting: 1}, now, time.Minute)).To(BeIdenticalTo(status))
	status = e.delivery(status, with("a"), now.Add(time.Second), time.Minute)
	g.Expect(status.LastTest).To(HaveField("ID", "a"))
	e.deliveryWritten = now.Add(time.Second)
	g.Expect(e.delivery(status, with("a"), now.Add(2*time.Second), time.Minute)).To(BeIdenticalTo(status))
	status = e.delivery(status, with("b"), now.Add(2*time.Second), time.Minute)
	g.Expect(status.LastTest).To(HaveField("ID", "b"))

	next := &entry{deliveryWritten: now}
	status = next.delivery(status, &eventingv1.Delivery{Waiting: 5}, now.Add(time.Hour), time.Minute)
	g.Expect(status.Waiting).To(BeEquivalentTo(5))
	g.Expect(status.LastTest).To(HaveField("ID", "b"))
}
