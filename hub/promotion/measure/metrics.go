package measure

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of all endpoints.
type metrics struct {
	queries *prometheus.CounterVec
	seconds prometheus.Histogram
}

// results are the values of the label result.
var results = map[Verdict]string{HasValue: "value", NoData: "nodata", Error: "error"}

func newMetrics() *metrics {
	m := &metrics{
		queries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "capstan_check_queries_total", Help: "Queries to the endpoints of --" + EndpointFlag + ", by result (value, nodata, error); results that are shared count once.",
		}, []string{"result"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "capstan_check_query_seconds", Help: "Duration of a query to an endpoint of --" + EndpointFlag + ".",
			Buckets: prometheus.ExponentialBuckets(0.005, 3, 8),
		}),
	}
	for _, result := range results {
		m.queries.WithLabelValues(result)
	}
	return m
}

func (m *metrics) all() []prometheus.Collector { return []prometheus.Collector{m.queries, m.seconds} }

func (m *metrics) count(verdict Verdict, elapsed time.Duration) {
	m.queries.WithLabelValues(results[verdict]).Inc()
	m.seconds.Observe(elapsed.Seconds())
}
