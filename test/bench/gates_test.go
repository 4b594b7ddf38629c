package bench

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/gate"
)

// TestGates: one judgement of all gates of a fleet, with the parsing of their specs: a soak and four
// windows for each of three environments of each Pipeline. Nothing but the CPU is used.
func TestGates(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	window := func(name string, kind pipelinesv1.WindowType, schedule, zone string) pipelinesv1.Window {
		return pipelinesv1.Window{Name: name, WindowSpec: pipelinesv1.WindowSpec{Type: kind, Schedule: schedule, Duration: "8h", TimeZone: zone}}
	}
	pipelines := make([]*pipelinesv1.Pipeline, 1000)
	for i := range pipelines {
		pipelines[i] = &pipelinesv1.Pipeline{Spec: pipelinesv1.PipelineSpec{
			Gates: &pipelinesv1.Gates{
				Soak: &pipelinesv1.Soak{For: "2h"},
				Windows: []pipelinesv1.Window{
					window("office", pipelinesv1.AllowWindow, "0 9 * * 1-5", "Europe/Riga"),
					window("late", pipelinesv1.AllowWindow, "0 14 * * *", "America/New_York"),
					window("night", pipelinesv1.DenyWindow, fmt.Sprintf("%d 22 * * *", i%60), "Asia/Tokyo"),
					window("first", pipelinesv1.DenyWindow, "0 0 1 * *", "UTC"),
				},
			},
			Environments: []pipelinesv1.Environment{{Name: "dev"}, {Name: "staging"}, {Name: "prod"}},
		}}
	}
	facts := gate.Facts{Now: now, Source: "dev", Revision: "1.4.2", Agreed: &pipelinesv1.AgreedRevision{Revision: "1.4.2", Soak: &pipelinesv1.SoakStatus{
		Seconds: 60, State: pipelinesv1.SoakReady, CountedTime: &metav1.Time{Time: now},
	}}}
	judged := 0
	pass := func() {
		for _, p := range pipelines {
			for i := range p.Spec.Environments {
				judged += len(gate.For(p, i).Judge(facts))
			}
		}
	}
	pass() // The zones are loaded.
	began := time.Now()
	pass()
	took := time.Since(began)
	g.Expect(judged).To(Equal(2 * 2 * 3 * len(pipelines)))
	report("gates: 1,000 Pipelines × 3 environments × 5 gates, one pass", float64(took.Milliseconds()), 150, "ms")
}
