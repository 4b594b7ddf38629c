package watchers

import "github.com/prometheus/client_golang/prometheus"

type meters struct {
	observations *prometheus.CounterVec
	lists        *prometheus.CounterVec
	folded       prometheus.Counter
}

func newMeters(registerer prometheus.Registerer) *meters {
	m := &meters{
		observations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "capstan_observations_total",
			Help: "Observations of applications, by kind and result: changed ones wake Pipelines, equal ones end in the index.",
		}, []string{"kind", "result"}),
		lists: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "capstan_lists_total",
			Help: "Lists of a kind asked of workload clusters: one for each informer, and one more whenever a watch could not be resumed.",
		}, []string{"kind"}),
		folded: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "capstan_wakes_folded_total",
			Help: "Wakes of Pipelines that were folded because a cluster asked for more than its share.",
		}),
	}
	if registerer != nil {
		registerer.MustRegister(m.observations, m.lists, m.folded)
	}
	return m
}

var informersMetric = prometheus.NewDesc("capstan_informers", "Informers on workload clusters that run, by kind.", []string{"kind"}, nil)

// informersCollector counts informers at each scrape.
type informersCollector struct{ w *Watcher }

// Describe implements prometheus.Collector.
func (informersCollector) Describe(ch chan<- *prometheus.Desc) { ch <- informersMetric }

// Collect implements prometheus.Collector.
func (c informersCollector) Collect(ch chan<- prometheus.Metric) {
	counts := map[string]int{}
	c.w.mu.Lock()
	for _, cluster := range c.w.lockedState.clusters {
		for kind, k := range cluster.kinds {
			counts[kind.String()] += len(k.lockedInformers)
		}
	}
	c.w.mu.Unlock()
	for kind, n := range counts {
		ch <- prometheus.MustNewConstMetric(informersMetric, prometheus.GaugeValue, float64(n), kind)
	}
}
