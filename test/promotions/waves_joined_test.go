package promotions_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/labels"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
)

// A cluster joins a wave that has agreed on nothing yet, after its promotion was created.
func TestJoinsBeforeTheFirstAgreement(t *testing.T) {
	t.Parallel()
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	p := w.newPipeline("web", notify(false), "dev", "prod")
	p.Spec.Environments[1].Targets, p.Spec.Environments[1].Waves = prodTargets(), rings()
	for name, set := range map[string]labels.Set{"eu-0": ring(0), "eu-1": ring(1), "eu-2": ring(1), "eu-3": ring(2)} {
		w.label(name, set)
	}
	g.Expect(w.c.Create(ctx, p)).To(Succeed())
	h := w.hub("hub", w.c, nil)
	h.settle(ctx)
	for name, revision := range map[string]string{"dev": "1.1", "eu-0": "1.1", "eu-1": "0.8", "eu-2": "0.9", "eu-3": "0.9"} {
		w.runs(name, revision)
	}
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod/early", capstanv1.PhaseAwaitingRollout)
	w.label("eu-8", ring(1))
	h.settle(ctx)
	w.runs("eu-8", "0.9")
	w.runs("eu-1", "1.1")
	w.runs("eu-2", "1.1")
	h.settle(ctx)
	h.live(ctx, 24*time.Hour, time.Hour)
	g.Expect(w.newest(ctx, "prod/early").Spec.Wave.Clusters).To(ContainElement(w.ns+"/eu-8"), "nothing else changes its manifest")
}

// A cluster joins a wave whose clusters have no time to join: it gets a promotion at once.
func TestJoinWithinZero(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := wavesOf(t, rings(), threeRings(), func(p *pipelinesv1.Pipeline) {
		p.Spec.Environments[1].Quorum = &pipelinesv1.Quorum{JoinWithin: "0s"}
	})
	for _, c := range []string{"eu-0", "eu-1", "eu-2", "eu-3", "eu-4"} {
		w.runs(c, "1.1")
		h.settle(ctx)
	}
	w.expectPhase(ctx, g, "prod/rest", capstanv1.PhaseSucceeded)
	w.label("eu-8", ring(1))
	h.settle(ctx)
	w.runs("eu-8", "1.0")
	h.settle(ctx)
	h.live(ctx, 24*time.Hour, time.Hour)
	g.Expect(w.newest(ctx, "prod/early").Spec.Wave.Clusters).To(ContainElement(w.ns + "/eu-8"))
}

// The only cluster of a wave is replaced by another one while its promotion waits for the soak of the wave before.
func TestTheClusterOfAWaveIsReplaced(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := wavesOf(t, rings(func(waves []pipelinesv1.Wave) { waves[0].Soak = &pipelinesv1.Soak{For: "2h"} }),
		map[string]labels.Set{"eu-0": ring(0), "eu-1": ring(1), "eu-3": ring(2)})
	w.runs("eu-0", "1.1")
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod/early", capstanv1.PhaseAwaitingGates)
	w.label("eu-1", nil)
	w.label("eu-7", ring(1))
	h.settle(ctx)
	w.runs("eu-7", "0.7")
	h.settle(ctx)
	h.live(ctx, 24*time.Hour, time.Hour)
	g.Expect(w.sentTo("prod/early")).To(ContainElement("1.1"))
}

