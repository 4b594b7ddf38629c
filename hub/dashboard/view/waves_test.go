package view

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// inWaves makes prod of the first Pipeline a fleet in so many waves, and removes the other Pipeline. The first wave runs 1.1.0, the
// others 1.0.0. The status lists as many targets as that of a Pipeline does.
func inWaves(f *Facts, waves, targets int) *pipelinesv1.Pipeline {
	p := &f.Pipelines[0]
	f.Pipelines = f.Pipelines[:1]
	env := &p.Spec.Environments[2]
	env.Targets = []pipelinesv1.Target{{Namespace: "shop", Clusters: &pipelinesv1.ClusterSelector{}}}
	env.Waves = []pipelinesv1.Wave{{Name: "rest", Batches: int32(waves)}}
	each := targets / waves
	p.Status.Environments["prod"] = &pipelinesv1.EnvironmentStatus{Fleet: &pipelinesv1.FleetStatus{
		Targets: int32(targets), Ready: int32(each), Required: int32(targets), Revision: "1.1.0", Message: "1.1.0: rest-1; 1.0.0: the others",
	}}
	for i := range waves {
		runs := "1.0.0"
		if i == 0 {
			runs = "1.1.0"
		}
		status := &pipelinesv1.EnvironmentStatus{
			Agreed: &pipelinesv1.AgreedRevision{Revision: runs, Sequence: 1},
			Fleet:  &pipelinesv1.FleetStatus{Targets: int32(each), Ready: int32(each), Required: int32(each), Revision: runs},
		}
		for j := range min(each, pipelinesv1.MaxShownTargets/waves) {
			one := pipelinesv1.TargetStatus{Namespace: "shop", Ready: true, Revision: runs, ObservedTime: ago(time.Hour)}
			one.ClusterAppRef.ClusterRef = &pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Namespace: "fleet", Name: fmt.Sprintf("eu-%d-%d", i, j)}
			status.Targets = append(status.Targets, one)
		}
		p.Status.Environments[fmt.Sprintf("prod/rest-%d", i+1)] = status
	}
	*p = *p.Shown()
	return p
}

// into sets the newest promotion into a stage.
func into(p *pipelinesv1.Pipeline, stage string, phase capstanv1.PromotionPhase) {
	p.Status.Environments[stage].Promotion = &pipelinesv1.PromotionSummary{Name: "shop-" + stage, Revision: "1.1.0", Phase: string(phase)}
}

// breaks makes a target of a stage not ready.
func breaks(p *pipelinesv1.Pipeline, stage string, target int) {
	status := p.Status.Environments[stage]
	status.Targets[target].Ready, status.Targets[target].Reason = false, "Broken"
	status.Fleet.Ready--
}

func environments(cells []Cell) []string {
	var all []string
	for _, c := range cells {
		all = append(all, c.Environment)
	}
	return all
}

// prodOf returns the rail of the only Pipeline, and its environment prod with all that its own page has.
func prodOf(g *WithT, f *Facts, q Query) (Rail, Cell) {
	rails := data[Rail](Pipelines(f, Everything(), q), "rows")
	g.Expect(rails).To(HaveLen(1))
	g.Expect(rails[0].Stops).To(HaveExactElements(HaveField("Environment", "dev"), HaveField("Environment", "staging"), HaveField("Environment", "prod")))
	return rails[0], cellsOf(f, Everything())[2]
}

