package pipeline

import "github.com/prometheus/client_golang/prometheus"

// metrics of one Reconciler.
type metrics struct {
	// created counts decisions. The label is a row of the decision table.
	created *prometheus.CounterVec
	// outdated is how many Pipelines are served by a CRD without gates.
	outdated prometheus.Gauge
	// dryRun is 1 in dry run, and due is how many promotions it would create.
	dryRun prometheus.Gauge
	due    prometheus.GaugeFunc
}

func newMetrics(dryRun bool, due func() float64) *metrics {
	m := &metrics{created: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "capstan_promotions_created_total",
		Help: "Promotions created, by the reason of the decision.",
	}, []string{"reason"}), outdated: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "capstan_pipelines_crd_outdated",
		Help: "Pipelines that are served by a CRD without gates: nothing is promoted for them until config/crd of this version is applied.",
	}), dryRun: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "capstan_dry_run",
		Help: "1 if the hub is in dry run: it promotes nothing. 0 otherwise.",
	}), due: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "capstan_dry_run_promotions",
		Help: "Promotions that the hub would create now if it were not in dry run.",
	}, due)}
	if dryRun {
		m.dryRun.Set(1)
	}
	return m
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.created, m.outdated, m.dryRun, m.due}
}
