package pipeline

import "github.com/prometheus/client_golang/prometheus"

// metrics of one Reconciler.
type metrics struct {
	// created counts decisions. The label is a row of the decision table.
	created *prometheus.CounterVec
	// outdated is how many Pipelines are served by a CRD without gates.
	outdated prometheus.Gauge
}

func newMetrics() *metrics {
	return &metrics{created: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "capstan_promotions_created_total",
		Help: "Promotions created, by the reason of the decision.",
	}, []string{"reason"}), outdated: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "capstan_pipelines_crd_outdated",
		Help: "Pipelines that are served by a CRD without gates: nothing is promoted for them until config/crd of this version is applied.",
	})}
}

func (m *metrics) all() []prometheus.Collector { return []prometheus.Collector{m.created, m.outdated} }