// A quorum that runs the revision does not end the promotion that brings it to a cluster that joined.
func TestAClusterThatJoinsAWaveWithAQuorumIsPromotedTo(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*pipelinesv1.Pipeline){
		"plain": func(*pipelinesv1.Pipeline) {}, "verified": verifiedOrBack,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, ctx, w, h := wavesOf(t, rings(), threeRings(), change, func(p *pipelinesv1.Pipeline) {
				p.Spec.Environments[1].Quorum = &pipelinesv1.Quorum{Ready: "60%"}
			})
			w.runsInAll(ctx, h, "1.1")
			before := len(w.into(ctx, "prod/early"))
			w.label("eu-8", ring(1))
			h.settle(ctx)
			w.runs("eu-8", "1.0")
			h.settle(ctx)
			g.Expect(w.wave(ctx, "early").Fleet.Required).To(BeNumerically("<", 3), "it is not needed")
			h.live(ctx, 35*time.Minute, 5*time.Minute)
			g.Expect(w.lastSentTo("eu-8")).To(Equal("1.1"))
			h.live(ctx, 2*time.Hour, 10*time.Minute)
			w.expectPhase(ctx, g, "prod/early", capstanv1.PhaseSucceeded)
			g.Expect(w.newest(ctx, "prod/early").Status.Attempt).NotTo(BeNil())
			g.Expect(len(w.into(ctx, "prod/early"))-before).To(Equal(1), "once")
		})
	}
}

// A cluster that joined and does not become ready does not fail the promotion for it: the wave runs the revision.
func TestAClusterThatJoinedIsBroken(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := wavesOf(t, rings(), threeRings(), verifiedOrBack, func(p *pipelinesv1.Pipeline) {
		p.Spec.Environments[1].Verification.RolloutDeadline = "20m"
	})
	w.runsInAll(ctx, h, "1.1")
	w.label("eu-8", ring(1))
	h.settle(ctx)
	w.runs("eu-8", "1.0")
	w.unready("eu-8", "1.0", false)
	h.settle(ctx)
	h.live(ctx, 35*time.Minute, 5*time.Minute)
	g.Expect(w.lastSentTo("eu-8")).To(Equal("1.1"))
	w.expectPhase(ctx, g, "prod/early", capstanv1.PhaseAwaitingRollout)
	h.live(ctx, 5*time.Hour, 30*time.Minute)
	w.expectPhase(ctx, g, "prod/early", capstanv1.PhaseAwaitingRollout)
	g.Expect(w.lastSentTo("eu-1")).To(Equal("1.1"))
	// The deadline holds for those that the wave had before.
	w.unready("eu-1", "1.1", false)
	h.settle(ctx)
	h.live(ctx, time.Hour, 10*time.Minute)
	g.Expect(w.newest(ctx, "prod/early").Spec.RollbackOf).NotTo(BeNil())
}

// A cluster joins a wave while its revision is verified, and runs it already: the verification ends.
func TestAClusterJoinsDuringAVerification(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := wavesOf(t, rings(), threeRings(), verifiedOrBack)
	w.runs("eu-0", "1.1")
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod/canary", capstanv1.PhaseVerifying)
	w.label("eu-9", ring(0))
	h.settle(ctx)
	w.runs("eu-9", "1.1")
	h.settle(ctx)
	h.live(ctx, 40*time.Minute, 5*time.Minute)
	w.expectReason(ctx, g, "prod/canary", capstanv1.PhaseSucceeded, decision.Verified)
}

// Two clusters join a wave whose quorum runs the revision, and one of them moves before the promotion for both is sent: the other one
// gets the revision nevertheless.
func TestOneOfTwoThatJoinedMoves(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := wavesOf(t, rings(), threeRings(), func(p *pipelinesv1.Pipeline) {
		p.Spec.Environments[1].Quorum = &pipelinesv1.Quorum{Ready: "51%"}
	})
	w.label("eu-5", ring(1))
	w.label("eu-6", ring(1))
	h.settle(ctx)
	w.runs("eu-5", "1.1")
	w.runs("eu-6", "1.1")
	w.runsInAll(ctx, h, "1.1")
	for _, c := range []string{"eu-8", "eu-9"} {
		w.label(c, ring(1))
		h.settle(ctx)
		w.runs(c, "1.0")
	}
	h.settle(ctx)
	w.receiver.fail = 1000
	h.live(ctx, 35*time.Minute, 5*time.Minute)
	w.expectPhase(ctx, g, "prod/early", capstanv1.PhasePromoting)
	w.label("eu-9", ring(2))
	h.settle(ctx)
	w.receiver.fail = 0
	h.live(ctx, time.Hour, 5*time.Minute)
	g.Expect(w.lastSentTo("eu-8")).To(Equal("1.1"))
}
