package publisher

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics of all backends.
type metrics struct {
	published, dropped, deferred, coalesced, deadLetters *prometheus.CounterVec
	seconds                                              *prometheus.HistogramVec
}

func newMetrics() *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "capstan_eventing_" + name, Help: help}, append([]string{"backend"}, labels...))
	}
	return &metrics{
		published:   counter("publish_attempts_total", "Attempts to publish an event, by result: ok, or the class of the error.", "type", "result"),
		dropped:     counter("dropped_total", "Dropped events, by reason: the code of an error, full (the queue), or stopped.", "reason"),
		deferred:    counter("deferred_total", "Events that did not fit into the queue; their source emits them again."),
		coalesced:   counter("coalesced_total", "Events that a newer event of the same object replaced before they were sent."),
		deadLetters: counter("dead_letters_total", "Events handed to the dead letter backend.", "to"),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "capstan_eventing_publish_seconds", Help: "Duration of an attempt to publish.",
			Buckets: prometheus.ExponentialBuckets(0.001, 3, 9),
		}, []string{"backend"}),
	}
}

func (m *metrics) all() []interface {
	prometheus.Collector
	DeletePartialMatch(prometheus.Labels) int
} {
	return []interface {
		prometheus.Collector
		DeletePartialMatch(prometheus.Labels) int
	}{m.published, m.dropped, m.deferred, m.coalesced, m.deadLetters, m.seconds}
}

// forget deletes the series of a backend that has ended.
func (m *metrics) forget(backend string) {
	for _, one := range m.all() {
		one.DeletePartialMatch(prometheus.Labels{"backend": backend})
	}
}

var (
	backlog      = prometheus.NewDesc("capstan_eventing_backlog", "Events in the queue of a backend.", []string{"backend"}, nil)
	backlogBytes = prometheus.NewDesc("capstan_eventing_backlog_bytes", "Approximate size of the events in the queue of a backend, in bytes.", []string{"backend"}, nil)
	oldest       = prometheus.NewDesc("capstan_eventing_oldest_seconds", "Age of the oldest event in the queue of a backend, in seconds; alert on it.", []string{"backend"}, nil)
	refused      = prometheus.NewDesc("capstan_eventing_refused_in_a_row", "Events that the receiver of a backend refused since it last accepted one.", []string{"backend"}, nil)
	success      = prometheus.NewDesc("capstan_eventing_last_success_timestamp_seconds", "When a backend last accepted an event, as Unix time; absent before the first.", []string{"backend"}, nil)
	taking       = prometheus.NewDesc("capstan_eventing_taking", "1 if a backend accepts events, 0 if its circuit breaker is open.", []string{"backend"}, nil)
)

var _ prometheus.Collector = &Publisher{}

// Describe implements prometheus.Collector.
func (p *Publisher) Describe(ch chan<- *prometheus.Desc) {
	for _, one := range p.metrics.all() {
		one.Describe(ch)
	}
	for _, d := range []*prometheus.Desc{backlog, backlogBytes, oldest, refused, success, taking} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (p *Publisher) Collect(ch chan<- prometheus.Metric) {
	for _, one := range p.metrics.all() {
		one.Collect(ch)
	}
	now := p.options.Clock.Now()
	for _, b := range p.all() {
		s := b.status()
		gauge := func(d *prometheus.Desc, value float64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, b.name)
		}
		gauge(backlog, float64(s.Queued))
		gauge(backlogBytes, float64(s.Bytes))
		age, open := 0.0, 1.0
		if !s.Oldest.IsZero() {
			age = now.Sub(s.Oldest).Seconds()
		}
		if !s.Taking {
			open = 0
		}
		gauge(oldest, age)
		gauge(taking, open)
		gauge(refused, float64(s.Refusals))
		if !s.LastPublish.IsZero() {
			gauge(success, float64(s.LastPublish.Unix()))
		}
	}
}
