package promotion

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/check"
	"github.com/capstan-hub/capstan/internal/promotions"
)

// metrics of one Reconciler.
type metrics struct {
	ended          *prometheus.CounterVec
	leadSeconds    prometheus.Histogram
	attempts       *prometheus.CounterVec
	attemptSeconds *prometheus.HistogramVec
	gateWait       *prometheus.HistogramVec
	overrides      *prometheus.CounterVec
	measurements   *prometheus.CounterVec
	rollbacks      *prometheus.CounterVec
	delivery       deliveryMetrics
}

func newMetrics() *metrics {
	return &metrics{
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "capstan_promotions_total",
			Help: "Promotions that ended, by phase and reason.",
		}, []string{"phase", "reason"}),
		leadSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "capstan_promotion_lead_seconds",
			Help:    "Time from the creation of a Promotion until every target runs the revision, including the wait for an approval.",
			Buckets: []float64{1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600},
		}),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "capstan_promotion_attempts_total",
			Help: "Attempts to carry out a promotion, by strategy and result (done, failed, impossible).",
		}, []string{"strategy", "result"}),
		attemptSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "capstan_promotion_attempt_seconds",
			Help:    "Duration of an attempt, by strategy.",
			Buckets: prometheus.ExponentialBuckets(0.005, 3, 9),
		}, []string{"strategy"}),
		gateWait: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "capstan_gate_wait_seconds",
			Help:    "How long a gate of a promotion was closed before it opened, by type of gate (Soak, Window, PromotionWindow, Check, Reject).",
			Buckets: []float64{1, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600},
		}, []string{"gate"}),
		overrides: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "capstan_overrides_total",
			Help: "Gates of promotions that spec.overrides opened, by type of gate (Soak, Window, PromotionWindow, Check, Reject).",
		}, []string{"gate"}),
		measurements: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "capstan_check_measurements_total",
			Help: "Measurements of checks of promotions, by type (cel, prometheus) and result (Pass, Fail, NoData, Error). A cel check of a gate is judged at each step and is not counted.",
		}, []string{"type", "result"}),
		rollbacks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "capstan_rollbacks_total",
			Help: "Rollbacks that ended, by trigger (failure, request) and phase (Succeeded, Failed, Rejected, Superseded).",
		}, []string{"trigger", "phase"}),
		delivery: newDeliveryMetrics(),
	}
}

func (m *metrics) measured(kind string, r check.Result) {
	m.measurements.WithLabelValues(kind, string(r.Verdict)).Inc()
}

func (m *metrics) all() []prometheus.Collector {
	return append(m.delivery.all(), m.ended, m.leadSeconds, m.attempts, m.attemptSeconds, m.gateWait, m.overrides, m.measurements, m.rollbacks)
}

// count counts a promotion that has just entered its phase. The label reason is bounded:
// strategies have a fixed set of reasons for Failed.
func (m *metrics) count(p *capstanv1.Promotion) {
	if !p.Status.Phase.Finished() {
		return
	}
	m.ended.WithLabelValues(string(p.Status.Phase), p.Status.Reason).Inc()
	if p.Spec.RollbackOf != nil {
		trigger := "failure"
		if p.Spec.Request != nil {
			trigger = "request"
		}
		m.rollbacks.WithLabelValues(trigger, string(p.Status.Phase)).Inc()
	}
	if p.Status.Phase == capstanv1.PhaseSucceeded {
		m.leadSeconds.Observe(p.Status.FinishTime.Sub(p.CreationTimestamp.Time).Seconds())
	}
}

// collectTimeout bounds a list of the cache, which may not have started.
const collectTimeout = 5 * time.Second

var (
	underWay = prometheus.NewDesc("capstan_promotions_under_way", "Promotions under way, by phase.", []string{"phase"}, nil)
	oldest   = prometheus.NewDesc("capstan_promotion_oldest_seconds", "Age of the oldest promotion under way, by phase; use it for alerts.", []string{"phase"}, nil)
	closed   = prometheus.NewDesc("capstan_gates_closed", "Gates that hold a promotion under way, by type of gate (Soak, Window, PromotionWindow, Check, Reject).", []string{"gate"}, nil)
	stalled  = prometheus.NewDesc("capstan_promotions_stalled", "Promotions with the condition Stalled: under way for too long, or failed.", nil, nil)
)

// Collector reads the promotions under way from the hub's cache at each scrape.
type Collector struct {
	// Reader of the cache, which has the indexes of internal/promotions.
	Reader client.Reader
	Clock  clock.PassiveClock
}

var _ prometheus.Collector = &Collector{}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- underWay
	ch <- oldest
	ch <- stalled
	ch <- closed
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout) //nolint:forbidigo // Prometheus gives none.
	defer cancel()
	var list capstanv1.PromotionList
	// The index has the promotions under way and the stalled ones: a scrape does not depend
	// on the number of finished ones.
	options := []client.ListOption{client.MatchingFields{promotions.OpenField: promotions.OpenValue}, client.UnsafeDisableDeepCopy}
	if err := c.Reader.List(ctx, &list, options...); err != nil {
		return // The cache has not started: there are no values yet.
	}
	number, age, stuck := map[capstanv1.PromotionPhase]float64{}, map[capstanv1.PromotionPhase]float64{}, 0.0
	shut := map[capstanv1.GateType]float64{}
	now := c.Clock.Now()
	for i := range list.Items {
		p := &list.Items[i]
		if stalledAlready(p) {
			stuck++
		}
		if p.Status.Phase.Finished() || p.Status.Phase == "" {
			continue
		}
		for _, g := range p.Status.Gates {
			if isClosed(g) && gatesMatter(p) {
				shut[g.Type]++
			}
		}
		number[p.Status.Phase]++
		age[p.Status.Phase] = max(age[p.Status.Phase], now.Sub(p.CreationTimestamp.Time).Seconds())
	}
	for _, phase := range []capstanv1.PromotionPhase{
		capstanv1.PhaseAwaitingGates, capstanv1.PhaseAwaitingApproval, capstanv1.PhasePromoting, capstanv1.PhaseAwaitingMerge, capstanv1.PhaseAwaitingRollout, capstanv1.PhaseVerifying,
	} {
		ch <- prometheus.MustNewConstMetric(underWay, prometheus.GaugeValue, number[phase], string(phase))
		ch <- prometheus.MustNewConstMetric(oldest, prometheus.GaugeValue, age[phase], string(phase))
	}
	for _, gate := range []capstanv1.GateType{capstanv1.SoakGate, capstanv1.WindowGate, capstanv1.PromotionWindowGate, capstanv1.CheckGate, capstanv1.RejectGate} {
		ch <- prometheus.MustNewConstMetric(closed, prometheus.GaugeValue, shut[gate], string(gate))
	}
	ch <- prometheus.MustNewConstMetric(stalled, prometheus.GaugeValue, stuck)
}
