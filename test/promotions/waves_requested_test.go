package promotions_test

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/labels"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
)

// A later wave got the revision by hand before the first one got it with an approval, which is for all waves.
func TestALaterWaveThatHasTheRevisionAlready(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := wavesOf(t, rings(), threeRings(), func(p *pipelinesv1.Pipeline) { p.Spec.Promotion.Manual = true })
	w.runs("eu-1", "1.1")
	w.runs("eu-2", "1.1")
	h.settle(ctx)
	approve(ctx, g, w, w.newest(ctx, "prod/canary"))
	h.settle(ctx)
	w.runs("eu-0", "1.1")
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod/canary", capstanv1.PhaseSucceeded)
	h.live(ctx, 24*time.Hour, time.Hour)
	g.Expect(w.sentTo("prod/rest")).To(ContainElement("1.1"), "1.1 was approved for all waves, and early runs it")
}

// A cluster joined the first wave after the approval, and its own promotion ended without one, because the cluster was upgraded by hand:
// the approval still is for all waves.
func TestAnApprovalOutlivesAClusterThatJoined(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := wavesOf(t, rings(), threeRings(), func(p *pipelinesv1.Pipeline) { p.Spec.Promotion.Manual = true })
	approve(ctx, g, w, w.newest(ctx, "prod/canary"))
	h.settle(ctx)
	w.runsInAll(ctx, h, "1.1")
	w.label("eu-9", ring(0))
	h.settle(ctx)
	w.runs("eu-9", "1.0")
	h.settle(ctx)
	h.live(ctx, 35*time.Minute, 5*time.Minute)
	w.expectPhase(ctx, g, "prod/canary", capstanv1.PhaseAwaitingApproval)
	w.runs("eu-9", "1.1") // By hand.
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod/canary", capstanv1.PhaseSucceeded)
	w.unready("eu-9", "1.1", true)
	h.settle(ctx)
	g.Expect(w.into(ctx, "prod/canary")).To(HaveLen(2), "its controller is at work on what it has")
	w.label("eu-8", ring(1))
	h.settle(ctx)
	w.runs("eu-8", "1.0")
	w.runs("eu-9", "1.1")
	h.settle(ctx)
	h.live(ctx, 35*time.Minute, 5*time.Minute)
	g.Expect(w.lastSentTo("eu-8")).To(Equal("1.1"))
}

// The first wave failed its verification, and a retry finds the revision there, which works now. It was approved before it came there.
func TestAnApprovalOutlivesARetry(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := wavesOf(t, rings(), threeRings(), func(p *pipelinesv1.Pipeline) {
		p.Spec.Promotion.Manual = true
		p.Spec.Environments[1].Verification = &pipelinesv1.Verification{For: "30m", Tolerate: "5m"}
	})
	approve(ctx, g, w, w.newest(ctx, "prod/canary"))
	h.settle(ctx)
	w.runs("eu-0", "1.1")
	h.settle(ctx)
	w.unready("eu-0", "1.1", false)
	h.settle(ctx)
	h.live(ctx, 6*time.Minute, time.Minute)
	w.expectReason(ctx, g, "prod/canary", capstanv1.PhaseFailed, decision.Degraded)
	w.runs("eu-0", "1.1")
	h.settle(ctx)
	p := w.newest(ctx, "prod/canary")
	p.Spec.Retry = 1
	g.Expect(w.c.Update(ctx, &p)).To(Succeed())
	h.settle(ctx)
	h.live(ctx, 35*time.Minute, 5*time.Minute)
	w.expectReason(ctx, g, "prod/canary", capstanv1.PhaseSucceeded, decision.Verified)
	g.Expect(w.sentTo("prod/early")).To(ContainElement("1.1"))
}

// A later wave is rolled back by request to a revision that succeeded there, although the first wave, which was renamed, had no promotion.
func TestARollbackOfALaterWaveAfterARename(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := wavesOf(t, rings(), threeRings(), func(p *pipelinesv1.Pipeline) { p.Spec.Promotion.Manual = true })
	for _, revision := range []string{"1.1", "1.2"} {
		w.runs("dev", revision)
		h.settle(ctx)
		approve(ctx, g, w, w.newest(ctx, "prod/canary"))
		h.settle(ctx)
		for _, c := range []string{"eu-0", "eu-1", "eu-2", "eu-3", "eu-4"} {
			w.runs(c, revision)
			h.settle(ctx)
		}
		w.expectPhase(ctx, g, "prod/rest", capstanv1.PhaseSucceeded)
	}
	p := w.pipeline(ctx, "web")
	p.Spec.Environments[1].Waves[0].Name = "pilot"
	g.Expect(w.c.Update(ctx, p)).To(Succeed())
	h.settle(ctx)
	w.ask(ctx, "back", "prod/early", "")
	h.settle(ctx)
	g.Expect(w.outcome(ctx, "back")).To(HaveField("Phase", capstanv1.RequestPromoted))
}

// A rollback is requested while it is not known which clusters are selected: it waits, so that it is not for a part of the wave.
func TestARollbackOfAWaveWhoseClustersAreNotKnown(t *testing.T) {
	t.Parallel()
	all := map[string]labels.Set{}
	for i := range 120 {
		all[eu(i)] = ofProd
	}
	g, ctx, w, h := wavesOf(t, []pipelinesv1.Wave{{Name: "rest"}}, all)
	for i := range 120 {
		w.runs(eu(i), "1.1")
	}
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod/rest", capstanv1.PhaseSucceeded)
	w.runs("dev", "1.2")
	h.settle(ctx)
	for i := range 120 {
		w.runs(eu(i), "1.2")
	}
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod/rest", capstanv1.PhaseSucceeded)
	w.clusters.fail(fmt.Errorf("%w: connection refused", clusters.ErrNotSynced))
	restarted := w.hub("restarted", w.c, nil)
	restarted.settle(ctx)
	w.ask(ctx, "back", "prod/rest", "")
	restarted.settle(ctx)
	g.Expect(w.newest(ctx, "prod/rest").Spec.Request).To(BeNil())
	g.Expect(w.outcome(ctx, "back")).To(Equal(capstanv1.PromotionRequestStatus{
		ObservedGeneration: 1, Message: `waits: it is not known which clusters environment "prod" selects`,
	}))
	w.clusters.fail(nil)
	restarted.settle(ctx)
	p := w.newest(ctx, "prod/rest")
	g.Expect(p.Spec).To(And(HaveField("Revision", "1.1"), HaveField("Request", Not(BeNil())), HaveField("Wave.Clusters", HaveLen(120))))
}
