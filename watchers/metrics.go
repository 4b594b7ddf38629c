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
