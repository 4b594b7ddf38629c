package approval

import "github.com/prometheus/client_golang/prometheus"

// metrics of one Server.
type metrics struct {
	calls       *prometheus.CounterVec
	refusals    *prometheus.CounterVec
	previousKey prometheus.Counter
	callSeconds *prometheus.HistogramVec
}

func newMetrics() *metrics {
	return &metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "capstan_hook_calls_total",
			Help: "Calls of the promotion hook, by endpoint (promotion, approval, none) and status code.",
		}, []string{"endpoint", "code"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "capstan_hook_refusals_total",
			Help: "Calls of the promotion hook that were refused, by reason; alert on Signature and Replayed.",
		}, []string{"reason"}),
		previousKey: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "capstan_hook_previous_key_calls_total",
			Help: "Calls of the promotion hook that are signed with " + PreviousSecretKey + "; remove that key when this no longer rises.",
		}),
		callSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "capstan_hook_call_seconds",
			Help:    "Duration of a call of the promotion hook, including the wait for its result, by endpoint.",
			Buckets: []float64{0.001, 0.005, 0.025, 0.1, 0.5, 1, 2, 5, 10, 20},
		}, []string{"endpoint"}),
	}
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.calls, m.refusals, m.previousKey, m.callSeconds}
}
