package outbox

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func newFailures() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "capstan_eventing_record_failures_total",
		Help: "Failed writes of the annotation that records the published events of an object, by the API server's reason, Connection, or Undone (accepted, and not stored). They are retried.",
	}, []string{"reason"})
}

var waitingRecords = prometheus.NewDesc("capstan_eventing_records_waiting",
	"Objects whose annotation does not have all their published events yet. If the hub dies, the next leader publishes these events again.", nil, nil)

var _ prometheus.Collector = &Outbox{}

// Describe implements prometheus.Collector.
func (b *Outbox) Describe(ch chan<- *prometheus.Desc) {
	b.failures.Describe(ch)
	ch <- waitingRecords
}

// Collect implements prometheus.Collector.
func (b *Outbox) Collect(ch chan<- prometheus.Metric) {
	b.failures.Collect(ch)
	waiting := 0
	b.mu.Lock()
	for _, e := range b.lockedState.entries {
		if e.unrecorded() {
			waiting++
		}
	}
	b.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(waitingRecords, prometheus.GaugeValue, float64(waiting))
}

// reasonOf a failed write.
func reasonOf(err error) string {
	if errors.Is(err, errUndone) {
		return "Undone"
	}
	if reason := apierrors.ReasonForError(err); reason != "" {
		return string(reason)
	}
	return "Connection"
}
