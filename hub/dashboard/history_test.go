package dashboard

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/dashboard/view"
)

// The history has each state of a connection, until its ClusterConnection is deleted.
func TestHistory(t *testing.T) {
	g := NewWithT(t)
	clock := clocktesting.NewFakeClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	h := newHistory(clock)
	c := &capstanv1.ClusterConnection{}
	c.Namespace, c.Spec.ClusterRef = "fleet", pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Name: "dev"}
	is := func(state capstanv1.ConnectionState) {
		c.Status.State = state
		h.observe(c)
	}
	is(capstanv1.ConnectionReady)
	dev := view.Cluster{Kind: "Cluster", Namespace: "fleet", Name: "dev"}
	first := h.past()
	g.Expect(first[dev].Tones).To(Equal([]view.Tone{view.Good}))
	clock.Step(2 * view.PastSlot)
	is(capstanv1.ConnectionUnreachable)
	is(capstanv1.ConnectionReady)
	g.Expect(h.past()[dev].Tones).To(Equal([]view.Tone{view.Good, view.Good, view.Bad}))
	g.Expect(first[dev].Tones).To(HaveLen(1), "what was given away does not change")
	h.forget(c)
	g.Expect(h.past()).To(BeEmpty())
}

// The trend of a backend has what waited and what failed in each five minutes, until the backend is deleted.
func TestHistoryOfBackends(t *testing.T) {
	g := NewWithT(t)
	clock := clocktesting.NewFakeClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	h := newHistory(clock)
	b := &eventingv1.EventingBackend{}
	b.Namespace, b.Name = "apps", "orders"
	h.change(b, false)
	g.Expect(h.backends()).To(BeEmpty(), "it has no delivery yet")
	deliver := func(waiting, refused, givenUp int64) {
		b.Status.Delivery = &eventingv1.Delivery{Waiting: waiting, RefusedInARow: refused, GivenUp: givenUp}
		h.change(b, false)
	}
	deliver(2, 5, 1)
	clock.Step(5 * time.Minute)
	deliver(10, 8, 1)
	deliver(4, 0, 3)
	clock.Step(10 * time.Minute)
	facts := &view.Facts{Now: clock.Now(), BackendPast: h.backends(), Backends: []eventingv1.EventingBackend{*b}}
	page := view.Backends(facts, view.Everything(), view.Query{})
	var trend view.Trend
	for _, block := range page.Blocks {
		if shown, ok := block.Data.(view.Backend); ok {
			trend = shown.Trend
		}
	}
	g.Expect(trend).To(Equal(view.Trend{Failed: 5, Text: "In the last 20 minutes at most 10 events waited, and 5 failed", Bars: []view.TrendBar{
		{X: 8, Y: 8, Height: 2}, {X: 9, Y: 0, Height: 10, Failed: true}, {X: 10, Y: 6, Height: 4}, {X: 11, Y: 6, Height: 4},
	}}))
	clock.Step(24 * time.Hour)
	facts.Now = clock.Now()
	g.Expect(view.Backends(facts, view.Everything(), view.Query{}).Blocks[1].Data.(view.Backend).Trend.Bars).To(HaveLen(12))
	h.change(b, true)
	g.Expect(h.backends()).To(BeEmpty())
}
