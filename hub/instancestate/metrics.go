package instancestate

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const metricPrefix = "capstan_instancestate_"

type metrics struct {
	received, ignored, guessed, applied, failed, messages, malformed, remediated, handlerTimeouts *prometheus.CounterVec

	noops, conflicts, panics, repairs, conflicting, suppressed prometheus.Counter

	eventToLabel, spotLeft prometheus.Histogram
	queueWait              *prometheus.HistogramVec
}

func newMetrics() *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: metricPrefix + name, Help: help})
	}
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: metricPrefix + name, Help: help}, labels)
	}
	return &metrics{
		received:        vec("received_total", "Messages that could be decoded, by source and kind.", "source", "kind"),
		ignored:         vec("ignored_total", "Messages and facts that were ignored, by source and reason: foreign (another account or region), unknown (no object yet), unplaced (the account of the object cannot be read now; the event is retried), or the reason why the event changes no label.", "source", "reason"),
		guessed:         vec("guessed_time_total", "Facts whose time is missing or implausible, so that the time of the message in SQS was used, by source.", "source"),
		applied:         vec("applied_total", "Facts that were written to an object, by kind.", "kind"),
		failed:          vec("patch_failures_total", "Failed patches, by kind of the object. SQS delivers the messages again.", "kind"),
		messages:        vec("messages_total", "Messages by source and what happened to them in the queue: received, deleted, delete_failed, retried, released, extended, change_failed, dead_lettered, discarded, panicked.", "source", "what"),
		malformed:       vec("malformed_total", "Messages that cannot be decoded, by source.", "source"),
		remediated:      vec("remediated_total", "Machines that were annotated for remediation, by the kind of event.", "kind"),
		handlerTimeouts: vec("handler_timeouts_total", "Events that a handler in another process did not report in time, so that their messages were deleted, by handler.", "handler"),
		noops:           counter("noop_total", "Facts that changed nothing: duplicates, and facts that are older than the label."),
		conflicts:       counter("conflicts_total", "Patches that conflicted with a newer version of the object, and were computed again."),
		panics:          counter("panics_total", "Panics while the events of one object were processed. SQS delivers the messages again."),
		repairs:         counter("drift_repairs_total", "Labels that were repaired because they differed from the polled state or another client overwrote them."),
		conflicting:     counter("conflicting_writes_total", "Labels that another client has overwritten."),
		suppressed:      counter("events_suppressed_total", "Kubernetes Events that were not written because of the rate limit."),
		eventToLabel: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: metricPrefix + "event_to_label_seconds", Help: "Seconds from the event's time, which AWS gives with a precision of one second, to the API server's acknowledgement of the label.",
			Buckets: []float64{.05, .1, .25, .5, 1, 2, 5, 10, 30, 60, 120, 300, 900, 3600},
		}),
		spotLeft: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: metricPrefix + "spot_seconds_left", Help: "Seconds that are left of the two minutes of a spot notice when the API server acknowledges the label.",
			Buckets: []float64{0, 15, 30, 60, 90, 100, 110, 115, 118, 119, 120},
		}),
		queueWait: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: metricPrefix + "queue_wait_seconds", Help: "Seconds that messages were in SQS when they were received, by source.",
			Buckets: []float64{.05, .1, .25, .5, 1, 2, 5, 10, 30, 60, 300, 900, 3600, 14400},
		}, []string{"source"}),
	}
}

// register registers the metrics. Of several hubs in a process, the first one is counted.
func (m *metrics) register(r prometheus.Registerer, more ...prometheus.Collector) error {
	if r == nil {
		return nil
	}
	all := append([]prometheus.Collector{
		m.received, m.ignored, m.guessed, m.applied, m.failed, m.messages, m.malformed, m.remediated, m.handlerTimeouts,
		m.noops, m.conflicts, m.panics, m.repairs, m.conflicting, m.suppressed, m.eventToLabel, m.spotLeft, m.queueWait,
	}, more...)
	for _, c := range all {
		var already prometheus.AlreadyRegisteredError
		if err := r.Register(c); err != nil && !errors.As(err, &already) {
			return err
		}
	}
	return nil
}

// forget deletes the series of a source, which would otherwise stay until the hub stops.
func (m *metrics) forget(source string) {
	of := prometheus.Labels{"source": source}
	for _, v := range []interface{ DeletePartialMatch(prometheus.Labels) int }{
		m.received, m.ignored, m.guessed, m.messages, m.malformed, m.queueWait,
	} {
		v.DeletePartialMatch(of)
	}
}

// gauges collects the current state.
type gauges struct{ r *Labeler }

var (
	descPending  = prometheus.NewDesc(metricPrefix+"pending_objects", "Objects with events that are not written yet.", nil, nil)
	descWaiting  = prometheus.NewDesc(metricPrefix+"waiting_events", "Events that wait for their object to appear.", nil, nil)
	descHandlers = prometheus.NewDesc(metricPrefix+"handler_waiting_objects", "Objects whose event a handler in another process has not reported yet, by handler.", []string{"handler"}, nil)
	descUp       = prometheus.NewDesc(metricPrefix+"source_up", "Whether the source's queue is read and its messages are settled (1) or not (0), by source.", []string{"source"}, nil)
	descPollers  = prometheus.NewDesc(metricPrefix+"pollers", "Pollers that run, each with at most one receive, by source.", []string{"source"}, nil)
	descReceive  = prometheus.NewDesc(metricPrefix+"last_receive_timestamp_seconds", "Unix time of the last successful receive, by source.", []string{"source"}, nil)
	descVisible  = prometheus.NewDesc(metricPrefix+"queue_visible", "Visible messages in the queue, by source.", []string{"source"}, nil)
	descInFlight = prometheus.NewDesc(metricPrefix+"queue_in_flight", "Messages that were received and are not deleted yet, by source.", []string{"source"}, nil)
	descOldest   = prometheus.NewDesc(metricPrefix+"oldest_seconds", "Age of the oldest message that this replica has received and that is not deleted, as far as it knows, by source; 0 without one.", []string{"source"}, nil)
	descDead     = prometheus.NewDesc(metricPrefix+"dead_letters", "Messages in the queue's dead-letter queue, by source.", []string{"source"}, nil)
)

// Describe implements prometheus.Collector.
func (g gauges) Describe(into chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descPending, descWaiting, descHandlers, descUp, descPollers, descReceive, descVisible, descInFlight, descOldest, descDead} {
		into <- d
	}
}

// Collect implements prometheus.Collector.
func (g gauges) Collect(into chan<- prometheus.Metric) {
	put := func(d *prometheus.Desc, value float64, labels ...string) {
		into <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	put(descPending, float64(g.r.lanes.len()))
	put(descWaiting, float64(g.r.ring.Len()))
	for name, n := range g.r.undone.waiting(g.r.sources.declared(), g.r.Clock.Now()) {
		put(descHandlers, float64(n), name)
	}
	statuses, oldest := g.r.sources.statuses()
	for name, status := range statuses {
		up := 0.0
		if status.Ready {
			up = 1
		}
		put(descUp, up, name)
		put(descPollers, float64(status.Pollers), name)
		if !status.LastReceive.IsZero() {
			put(descReceive, float64(status.LastReceive.Unix()), name)
		}
		put(descVisible, float64(status.Visible), name)
		put(descInFlight, float64(status.NotVisible), name)
		age := time.Duration(0)
		if !oldest[name].IsZero() {
			age = max(0, g.r.Clock.Since(oldest[name]))
		}
		put(descOldest, age.Seconds(), name)
		if status.HasDeadLetters {
			put(descDead, float64(status.DeadLetters), name)
		}
	}
}