// An environment with waves is one stop. A wave that failed decides the state of the rail, and is shown first.
func TestWavesOnRail(t *testing.T) {
	g := NewWithT(t)
	f := facts()
	p := inWaves(f, 20, 500)
	into(p, "prod/rest-2", capstanv1.PhaseFailed)
	into(p, "prod/rest-3", capstanv1.PhaseAwaitingRollout)
	breaks(p, "prod/rest-7", 3)

	rail, cell := prodOf(g, f, Query{Search: "eu-6-3", State: "Failed"})
	g.Expect(rail.Mark).To(Equal(Mark{Bad, "Failed"}))
	g.Expect(rail.Stops[2]).To(And(HaveField("Ready", &Share{N: 25, Of: 500}), HaveField("Mark.Word", "Not ready"), HaveField("Worst", "rest-7"),
		HaveField("Waves", "1 of 20 waves run 1.1.0, 18 run 1.0.0"), HaveField("Wait.Wave", "rest-2"), HaveField("Wait.Mark.Word", "Failed")))
	g.Expect(*cell.Fleet).To(And(HaveField("Targets", int32(500)), HaveField("Ready", int32(25)), HaveField("Message", "")))
	g.Expect(cell.Waves.Progress()).To(Equal("1 of 20 waves run 1.1.0, 18 run 1.0.0"), "one runs neither")
	g.Expect(cell.Waves.First()).To(HaveExactElements(
		And(HaveField("Environment", "rest-2"), HaveField("Move.Mark.Word", "Failed")), HaveField("Environment", "rest-7"),
		And(HaveField("Environment", "rest-3"), HaveField("Move.Mark.Word", "Awaiting rollout")),
	))
	g.Expect(cell.Waves.Unshown()).To(BeZero())
	g.Expect(cell.First()).To(HaveExactElements(HaveField("Cluster.Name", "eu-6-3")), "only what is not well")
}

// The worst wave and the one under way are shown, however many others are not well, and these are counted.
func TestManyBrokenWaves(t *testing.T) {
	g := NewWithT(t)
	f := facts()
	p := inWaves(f, 20, 500)
	for i := 4; i <= 12; i++ {
		breaks(p, fmt.Sprintf("prod/rest-%d", i), 0)
	}
	into(p, "prod/rest-2", capstanv1.PhaseVerifying)
	into(p, "prod/rest-12", capstanv1.PhaseFailed)
	_, cell := prodOf(g, f, Query{})
	g.Expect(environments(cell.Waves.First())).To(Equal([]string{"rest-12", "rest-4", "rest-2"}))
	g.Expect(cell.Waves.Unshown()).To(Equal(7))
	g.Expect(cell.First()).To(HaveLen(3))
}

// Few waves are all shown, in their order.
func TestFewWaves(t *testing.T) {
	g := NewWithT(t)
	f := facts()
	p := inWaves(f, 3, 15)
	into(p, "prod/rest-2", capstanv1.PhaseFailed)
	_, cell := prodOf(g, f, Query{})
	g.Expect(environments(cell.Waves.First())).To(Equal([]string{"rest-1", "rest-2", "rest-3"}))
	g.Expect(cell.Waves.Unshown()).To(BeZero())
	g.Expect(cell.First()).To(BeEmpty())
}

func TestProgress(t *testing.T) {
	wave := func(revision string, ready int32) Cell {
		return Cell{Fleet: &Members{FleetStatus: pipelinesv1.FleetStatus{Targets: 5, Required: 4, Ready: ready, Revision: revision}}}
	}
	for want, waves := range map[string]Waves{
		"2 of 2 waves run 1.1.0":                             {wave("1.1.0", 5), wave("1.1.0", 4)},
		"1 of 3 waves run 1.1.0, 2 run 1.0.0":                {wave("1.1.0", 5), wave("1.0.0", 5), wave("1.0.0", 5)},
		"1 of 3 waves run 1.0.0":                             {wave("1.1.0", 3), wave("1.0.0", 5), {}},
		"None of the 2 waves runs a revision completely":     {wave("1.1.0", 3), wave("", 0)},
		"1 of 3 waves run 1.2.0, 1 run 1.1.0, 1 run 1.0.0-a": {wave("1.2.0", 5), wave("1.1.0", 5), wave("1.0.0-a", 5)},
	} {
		t.Run(want, func(t *testing.T) { NewWithT(t).Expect(waves.Progress()).To(Equal(want)) })
	}
}

