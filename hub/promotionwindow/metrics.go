package promotionwindow

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/gate"
)

// collectTimeout bounds a list of the cache, which may not have started.
const collectTimeout = 5 * time.Second

// States of windows in metrics.
const (
	stateActive   = "active"
	stateInactive = "inactive"
	stateInvalid  = "invalid"
)

var windows = prometheus.NewDesc("capstan_promotion_windows",
	"PromotionWindows, by type (Allow, Deny) and state (active, inactive, invalid). One that is invalid denies, or allows nothing.", []string{"type", "state"}, nil)

// Collector reads the PromotionWindows from the hub's cache at each scrape.
type Collector struct {
	Reader client.Reader
	Clock  clock.PassiveClock
}

var _ prometheus.Collector = &Collector{}

// Describe implements prometheus.Collector.
func (*Collector) Describe(ch chan<- *prometheus.Desc) { ch <- windows }

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout) //nolint:forbidigo // Prometheus gives none.
	defer cancel()
	var list capstanv1.PromotionWindowList
	if err := c.Reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return // The cache has not started: there are no values yet.
	}
	type series struct {
		kind  pipelinesv1.WindowType
		state string
	}
	number, now := map[series]float64{}, c.Clock.Now()
	for i := range list.Items {
		w, state := gate.ParseWindow(&list.Items[i]), stateInactive
		if active, _ := w.At(now); active {
			state = stateActive
		}
		if w.Err() != nil {
			state = stateInvalid
		}
		number[series{list.Items[i].Spec.Type, state}]++
	}
	for _, kind := range []pipelinesv1.WindowType{pipelinesv1.AllowWindow, pipelinesv1.DenyWindow} {
		for _, state := range []string{stateActive, stateInactive, stateInvalid} {
			ch <- prometheus.MustNewConstMetric(windows, prometheus.GaugeValue, number[series{kind, state}], string(kind), state)
		}
	}
}
