package pipeline

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// promotionsCreated counts decisions. The label is a row of the decision table.
var promotionsCreated = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "capstan_promotions_created_total",
	Help: "Promotions written, by the reason of the decision.",
}, []string{"reason"})

func init() { metrics.Registry.MustRegister(promotionsCreated) }
