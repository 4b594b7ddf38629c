package clusters

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/capstan-hub/capstan/clusters/kubeconfig"
	"github.com/capstan-hub/capstan/clusters/transport"
)

// managementLabel stands for the management cluster in metrics; names of others
// have slashes.
const managementLabel = "management"

var (
	stateMetric = prometheus.NewDesc("capstan_cluster_state",
		"The state of the connection to a cluster: 1 for the present one, which is the only one given.", []string{"cluster", "state"}, nil)
	contactMetric = prometheus.NewDesc("capstan_cluster_last_contact_timestamp_seconds",
		"When the cluster's API server was last heard.", []string{"cluster"}, nil)
	expiryMetric = prometheus.NewDesc("capstan_cluster_credential_expiry_timestamp_seconds",
		"When the credentials for the cluster end, where they tell.", []string{"cluster"}, nil)
)

// metrics is the collector of one Manager. Series by cluster are made of snapshots
// when they are asked for, so none can outlive its cluster.
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
			Help: "Credentials or endpoints that were replaced, by what changed.",
		}, []string{"kind"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "capstan_cluster_refused_requests_total",
			Help: "Requests that the hub refused to send to a cluster, by reason.",
		}, []string{"reason"}),
		probes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "capstan_cluster_probe_duration_seconds",
			Help:    "How long probes took, by result.",
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
		if !s.CredentialExpiry.IsZero() {
			to <- prometheus.MustNewConstMetric(expiryMetric, prometheus.GaugeValue, float64(s.CredentialExpiry.Unix()), name)
		}
	}
	m.rotations.Collect(to)
	m.refusals.Collect(to)
	m.probes.Collect(to)
}

// register puts the collector into a registry until undo is called. Where a
// registry has the metrics of another Manager already, those stay.
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
