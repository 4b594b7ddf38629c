package dashboard

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

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

// The states of connections and the deliveries of backends are recorded while no browser follows a page, and the pages show
// them.
func TestHistoryWithoutViewers(t *testing.T) {
	w := newWorld(t, nil)
	config := []eventingv1.ConfigEntry{{"role": {Raw: []byte(`"source"`)}}}
	backend := func(name string) *eventingv1.EventingBackend {
		b := &eventingv1.EventingBackend{ObjectMeta: metav1.ObjectMeta{Namespace: w.apps, Name: name}, Spec: eventingv1.EventingBackendSpec{Type: "sqs", Config: config}}
		w.Expect(w.c.Create(t.Context(), b)).To(Succeed())
		return b
	}
	backend("unread")
	orders := backend("orders")
	deliver := func(waiting, refused int64) {
		orders.Status = eventingv1.EventingBackendStatus{
			EventingReady: ptr.To(true), ObservedGeneration: orders.Generation, Delivery: &eventingv1.Delivery{Waiting: waiting, RefusedInARow: refused},
		}
		w.Expect(w.c.Status().Update(t.Context(), orders)).To(Succeed())
		key := view.BackendKey{Namespace: w.apps, Name: orders.Name}
		recorded := func() string {
			shown := &view.Facts{Now: w.clock.Now(), BackendPast: w.server.source.history.backends(), Backends: []eventingv1.EventingBackend{*orders}}
			if _, known := shown.BackendPast[key]; !known {
				return ""
			}
			for _, block := range view.Backends(shown, view.Everything(), view.Query{}).Blocks {
				if b, ok := block.Data.(view.Backend); ok {
					return b.Trend.Text
				}
			}
			return ""
		}
		w.Eventually(recorded, patience).Should(ContainSubstring("%d failed", refused))
	}
	deliver(9, 0)
	deliver(2, 3)
	staging := w.cluster("staging")
	staging.Status.State = capstanv1.ConnectionUnreachable
	w.Expect(w.c.Status().Update(t.Context(), staging)).To(Succeed())
	is := func() []view.Tone {
		return w.server.source.history.past()[view.Cluster{Kind: "Cluster", Namespace: w.fleet, Name: "staging"}].Tones
	}
	w.Eventually(is, patience).Should(ContainElement(view.Bad))

	w.clock.step(factsFor)
	b := w.browser()
	w.Expect(b.get("/backends").Body).To(And(
		ContainSubstring("at most 9 events waited, and 3 failed"), ContainSubstring("Refuses events"), ContainSubstring("3 in a row"), ContainSubstring("Not observed yet")))
	w.Expect(b.get("/instances").Body).To(And(ContainSubstring(w.apps+"/unread"), ContainSubstring(w.apps+"/orders")))
	w.Expect(w.c.Delete(t.Context(), orders)).To(Succeed())
	w.Eventually(w.server.source.history.backends, patience).Should(BeEmpty())
}
