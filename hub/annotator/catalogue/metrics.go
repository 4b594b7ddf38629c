package catalogue

import (
	"github.com/prometheus/client_golang/prometheus"
)

var (
	ageMetric = prometheus.NewDesc("capstan_annotator_catalogue_age_seconds",
		"Time since EC2 last listed the instance types of a region in use; up to a day is normal, alert above two days.", []string{"region"}, nil)
	typesMetric = prometheus.NewDesc("capstan_annotator_catalogue_instance_types",
		"Instance types of a region whose capacity is known.", []string{"region"}, nil)
	unknownMetric = prometheus.NewDesc("capstan_annotator_catalogue_unknown_instance_types",
		"Requested instance types that EC2 does not have in the region.", []string{"region"}, nil)
	failingMetric = prometheus.NewDesc("capstan_annotator_catalogue_failing_seconds",
		"Time since all calls to EC2 for the instance types of a region in use fail; 0 when the last one succeeded, or no call is needed.", []string{"region"}, nil)
	failuresMetric = prometheus.NewDesc("capstan_annotator_catalogue_failures_total",
		"Failed calls to EC2 for the instance types of a region in use, by result.", []string{"region", "result"}, nil)
)

// metrics is the collector of one catalogue. Collect creates the series by region, so none can
// outlive its region. Failures are counted in the region's own state, because users name regions:
// a counter of the registry would keep the name of each.
type metrics struct {
	catalogue *EC2
	calls     *prometheus.CounterVec
}

func newMetrics(catalogue *EC2) *metrics {
	return &metrics{
		catalogue: catalogue,
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "capstan_annotator_ec2_calls_total",
			Help: "Calls to DescribeInstanceTypes (a listing takes one call per 100 types), by operation (list, lookup) and result.",
		}, []string{"operation", "result"}),
	}
}

// results maps classes to values of the label result.
var results = map[error]string{
	ErrRegionUnknown:    "region_unknown",
	ErrRegionNotOptedIn: "region_not_opted_in",
	ErrAccessDenied:     "access_denied",
	ErrCredentials:      "credentials",
	ErrThrottled:        "throttled",
	ErrUnavailable:      "unavailable",
}

// called counts a call.
func (m *metrics) called(operation string, failure *Error) {
	result := "ok"
	if failure != nil {
		result = results[failure.Class]
	}
	m.calls.WithLabelValues(operation, result).Inc()
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	to <- ageMetric
	to <- typesMetric
	to <- unknownMetric
	to <- failingMetric
	to <- failuresMetric
	m.calls.Describe(to)
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	now := m.catalogue.clock.Now()
	for region, s := range m.catalogue.snapshot(now) {
		failing := 0.0
		if !s.outage.IsZero() {
			failing = now.Sub(s.outage).Seconds()
		}
		to <- prometheus.MustNewConstMetric(failingMetric, prometheus.GaugeValue, failing, region)
		for class, n := range s.failures {
			to <- prometheus.MustNewConstMetric(failuresMetric, prometheus.CounterValue, float64(n), region, results[class])
		}
		if s.listed.IsZero() {
			continue
		}
		to <- prometheus.MustNewConstMetric(ageMetric, prometheus.GaugeValue, now.Sub(s.listed).Seconds(), region)
		to <- prometheus.MustNewConstMetric(typesMetric, prometheus.GaugeValue, float64(s.known), region)
		to <- prometheus.MustNewConstMetric(unknownMetric, prometheus.GaugeValue, float64(s.unknown), region)
	}
	m.calls.Collect(to)
}
