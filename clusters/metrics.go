package clusters

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/capstan-hub/capstan/clusters/kubeconfig"
	"github.com/capstan-hub/capstan/clusters/transport"
)

// managementLabel is the label value of the management cluster in metrics. Names of other
// clusters contain slashes.
const managementLabel = "management"

var (
	stateMetric = prometheus.NewDesc("capstan_cluster_state",
		"State of the connection to a cluster. Only the present state has a series; its value is 1.", []string{"cluster", "state"}, nil)
	contactMetric = prometheus.NewDesc("capstan_cluster_last_contact_timestamp_seconds",
		"Time of the last byte received from the API server of a cluster.", []string{"cluster"}, nil)
	expiryMetric = prometheus.NewDesc("capstan_cluster_credential_expiry_timestamp_seconds",
		"Time at which the credentials for a cluster expire, if they contain that time.", []string{"cluster"}, nil)
)

// metrics is the collector of one Manager. The series of clusters are made from snapshots
// in Collect, so a removed cluster has no series.
type metrics struct {
	snapshots func() []Snapshot
	rotations *prometheus.CounterVec
	refusals  *prometheus.CounterVec
	probes    *prometheus.HistogramVec
}

func newMetrics(snapshots func() []Snapshot) *metrics {
	return &metrics{
		snapshots: snapshots,
		rotations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "capstan_cluster_rotations_total",
			Help: "Replaced credentials or endpoints of clusters, by kind of change.",
		}, []string{"kind"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "capstan_cluster_refused_requests_total",
			Help: "Requests that the hub did not send to a cluster because they are not allowed, by reason.",
		}, []string{"reason"}),
		probes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "capstan_cluster_probe_duration_seconds",
			Help:    "Duration of probes in seconds, by result.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}, []string{"result"}),
	}
}

func (m *metrics) rotated(change kubeconfig.Change) {
	m.rotations.WithLabelValues(change.String()).Inc()
}

func (m *metrics) refused(reason transport.RefusedReason) {
	m.refusals.WithLabelValues(string(reason)).Inc()
}

func (m *metrics) probed(result probeResult, took time.Duration) {
	m.probes.WithLabelValues(result.String()).Observe(took.Seconds())
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	to <- stateMetric
	to <- contactMetric
	to <- expiryMetric
	m.rotations.Describe(to)
	m.refusals.Describe(to)
	m.probes.Describe(to)
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	for _, s := range m.snapshots() {
		name := string(s.Name)
		if s.Name == LocalName {
			name = managementLabel
		}
		to <- prometheus.MustNewConstMetric(stateMetric, prometheus.GaugeValue, 1, name, string(s.State))
		if !s.LastContact.IsZero() {
			to <- prometheus.MustNewConstMetric(contactMetric, prometheus.GaugeValue, float64(s.LastContact.UnixNano())/float64(time.Second), name)
		}
		if !s.Credential.Expires.IsZero() {
			to <- prometheus.MustNewConstMetric(expiryMetric, prometheus.GaugeValue, float64(s.Credential.Expires.Unix()), name)
		}
	}
	m.rotations.Collect(to)
	m.refusals.Collect(to)
	m.probes.Collect(to)
}

// register registers the collector; undo removes it. If the registry has the metrics of
// another Manager already, it keeps those.
func (m *metrics) register(with prometheus.Registerer) (undo func(), err error) {
	if with == nil {
		return func() {}, nil
	}
	err = with.Register(m)
	if errors.As(err, &prometheus.AlreadyRegisteredError{}) {
		return func() {}, nil
	}
	return func() { with.Unregister(m) }, err
}
