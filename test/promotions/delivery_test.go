package promotions_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/internal/delivery"
)

// measured returns the value of each series of a metric of the hub by its label environment; the count of a histogram.
func (h *hubUnder) measured(g Gomega, name string) map[string]float64 {
	registry := prometheus.NewRegistry()
	for _, c := range h.promotions.Collectors() {
		g.Expect(registry.Register(c)).To(Succeed())
	}
	families, err := registry.Gather()
	g.Expect(err).NotTo(HaveOccurred())
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			environment := ""
			for _, l := range m.GetLabel() {
				environment = l.GetValue()
			}
			if f.GetName() == name {
				values[environment] = m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return values
}

// The metrics of a failure, its rollback and the next revision are the figures of the ledger.
func TestDeliveryMetrics(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := failedInStaging(t)
	type both = map[string]float64
	// Both environments ran 1.0 before their first promotion: that is no change.
	g.Expect(h.measured(g, "capstan_changes_total")).To(Equal(both{"earlier": 1, "last": 0}))
	g.Expect(h.measured(g, "capstan_failed_changes_total")).To(Equal(both{"earlier": 1, "last": 0}))
	g.Expect(h.measured(g, "capstan_restore_seconds")).To(BeEmpty())

	// The rollback is no deployment, and restores staging.
	w.runs("staging", "1.0")
	h.settle(ctx)
	h.live(ctx, 31*time.Minute, 10*time.Minute)
	g.Expect(h.measured(g, "capstan_deployments_total")).To(Equal(both{"earlier": 0, "last": 0}))
	g.Expect(h.measured(g, "capstan_restore_seconds")).To(Equal(both{"earlier": 1}))

	w.runs("dev", "1.2")
	h.settle(ctx)
	w.runs("staging", "1.2")
	h.settle(ctx)
	h.live(ctx, 31*time.Minute, 10*time.Minute)
	w.runs("prod", "1.2")
	h.settle(ctx)
	h.live(ctx, 31*time.Minute, 10*time.Minute)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseSucceeded)
	g.Expect(h.measured(g, "capstan_deployments_total")).To(Equal(both{"earlier": 1, "last": 1}))
	g.Expect(h.measured(g, "capstan_change_lead_seconds")).To(Equal(both{"": 1}))

	// The ledger has the same. Its creation times are those of the API server, which has another clock than this hub: no
	// duration is compared.
	var ledger []*capstanv1.Promotion
	for _, environment := range []string{"staging", "prod"} {
		for _, p := range w.into(ctx, environment) {
			ledger = append(ledger, &p)
		}
	}
	history := delivery.HistoryOf(delivery.PipelineOf(w.pipeline(ctx, "web")), ledger)
	window := delivery.NewWindow(w.clock.Now())
	earlier, last := delivery.NewSum(window, delivery.Retention{}), delivery.NewSum(window, delivery.Retention{})
	earlier.AddEnvironment(&history, "staging")
	last.Add(&history)
	staging, prod := earlier.Figures(), last.Figures()
	g.Expect(h.measured(g, "capstan_changes_total")).To(Equal(both{"earlier": float64(staging.Changes), "last": float64(prod.Changes)}))
	g.Expect(h.measured(g, "capstan_failed_changes_total")).To(Equal(both{"earlier": float64(staging.Failed), "last": float64(prod.Failed)}))
	g.Expect([]int{staging.Changes, staging.Failed, staging.Deployments, prod.Deployments, prod.Lead.Count}).To(Equal([]int{2, 1, 1, 1, 1}))
}
