package promotion

import (
	"context"
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/internal/delivery"
	"github.com/capstan-hub/capstan/internal/promotions"
)

// Values of the label environment of the delivery metrics: the last environment of a Pipeline, usually production, and
// those before it.
const (
	lastEnvironment    = "last"
	earlierEnvironment = "earlier"
)

// deliveryMetrics are the delivery figures (DORA), by the rules of internal/delivery.
type deliveryMetrics struct {
	deployments, changes, failedChanges *prometheus.CounterVec
	restore                             *prometheus.HistogramVec
	lead, approvalWait                  prometheus.Histogram
}

func newDeliveryMetrics() deliveryMetrics {
	const minute, hour, day = 60, 60 * 60, 24 * 60 * 60
	buckets := []float64{minute, 5 * minute, 15 * minute, 30 * minute, hour, 2 * hour, 4 * hour, 8 * hour, day, 2 * day, 7 * day, 14 * day, 30 * day}
	counter := func(name, help string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"environment"})
		for _, environment := range []string{lastEnvironment, earlierEnvironment} { // So that the first one is an increase.
			c.WithLabelValues(environment)
		}
		return c
	}
	return deliveryMetrics{
		deployments: counter("capstan_deployments_total",
			"Deployments: promotions that succeeded after an attempt, without rollbacks; one for all waves of an environment. By environment of the Pipeline (last, earlier)."),
		changes: counter("capstan_changes_total",
			"Changes that ended: deployments, and promotions that failed, without rollbacks; one for all waves of an environment. By environment of the Pipeline (last, earlier)."),
		failedChanges: counter("capstan_failed_changes_total",
			"Changes that failed or were rolled back. By environment of the Pipeline (last, earlier)."),
		restore: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "capstan_restore_seconds", Buckets: buckets,
			Help: "Time from a failed promotion, or the creation of a rollback, until a promotion into the environment succeeded. By environment of the Pipeline (last, earlier).",
		}, []string{"environment"}),
		lead: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "capstan_change_lead_seconds", Buckets: buckets,
			Help: "Lead time for changes: from the agreement of the first environment on a revision until its deployment into the last environment.",
		}),
		approvalWait: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "capstan_approval_wait_seconds", Buckets: buckets,
			Help: "How long a promotion waited for its approval, from its start or from when its gates opened.",
		}),
	}
}

func (m *deliveryMetrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.deployments, m.changes, m.failedChanges, m.restore, m.lead, m.approvalWait}
}

// countDelivery counts what a transition of a promotion changes in the history of its Pipeline. An error is only logged: the
// promotion does not depend on metrics.
func (r *Reconciler) countDelivery(ctx context.Context, before, p *capstanv1.Promotion) {
	begins := before.Status.Phase == "" && p.Spec.RollbackOf != nil // A rollback makes what it replaces a failure.
	if r.Ledger == nil || !begins && !p.Status.Phase.Finished() {
		return
	}
	if err := r.compareHistories(ctx, before, p); err != nil {
		log.FromContext(ctx).Info("the delivery metrics do not have a transition", "phase", p.Status.Phase, "error", err.Error())
	}
}

func (r *Reconciler) compareHistories(ctx context.Context, before, p *capstanv1.Promotion) error {
	pipeline, err := r.pipelineOf(ctx, r.Ledger, p)
	if err != nil {
		return err
	}
	if pipeline == nil {
		return nil // Its environments are not known any more.
	}
	all, err := promotions.OfPipeline(ctx, r.Ledger, types.NamespacedName{Namespace: p.Namespace, Name: p.Spec.Pipeline.Name}, p.Spec.Pipeline.UID)
	if err != nil {
		return fmt.Errorf("reading the ledger: %w", err)
	}
	others := make([]*capstanv1.Promotion, 0, len(all)+1)
	for i := range all {
		if all[i].UID != p.UID {
			others = append(others, &all[i])
		}
	}
	was := others
	if before.Status.Phase != "" {
		was = append(slices.Clip(others), before)
	}
	of := delivery.PipelineOf(pipeline)
	r.metrics.delivery.count(delivery.HistoryOf(of, was), delivery.HistoryOf(of, append(slices.Clip(others), p)), p)
	return nil
}

// count counts the difference of two histories, of which the second one has a transition of p more.
func (m *deliveryMetrics) count(was, is delivery.History, p *capstanv1.Promotion) {
	for _, environment := range []string{lastEnvironment, earlierEnvironment} {
		a, b := tallyOf(was, environment), tallyOf(is, environment)
		m.deployments.WithLabelValues(environment).Add(more(a.deployments, b.deployments))
		m.changes.WithLabelValues(environment).Add(more(a.changes, b.changes))
		m.failedChanges.WithLabelValues(environment).Add(more(a.failed, b.failed))
	}
	if !p.Status.Phase.Finished() {
		return
	}
	for _, c := range is.Changes {
		if c.By == p.UID && c.Lead >= 0 {
			m.lead.Observe(c.Lead.Seconds())
		}
	}
	for _, restored := range is.Restores {
		if restored.By == p.UID {
			m.restore.WithLabelValues(placed(restored.Last)).Observe(restored.Took.Seconds())
		}
	}
	for _, w := range is.Waits {
		if w.By == p.UID && w.Approval >= 0 {
			m.approvalWait.Observe(w.Approval.Seconds())
		}
	}
}

// tally are the numbers of changes in the last environment, or in the earlier ones.
type tally struct {
	deployments, changes, failed int
}

func tallyOf(h delivery.History, environment string) tally {
	var t tally
	for _, c := range h.Changes {
		if placed(c.Last) != environment {
			continue
		}
		t.changes++
		if c.Deployed {
			t.deployments++
		}
		if c.Failed {
			t.failed++
		}
	}
	return t
}

func placed(last bool) string {
	if last {
		return lastEnvironment
	}
	return earlierEnvironment
}

// more is by how much a number has grown. It shrinks when a failed promotion succeeds by another try: a counter keeps the failure.
func more(was, is int) float64 { return float64(max(0, is-was)) }
