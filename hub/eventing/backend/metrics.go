package backend

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
)

// collectTimeout bounds a list from the cache, which may not have started.
const collectTimeout = 5 * time.Second

var ready = prometheus.NewDesc("capstan_eventing_backend_ready",
	"1 when an EventingBackend is ready, 0 when it is not; alert on it.", []string{"backend", "type"}, nil)

// Collector reads the readiness of EventingBackends from the hub's cache at each scrape,
// on every replica.
type Collector struct {
	// Reader of the cache.
	Reader client.Reader
}

var _ prometheus.Collector = &Collector{}

// Describe implements prometheus.Collector.
func (*Collector) Describe(ch chan<- *prometheus.Desc) { ch <- ready }

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout) //nolint:forbidigo // Prometheus gives none.
	defer cancel()
	var list eventingv1.EventingBackendList
	if err := c.Reader.List(ctx, &list); err != nil {
		return // The cache has not started: there are no values yet.
	}
	for i := range list.Items {
		b := &list.Items[i]
		value := 0.0
		if ptr.Deref(b.Status.EventingReady, false) {
			value = 1
		}
		ch <- prometheus.MustNewConstMetric(ready, prometheus.GaugeValue, value, client.ObjectKeyFromObject(b).String(), b.Status.BackendType)
	}
}
