package annotator

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Outcomes of a write, in capstan_annotator_patches_total.
const (
	outcomeWritten  = "written"
	outcomeConflict = "conflict"
	outcomeFailed   = "failed"
)

type metrics struct {
	patches  *prometheus.CounterVec
	problems *prometheus.GaugeVec
}

func newMetrics() *metrics {
	return &metrics{
		patches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "capstan_annotator_patches_total",
			Help: "Patches of node groups' capacity annotations, by kind and outcome: written, conflict (somebody else wrote in between) or failed.",
		}, []string{"kind", "outcome"}),
		problems: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "capstan_annotator_problems",
			Help: "Node groups of which there is something to tell, by kind and the word that opens the Event's message; Overridden is no fault.",
		}, []string{"kind", "word"}),
	}
}

// register with a registry; of several hubs in a process, the first one's count.
func (m *metrics) register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	for _, c := range []prometheus.Collector{m.patches, m.problems} {
		var already prometheus.AlreadyRegisteredError
		if err := r.Register(c); err != nil && !errors.As(err, &already) {
			return err
		}
	}
	return nil
}
