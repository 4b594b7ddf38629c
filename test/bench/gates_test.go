package bench

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/gate"
)

// TestGates: one judgement of all gates of a fleet, with the parsing of their specs: a soak, three
// windows and a check of the targets for each of three environments of each Pipeline. Nothing but the CPU is used.
func TestGates(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	window := func(name string, kind pipelinesv1.WindowType, schedule, zone string) pipelinesv1.Window {
		return pipelinesv1.Window{Name: name, WindowSpec: pipelinesv1.WindowSpec{Type: kind, Schedule: schedule, Duration: "8h", TimeZone: zone}}
	}
	targets := []pipelinesv1.Target{{Namespace: "shop"}}
	status := &pipelinesv1.EnvironmentStatus{
		Targets: []pipelinesv1.TargetStatus{{Ready: true, Revision: "1.4.2", ObservedTime: &metav1.Time{Time: now}}},
		Agreed: &pipelinesv1.AgreedRevision{Revision: "1.4.2", Soak: &pipelinesv1.SoakStatus{
			Seconds: 60, State: pipelinesv1.SoakReady, CountedTime: &metav1.Time{Time: now},
		}},
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
				},
				Checks: []pipelinesv1.Check{{Name: "same", CEL: &pipelinesv1.CELCheck{
					Expression: "sourceTargets.all(t, t.ready && t.revision == revision) && !(revision in from)",
				}}},
			},
			Environments: []pipelinesv1.Environment{{Name: "dev", Targets: targets}, {Name: "staging", Targets: targets}, {Name: "prod", Targets: targets}},
		}, Status: pipelinesv1.PipelineStatus{Environments: map[string]*pipelinesv1.EnvironmentStatus{"dev": status, "staging": status, "prod": status}}}
	}
	promotions := map[string]*capstanv1.Promotion{}
	for _, env := range []string{"staging", "prod"} {
		promotions[env] = &capstanv1.Promotion{Spec: capstanv1.PromotionSpec{
			Environment: env, Revision: "1.4.2", Source: capstanv1.PromotionSource{Environment: "dev"}, From: &capstanv1.PromotionBase{Revisions: []string{"1.4.1"}},
		}}
	}
	judged := 0
	pass := func() {
		for _, p := range pipelines {
			for i := range p.Spec.Environments {
				promotion := promotions[p.Spec.Environments[max(i, 1)].Name]
				judged += len(gate.For(p, i).Judge(gate.FactsOf(p, promotion, now)))
			}
		}
	}
	pass() // The zones are loaded.
	began := time.Now()
	pass()
	took := time.Since(began)
	g.Expect(judged).To(Equal(2 * 3 * 3 * len(pipelines)))
	report("gates: 1,000 Pipelines × 3 environments × 5 gates, one pass", float64(took.Milliseconds()), 150, "ms")
}
