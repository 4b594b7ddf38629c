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
			Help: "Patches of node groups' capacity annotations, by kind and outcome: written, conflict (another client changed the object) or failed.",
		}, []string{"kind", "outcome"}),
		problems: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "capstan_annotator_problems",
			Help: "Node groups with a notice, by kind and the first word of the Event's message; Overridden is not a fault.",
		}, []string{"kind", "word"}),
	}
}

// register adds the metrics to a registry. If a process runs several hubs, only the first one's
// metrics are registered.
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
