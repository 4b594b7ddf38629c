package pipeline

import "github.com/prometheus/client_golang/prometheus"

// metrics of one Reconciler.
type metrics struct {
	// created counts decisions. The label is a row of the decision table.
	created *prometheus.CounterVec
}

func newMetrics() *metrics {
	return &metrics{created: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "capstan_promotions_created_total",
		Help: "Promotions created, by the reason of the decision.",
	}, []string{"reason"})}
}

func (m *metrics) all() []prometheus.Collector { return []prometheus.Collector{m.created} }
