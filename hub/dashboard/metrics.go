package dashboard

import "github.com/prometheus/client_golang/prometheus"

// metrics of one Server.
type metrics struct {
	requests       *prometheus.CounterVec
	requestSeconds *prometheus.HistogramVec
	streams        prometheus.Gauge
	resyncs        prometheus.Counter
	blocksRendered prometheus.Counter
	signIns        *prometheus.CounterVec
	actions        *prometheus.CounterVec
}

func newMetrics() *metrics {
	return &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "capstan_dashboard_requests_total",
			Help: "Requests to the dashboard, by route and status code.",
		}, []string{"route", "code"}),
		requestSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "capstan_dashboard_request_seconds",
			Help:    "Duration of requests to the dashboard in seconds, without streams, by route.",
			Buckets: []float64{0.001, 0.005, 0.025, 0.1, 0.5, 1, 5, 10},
		}, []string{"route"}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "capstan_dashboard_streams",
			Help: "Open streams of page changes.",
		}),
		resyncs: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "capstan_dashboard_resyncs_total",
			Help: "Viewers that had to fetch their page again, because no kept changes lead from their version to the current one.",
		}),
		blocksRendered: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "capstan_dashboard_blocks_rendered_total",
			Help: "Rendered entries of pages; each is rendered once for all of its viewers.",
		}),
		signIns: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "capstan_dashboard_sign_ins_total",
			Help: "Attempts to sign in to the dashboard, by method (token, oidc) and result (ok, refused, limited, error); alert on many refused.",
		}, []string{"method", "result"}),
		actions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "capstan_dashboard_actions_total",
			Help: "Actions of users on the dashboard, by action (approve, reject, retry, override, suspend, resume, promote, rollback) and result (ok, refused, error).",
		}, []string{"action", "result"}),
	}
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.requestSeconds, m.streams, m.resyncs, m.blocksRendered, m.signIns, m.actions}
}
