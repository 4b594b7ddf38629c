package watchers

import "github.com/prometheus/client_golang/prometheus"

// meters are the metrics. The label kind is bounded: only the administrator and the hub's
// controllers name kinds. The cluster is not a label.
type meters struct {
	informers    *prometheus.GaugeVec
	observations *prometheus.CounterVec
	lists        *prometheus.CounterVec
	relists      *prometheus.CounterVec
	blind        *prometheus.CounterVec
	folded       prometheus.Counter
}

// Values of the label result.
const (
	resultChanged = "changed"
	resultEqual   = "equal"
)

func newMeters() *meters {
	return &meters{
		informers: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "capstan_informers",
			Help: "Informers that run in workload clusters, by kind.",
		}, []string{"kind"}),
		observations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "capstan_observations_total",
			Help: "Observations of applications, by kind and result: a changed one wakes Pipelines, an equal one wakes none.",
		}, []string{"kind", "result"}),
		lists: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "capstan_lists_total",
			Help: "Lists of a kind requested from workload clusters: one for each informer, and relists.",
		}, []string{"kind"}),
		relists: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "capstan_relists_total",
			Help: "Lists of a kind after the first list in a connection: a watch could not be resumed.",
		}, []string{"kind"}),
		blind: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "capstan_blind_watches_total",
			Help: "Watches of a kind that delivered nothing for ten minutes, not even a bookmark, and were closed to be resumed.",
		}, []string{"kind"}),
		folded: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "capstan_wakes_folded_total",
			Help: "Wakes of Pipelines that were folded because a cluster caused more than its share.",
		}),
	}
}

// all returns the metrics, for registration.
func (m *meters) all() []prometheus.Collector {
	return []prometheus.Collector{m.informers, m.observations, m.lists, m.relists, m.blind, m.folded}
}
