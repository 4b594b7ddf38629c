package dashboard

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "capstan_dashboard_requests_total",
		Help: "Requests to the dashboard, by route and status code.",
	}, []string{"route", "code"})

	requestSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "capstan_dashboard_request_seconds",
		Help:    "Time that a request to the dashboard took, streams excepted, by route.",
		Buckets: []float64{0.001, 0.005, 0.025, 0.1, 0.5, 1, 5, 10},
	}, []string{"route"})

	streams = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "capstan_dashboard_streams",
		Help: "Streams of changes that are open.",
	})

	resyncs = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "capstan_dashboard_resyncs_total",
		Help: "Viewers that were told to fetch their page again, since nothing led from what they had to what is.",
	})

	blocksRendered = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "capstan_dashboard_blocks_rendered_total",
		Help: "Entries of pages that were rendered, each once for all of its viewers.",
	})

	signInsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "capstan_dashboard_sign_ins_total",
		Help: "Tries to sign in to the dashboard, by result (ok, refused, limited, error); alert on many refused.",
	}, []string{"result"})

	approvals = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "capstan_dashboard_approvals_total",
		Help: "Approvals that were given on the dashboard, by result (ok, refused, error).",
	}, []string{"result"})
)

func init() {
	metrics.Registry.MustRegister(requests, requestSeconds, streams, resyncs, blocksRendered, signInsTotal, approvals)
}
