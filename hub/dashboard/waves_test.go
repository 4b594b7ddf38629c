package dashboard

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/dashboard/view"
)

// inWaves is the large fleet with one Pipeline, whose prod is 500 clusters in so many waves. Wave 2 failed, and wave 3 is under way.
func inWaves(waves int) *view.Facts {
	f := large()
	f.Pipelines = f.Pipelines[:1]
	p := &f.Pipelines[0]
	p.Spec.Environments[2].Targets = []pipelinesv1.Target{{Namespace: "apps", Clusters: &pipelinesv1.ClusterSelector{}}}
	p.Spec.Environments[2].Waves = []pipelinesv1.Wave{{Name: "rest", Batches: int32(waves)}}
	each := len(f.Connections) / waves
	count := func(n int) *pipelinesv1.FleetStatus {
		return &pipelinesv1.FleetStatus{Targets: int32(n), Ready: int32(n), Required: int32(n), Revision: "1.0.0"}
	}
	p.Status.Environments["prod"] = &pipelinesv1.EnvironmentStatus{Fleet: count(len(f.Connections))}
	for i := range waves {
		status := &pipelinesv1.EnvironmentStatus{Fleet: count(each)}
		for j := range pipelinesv1.MaxShownTargets / waves {
			one := pipelinesv1.TargetStatus{Namespace: "apps", Ready: true, Revision: "1.0.0"}
			one.ClusterAppRef.ClusterRef = &f.Connections[i*each+j].Spec.ClusterRef
			status.Targets = append(status.Targets, one)
		}
		p.Status.Environments[fmt.Sprintf("prod/rest-%d", i+1)] = status
	}
	p.Status.Environments["prod/rest-2"].Promotion = &pipelinesv1.PromotionSummary{Name: "x", Revision: "1.1.0", Phase: "Failed", Message: "the rollout timed out"}
	p.Status.Environments["prod/rest-3"].Promotion = &pipelinesv1.PromotionSummary{Name: "y", Revision: "1.2.0", Phase: "AwaitingRollout"}
	*p = *p.Shown()
	return f
}

// The pages of an environment in waves are small, and show the wave that failed and the one that is under way. The targets of a
// wave with neither are closed.
func TestWavesAreSmall(t *testing.T) {
	const rowBudget, pageBudget = 6_000, 120_000
	for _, waves := range []int{5, 20} {
		t.Run(fmt.Sprint(waves), func(t *testing.T) {
			g := NewWithT(t)
			f := inWaves(waves)
			html := func(path string) string {
				topic := largeTopic(t, largeRenderer(t), path)
				g.Expect(topic.refresh(f)).To(Succeed())
				shot, there, err := topic.shot()
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(there).To(BeTrue())
				t.Logf("%s: %d bytes, %d compressed", path, len(shot.main), len(compressed([]byte(shot.main))))
				return shot.main
			}
			list := html("/pipelines")
			g.Expect(strings.Count(list, `data-environment="prod`)).To(Equal(1), "one stop")
			rail := list[strings.Index(list, `<ul class="rails"`):]
			g.Expect(len(rail)).To(BeNumerically("<", rowBudget))
			g.Expect(rail).To(And(ContainSubstring("500/500 ready"), ContainSubstring(fmt.Sprintf(">%d of %d waves run 1.0.0</span>", waves, waves)),
				MatchRegexp(`(?s)Failed.*title="rest-2".*the rollout timed out`), Not(ContainSubstring("rest-3"))), "the worst wave")

			page := html("/pipelines/" + f.Pipelines[0].Namespace + "/" + f.Pipelines[0].Name)
			g.Expect(len(page)).To(BeNumerically("<", pageBudget))
			g.Expect(page).To(ContainSubstring("<h2>Waves of prod</h2>"))
			g.Expect(strings.Count(page, `<tr id="wave/prod/`)).To(Equal(waves))
			stages := page[strings.Index(page, "<h2>Waves of prod"):]
			wave := func(i int) string {
				after := stages[strings.Index(stages, fmt.Sprintf(`<tr id="wave/prod/rest-%d"`, i)):]
				return after[:strings.Index(after, "</tr>")]
			}
			closed := fmt.Sprintf("<details><summary>%d targets</summary>", pipelinesv1.MaxShownTargets/waves)
			more := fmt.Sprintf("<details><summary>%d more targets</summary>", pipelinesv1.MaxShownTargets/waves-3)
			g.Expect(wave(1)).To(And(ContainSubstring(closed), ContainSubstring(fmt.Sprintf("%d of %d run <code>1.0.0</code>", 500/waves, 500/waves))))
			g.Expect(wave(2)).To(And(ContainSubstring(`<span class="word">Failed</span>`), ContainSubstring("the rollout timed out"), ContainSubstring(more)))
			g.Expect(wave(3)).To(And(ContainSubstring(`<span class="word">Awaiting rollout</span>`), ContainSubstring(`title="1.2.0">1.2.0</code>`), ContainSubstring(more)))
			g.Expect(strings.Count(stages[:strings.Index(stages, "</table>")], "<details>")).To(Equal(waves))
			g.Expect(page).To(MatchRegexp(`(?s)id="environment/prod".*<strong>rest-2</strong>.*Failed.*<strong>rest-3</strong>.*Awaiting rollout`))
		})
	}
}