// The page of a Pipeline has the waves in their order, each with its promotion, and counts all targets of the environment for
// each revision.
func TestWavesOfPipeline(t *testing.T) {
	g := NewWithT(t)
	f := facts()
	p := inWaves(f, 5, 500)
	into(p, "prod/rest-2", capstanv1.PhaseAwaitingGates)
	into(p, "prod/rest-3", capstanv1.PhaseAwaitingApproval)
	p.Status.Environments["prod/rest-3"].WaitingApproval.Revision = "1.1.0"
	breaks(p, "prod/rest-4", 1)
	gated := promotion(p, 2, "prod/rest-2", "1.1.0", capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingGates, ExpectedTime: ago(-time.Hour)})
	gated.Name = "shop-prod/rest-2"
	failed := promotion(p, 1, "prod/rest-1", "1.0.0", capstanv1.PromotionStatus{Phase: capstanv1.PhaseFailed})
	later := promotion(p, 3, "prod/rest-5", "1.0.0", capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded})
	f.Promotions = []capstanv1.Promotion{gated, failed, later}
	scope := Everything()
	scope.Approve = Namespaces{All: true}

	page, found := Pipeline(f, scope, "apps", "shop")
	g.Expect(found).To(BeTrue())
	g.Expect(page.Frame).To(HaveField("Waves", []string{"prod"}))
	g.Expect(data[PipelineHead](page, "head")[0].Mark).To(Equal(Mark{Warning, "Not ready"}))
	stages := data[Cell](page, "waves/prod")
	g.Expect(environments(stages)).To(Equal([]string{"prod/rest-1", "prod/rest-2", "prod/rest-3", "prod/rest-4", "prod/rest-5"}))
	g.Expect(environments(data[Cell](page, "environments")[2].Waves)).To(Equal([]string{"rest-1", "rest-2", "rest-3", "rest-4", "rest-5"}))
	g.Expect([]bool{stages[0].Notable(), stages[1].Notable(), stages[2].Notable(), stages[3].Notable(), stages[4].Notable()}).
		To(Equal([]bool{false, true, true, true, false}), "the targets of the others are closed")
	g.Expect(stages[1].Move).To(And(HaveField("Link", "#promotion/apps/shop-prod/rest-2"), HaveField("Expected", now.Add(time.Hour)), HaveField("Mark.Word", "Awaiting gates")))
	g.Expect(stages[2].Move).To(And(HaveField("Link", ""), HaveField("Approve", ApprovePath("apps", "shop-prod/rest-3"))), "the page does not list it")
	g.Expect(stages[3].Lead()).To(And(HaveField("Cluster.Name", "eu-3-1"), HaveField("Mark.Word", "Not ready")))
	g.Expect(stages[3].Fleet).To(And(HaveField("Targets", int32(100)), HaveField("Unlisted", 80)))

	prod := data[Matrix](page, "matrix")[0].Rows[2]
	g.Expect(prod).To(And(HaveField("Environment", "prod"), HaveField("Cells", HaveLen(2))))
	g.Expect(prod.Cells[0]).To(And(HaveField("Targets", 500), HaveField("Running", 400), HaveField("Wave", "rest-1"), HaveField("Promotion.Mark.Word", "Failed")),
		"a newer promotion into another wave does not hide one that failed")
	g.Expect(prod.Cells[1]).To(And(HaveField("Targets", 500), HaveField("Running", 100), HaveField("Wave", "rest-2")))

	// Promotions from before the environment had waves are not lost.
	f.Promotions = []capstanv1.Promotion{promotion(p, 1, "prod", "1.0.0", capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded})}
	page, _ = Pipeline(f, scope, "apps", "shop")
	g.Expect(data[Matrix](page, "matrix")[0].Rows[2].Cells[0]).To(And(HaveField("Wave", ""), HaveField("Promotion.Number", int64(1))))
}

// The page of a cluster, and the timeline, have the names of the stages.
func TestStagesElsewhere(t *testing.T) {
	g := NewWithT(t)
	f := facts()
	p := inWaves(f, 5, 25)
	f.Promotions = []capstanv1.Promotion{promotion(p, 1, "prod/rest-4", "1.1.0", capstanv1.PromotionStatus{Phase: capstanv1.PhaseFailed})}
	f.Connections[0].Spec.ClusterRef.Name = "eu-3-1"
	page, found := ClusterDetail(f, Everything(), cluster("eu-3-1"))
	g.Expect(found).To(BeTrue())
	g.Expect(data[App](page, "apps")).To(HaveExactElements(HaveField("Environment", "prod/rest-4")))
	g.Expect(data[Entry](page, "entries")).To(HaveExactElements(HaveField("Environment", "prod/rest-4")))
	g.Expect(data[Entry](Promotions(f, Everything(), Query{Search: "prod/rest-4"}), "entries")).To(HaveExactElements(HaveField("Environment", "prod/rest-4")))
}
