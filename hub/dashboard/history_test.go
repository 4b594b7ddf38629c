package dashboard

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
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
