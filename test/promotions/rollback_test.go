package promotions_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo/gittest"
)

// rollsBack makes the Pipeline roll back what fails.
func rollsBack(mode pipelinesv1.RollbackMode) func(*pipelinesv1.Pipeline) {
	return func(p *pipelinesv1.Pipeline) { p.Spec.Rollback = &pipelinesv1.Rollback{Mode: mode} }
}

// degrades lets an environment, which runs a revision, be unready for longer than tolerated.
func (h *hubUnder) degrades(ctx context.Context, env, revision string) {
	h.w.Helper()
	h.w.runs(env, revision)
	h.settle(ctx)
	h.w.unready(env, revision, false)
	h.settle(ctx)
	h.live(ctx, 6*time.Minute, time.Minute)
}

// failedInStaging is a world whose revision 1.1 failed in staging, where 1.0 had been verified. Pipelines roll back.
func failedInStaging(t *testing.T) (*WithT, context.Context, *world, *hubUnder) {
	t.Helper()
	g, ctx, w, h := verified(t, halfAnHour)
	w.edit(ctx, rollsBack(pipelinesv1.RollbackPromote))
	h.degrades(ctx, "staging", "1.1")
	return g, ctx, w, h
}

// revisions returns those of all promotions into an environment, by number.
func (w *world) revisions(ctx context.Context, env string) []string {
	var all []string
	for _, p := range w.into(ctx, env) {
		all = append(all, p.Spec.Revision)
	}
	return all
}

// expectEvent checks that the hub published an Event of a reason.
func (h *hubUnder) expectEvent(g Gomega, reason, text string) {
	h.w.Helper()
	g.ExpectWithOffset(1, h.published()).To(ContainElement(And(ContainSubstring(" "+reason+" "), ContainSubstring(text))))
}

// G29: a revision fails, and the one before is promoted again, once. Nothing new comes for a day: the bad revision
// stays out. The next revision goes.
func TestG29RolledBackAndHeld(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := failedInStaging(t)
	g.Expect(w.revisions(ctx, "staging")).To(Equal([]string{"1.0", "1.1", "1.0"}))
	bad, rollback := w.into(ctx, "staging")[1], w.newest(ctx, "staging")
	g.Expect(bad.Status.Reason).To(Equal(string(decision.Degraded)))
	g.Expect(rollback.Spec.RollbackOf).To(Equal(&capstanv1.RollbackReference{Name: bad.Name, Number: bad.Spec.Number}))
	g.Expect(rollback.Spec.Hold).To(Equal(&capstanv1.Hold{UntilSequence: bad.Spec.Source.Sequence}))
	g.Expect(rollback.Spec.Source).To(Equal(capstanv1.PromotionSource{Environment: "dev"}))
	h.expectEvent(g, "RolledBack", `Environment "staging" is rolled back from 1.1 to 1.0`)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingRollout)

	w.runs("staging", "1.0")
	h.settle(ctx)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseVerifying)
	h.live(ctx, 31*time.Minute, 10*time.Minute)
	w.expectReason(ctx, g, "staging", capstanv1.PhaseSucceeded, decision.Verified)
	sent := len(w.receiver.received())
	h.live(ctx, 24*time.Hour, time.Hour)
	g.Expect(w.receiver.received()).To(HaveLen(sent))
	g.Expect(w.revisions(ctx, "staging")).To(Equal([]string{"1.0", "1.1", "1.0"}))
	g.Expect(w.newest(ctx, "prod").Spec.Revision).To(Equal("1.0"))

	w.runs("dev", "1.2")
	h.settle(ctx)
	g.Expect(w.newest(ctx, "staging").Spec).To(And(HaveField("Revision", "1.2"), HaveField("Hold", BeNil()), HaveField("RollbackOf", BeNil())))
	w.runs("staging", "1.2")
	h.settle(ctx)
	h.live(ctx, 31*time.Minute, 10*time.Minute)
	w.expectReason(ctx, g, "staging", capstanv1.PhaseSucceeded, decision.Verified)
	g.Expect(w.newest(ctx, "prod").Spec.Revision).To(Equal("1.2"), "it is promoted further")
}

// G30: the rollback fails too. There is no third.
func TestG30TheRollbackFailsToo(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := failedInStaging(t)
	h.degrades(ctx, "staging", "1.0")
	w.expectReason(ctx, g, "staging", capstanv1.PhaseFailed, decision.Degraded)
	h.live(ctx, 3*time.Hour, 20*time.Minute)
	g.Expect(w.revisions(ctx, "staging")).To(Equal([]string{"1.0", "1.1", "1.0"}))
	g.Expect(w.pipeline(ctx, "web").Status.Conditions).To(ContainElement(And(
		HaveField("Type", pipelinesv1.StalledCondition), HaveField("Reason", pipelinesv1.PromotionFailedReason))))
}

// G31: 2.0.0 fails, 1.0 ran before, and rollbacks go back within minor versions. An Event says so.
func TestG31TooFarBack(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := verified(t, halfAnHour)
	w.edit(ctx, rollsBack(pipelinesv1.RollbackPromote))
	w.runs("dev", "2.0.0")
	h.settle(ctx)
	h.degrades(ctx, "staging", "2.0.0")
	w.expectReason(ctx, g, "staging", capstanv1.PhaseFailed, decision.Degraded)
	advice := "it is not rolled back to 1.0: 2.0.0 to 1.0 is further back than spec.rollback.within (Minor); create a PromotionRequest with rollback: {} to do so"
	g.Expect(w.pipeline(ctx, "web").Status.Environments["staging"].RollbackAdvice).To(Equal(advice))
	h.expectEvent(g, "NotRolledBack", advice)
	sent := len(w.receiver.received())
	h.live(ctx, 2*time.Hour, 20*time.Minute)
	g.Expect(w.receiver.received()).To(HaveLen(sent))

	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Rollback.Within = pipelinesv1.RollbackAny })
	h.settle(ctx)
	g.Expect(w.newest(ctx, "staging").Spec.Revision).To(Equal("1.0"), "an edit takes effect at once")
	g.Expect(w.pipeline(ctx, "web").Status.Environments["staging"].RollbackAdvice).To(BeEmpty())
}

// Without a verdict nothing is rolled back, and with the mode Notify users decide.
func TestOnlyFailuresAreRolledBack(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := verified(t, pipelinesv1.Verification{For: "30m", Tolerate: "6h", Deadline: "1h"})
	w.edit(ctx, rollsBack(pipelinesv1.RollbackPromote))
	w.runs("staging", "1.1")
	h.settle(ctx)
	w.unready("staging", "1.1", false)
	h.settle(ctx)
	h.live(ctx, 61*time.Minute, 10*time.Minute)
	w.expectReason(ctx, g, "staging", capstanv1.PhaseFailed, decision.Inconclusive)
	g.Expect(w.revisions(ctx, "staging")).To(Equal([]string{"1.0", "1.1"}))

	w.edit(ctx, func(p *pipelinesv1.Pipeline) {
		p.Spec.Verification.Tolerate, p.Spec.Rollback.Mode = "5m", pipelinesv1.RollbackNotify
	})
	w.runs("dev", "1.2")
	h.settle(ctx)
	h.degrades(ctx, "staging", "1.2")
	w.expectReason(ctx, g, "staging", capstanv1.PhaseFailed, decision.Degraded)
	h.expectEvent(g, "NotRolledBack", "spec.rollback has the mode Notify")
	g.Expect(w.revisions(ctx, "staging")).To(Equal([]string{"1.0", "1.1", "1.2"}))
}

// A roll-out that takes too long is rolled back, also while targets cannot be observed afterwards.
func TestALateRolloutIsRolledBack(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := verified(t, halfAnHour)
	w.edit(ctx, rollsBack(pipelinesv1.RollbackPromote))
	h.live(ctx, 21*time.Minute, time.Minute)
	g.Expect(w.revisions(ctx, "staging")).To(Equal([]string{"1.0", "1.1", "1.0"}))
	// Staging still runs 1.0. The receiver gets the rollback all the same: it has 1.1.
	g.Expect(w.sent("staging", "1.0")).To(HaveLen(1))
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseVerifying)
	g.Expect(w.into(ctx, "staging")[1].Status.Reason).To(Equal(string(decision.RolloutDeadline)))
}

// The gates of a new revision do not apply to a rollback; an approval does, and so does a PromotionWindow that stops
// everything.
func TestGatesOfARollback(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := verified(t, halfAnHour)
	w.edit(ctx, func(p *pipelinesv1.Pipeline) {
		p.Spec.Rollback = &pipelinesv1.Rollback{Mode: pipelinesv1.RollbackPromote}
		p.Spec.Environments[1].Gates = frozen()
		p.Spec.Environments[1].Gates.Soak = &pipelinesv1.Soak{For: "24h"}
		p.Spec.Environments[1].Promotion = notify(true)
	})
	stop := w.window(ctx, "stop", stopButton)
	h.degrades(ctx, "staging", "1.1")
	rollback := w.newest(ctx, "staging")
	g.Expect(rollback.Spec).To(And(HaveField("Revision", "1.0"), HaveField("Manual", true)))
	g.Expect(rollback.Status).To(And(HaveField("Phase", capstanv1.PhaseAwaitingGates), HaveField("Gates", ConsistOf(HaveField("Name", capstanv1.GatePromotionWindows)))))

	stop.Spec.Rollbacks = capstanv1.AllowRollbacks
	g.Expect(w.c.Update(ctx, stop)).To(Succeed())
	h.live(ctx, openWithin, openWithin)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingApproval)
	approve(ctx, g, w, w.newest(ctx, "staging"))
	h.settle(ctx)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingRollout)
	g.Expect(w.c.Delete(ctx, stop)).To(Succeed())
}

// An error in the gates of an environment, which do not apply to a rollback, does not stop one.
func TestInvalidGatesDoNotStopARollback(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := verified(t, halfAnHour)
	w.edit(ctx, rollsBack(pipelinesv1.RollbackPromote))
	w.runs("staging", "1.1")
	h.settle(ctx)
	w.edit(ctx, func(p *pipelinesv1.Pipeline) {
		p.Spec.Gates = frozen()
		p.Spec.Gates.Windows[0].TimeZone = "Nowhere/Land"
	})
	h.degrades(ctx, "staging", "1.1")
	g.Expect(w.newest(ctx, "staging")).To(And(HaveField("Spec.Revision", "1.0"), HaveField("Spec.RollbackOf.Number", int64(2)), HaveField("Status.Phase", capstanv1.PhaseAwaitingRollout)))
	w.runs("dev", "1.2")
	h.delivers(ctx, "staging")
	h.live(ctx, 31*time.Minute, 10*time.Minute)
	g.Expect(w.newest(ctx, "staging").Spec.Revision).To(Equal("1.0"), "nothing but a rollback is promoted")
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates = nil })
	h.settle(ctx)
	g.Expect(w.newest(ctx, "staging").Spec.Revision).To(Equal("1.2"))
}

// The strategy of a rollback that cannot be carried out is corrected. It is made again with it, once.
func TestTheStrategyOfARollbackIsEdited(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := verified(t, halfAnHour)
	w.edit(ctx, func(p *pipelinesv1.Pipeline) {
		p.Spec.Rollback = &pipelinesv1.Rollback{Mode: pipelinesv1.RollbackPromote}
		p.Spec.Environments[1].Promotion = notify(true)
	})
	h.degrades(ctx, "staging", "1.1")
	waits := w.newest(ctx, "staging")
	g.Expect(waits.Status.Phase).To(Equal(capstanv1.PhaseAwaitingApproval))
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Environments[1].Promotion = notify(false) })
	h.settle(ctx)
	rollback := w.newest(ctx, "staging")
	g.Expect(rollback.Spec).To(And(HaveField("Revision", "1.0"), HaveField("RollbackOf", waits.Spec.RollbackOf), HaveField("Hold", waits.Spec.Hold), HaveField("Manual", false)))
	g.Expect(rollback.Status.Phase).To(Equal(capstanv1.PhaseAwaitingRollout))
	h.delivers(ctx, "staging")
	h.live(ctx, 24*time.Hour, time.Hour)
	g.Expect(w.revisions(ctx, "staging")).To(Equal([]string{"1.0", "1.1", "1.0", "1.0"}))
	w.expectReason(ctx, g, "staging", capstanv1.PhaseSucceeded, decision.Verified)
}

// Ruling 16: spec.retry of a promotion that was rolled back has no effect, and says what has.
func TestARetryOfWhatWasRolledBackIsIgnored(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := failedInStaging(t)
	bad := w.into(ctx, "staging")[1]
	bad.Spec.Retry = 1
	g.Expect(w.c.Update(ctx, &bad)).To(Succeed())
	h.settle(ctx)
	bad = w.into(ctx, "staging")[1]
	g.Expect(bad.Status.Phase).To(Equal(capstanv1.PhaseFailed))
	g.Expect(bad.Status.Conditions).To(ContainElement(And(HaveField("Type", capstanv1.RetryIgnoredCondition),
		HaveField("Message", ContainSubstring("create a PromotionRequest with pipeline: web, environment: staging and revision: 1.1")))))
	h.expectEvent(g, "RetryIgnored", "create a PromotionRequest")
	g.Expect(w.revisions(ctx, "staging")).To(HaveLen(3))
}

// G46: newer revisions come during an open rollback pull request. It is not superseded, and they wait for it.
func TestG46ANewerRevisionDuringARollback(t *testing.T) {
	t.Parallel()
	for name, host := range services {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
			host(t, w)
			h := w.rolledBackByPullRequest(ctx, g)
			rollback := w.newest(ctx, "staging")
			w.runs("dev", "1.2")
			h.rest(ctx)
			w.runs("dev", "1.3")
			h.rest(ctx)
			g.Expect(w.newest(ctx, "staging")).To(And(HaveField("Name", rollback.Name), HaveField("Status.Phase", capstanv1.PhaseAwaitingMerge)))
			w.hosted.merge(w.hosted.opened("staging")[0])
			h.rest(ctx)
			g.Expect(w.hosted.wants("staging")).To(Equal("1.0"), "Git has the old revision again")
			w.runs("staging", "1.0")
			h.settle(ctx)
			h.live(ctx, 2*time.Minute, time.Minute)
			g.Expect(w.newest(ctx, "staging").Spec.Revision).To(Equal("1.3"))
			g.Expect(w.revisions(ctx, "staging")).To(Equal([]string{"1.0", "1.1", "1.0", "1.3"}))
		})
	}
}

// rolledBackByPullRequest sets up a Pipeline that promotes by pull request at the service of the world. 1.1 has failed
// in staging, and the pull request that puts 1.0 back is open.
func (w *world) rolledBackByPullRequest(ctx context.Context, g Gomega) *hubUnder {
	w.Helper()
	p := w.newPipeline("web", w.pull(nil), "dev", "staging")
	p.Spec.Verification = &pipelinesv1.Verification{For: "1m"}
	p.Spec.Rollback = &pipelinesv1.Rollback{Mode: pipelinesv1.RollbackPromote}
	h := w.began(ctx, p)
	h.live(ctx, 2*time.Minute, time.Minute)
	w.expectReason(ctx, g, "staging", capstanv1.PhaseSucceeded, decision.Verified)
	w.runs("dev", "1.1")
	h.settle(ctx)
	w.hosted.merge(w.hosted.opened("staging")[0])
	h.rest(ctx)
	g.Expect(w.hosted.wants("staging")).To(Equal("1.1"))
	h.degrades(ctx, "staging", "1.1")
	g.Expect(w.into(ctx, "staging")[1].Status.Reason).To(Equal(string(decision.Degraded)))
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingMerge)
	g.Expect(w.hosted.opened("staging")).To(HaveLen(1))
	g.Expect(w.hosted.wants("staging")).To(Equal("1.1"), "not merged yet")
	return h
}

// G29 by pull request: the rollback is one pull request that puts the old revision back. When it is closed by a user, the
// bad revision still stays out, and there is no second one.
func TestG29ARollbackByPullRequest(t *testing.T) {
	t.Parallel()
	for name, host := range services {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
			host(t, w)
			h := w.rolledBackByPullRequest(ctx, g)
			w.hosted.merge(w.hosted.opened("staging")[0])
			h.rest(ctx)
			w.runs("staging", "1.0")
			h.settle(ctx)
			h.live(ctx, 24*time.Hour, time.Hour)
			w.expectReason(ctx, g, "staging", capstanv1.PhaseSucceeded, decision.Verified)
			g.Expect(w.revisions(ctx, "staging")).To(Equal([]string{"1.0", "1.1", "1.0"}))
			g.Expect(w.hosted.opened("staging")).To(BeEmpty())
			g.Expect(w.hosted.doubled()).To(BeEmpty())
		})
	}
}

// A person puts the old revision back in Git before the rollback's pull request is merged. The rollback ends, and nothing
// is left open.
func TestARollbackThatAPersonMade(t *testing.T) {
	t.Parallel()
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	newForge(t, w, pipelinesv1.Gitea, "staging")
	h := w.rolledBackByPullRequest(ctx, g)
	w.forge.Commit(gittest.Base, "by hand", map[string]string{manifestOf("staging"): w.manifest("staging", "1.0")})
	w.runs("staging", "1.0")
	h.settle(ctx)
	h.live(ctx, 2*time.Hour, 5*time.Minute)
	w.expectReason(ctx, g, "staging", capstanv1.PhaseSucceeded, decision.Verified)
	g.Expect(w.revisions(ctx, "staging")).To(Equal([]string{"1.0", "1.1", "1.0"}))
	g.Expect(w.hosted.opened("staging")).To(BeEmpty())
}

// A rollback is verified as soon as the targets run its revision: the pull request, which is checked seldom when it is old, is
// then checked at once.
func TestAMergedRollbackIsNoticedWhenItIsRolledOut(t *testing.T) {
	t.Parallel()
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	newForge(t, w, pipelinesv1.Gitea, "staging")
	h := w.rolledBackByPullRequest(ctx, g)
	h.live(ctx, time.Hour, time.Minute)
	w.hosted.merge(w.hosted.opened("staging")[0])
	h.settle(ctx)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingMerge)
	w.runs("staging", "1.0")
	h.settle(ctx)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseVerifying)
}

// One hub after another is killed at any outside call while a revision fails and is rolled back. There is one rollback
// for each failure, it is sent once, and nothing else is.
func TestKilledDuringRollbacks(t *testing.T) {
	t.Parallel()
	runs := 5 // of about six kills each
	if soak() {
		runs = 80
	}
	atRandom(t, runs, func(t *testing.T, random *rand.Rand, _ uint64) {
		g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
		c := withoutWindows(w.c)
		p := w.newPipeline("web", notify(false), "dev", "staging")
		p.Spec.Verification = &pipelinesv1.Verification{For: "20m"}
		p.Spec.Rollback = &pipelinesv1.Rollback{Mode: pipelinesv1.RollbackPromote}
		h := w.began(ctx, p)
		h.live(ctx, 30*time.Minute, 10*time.Minute)
		killed := 0
		doom := func() (*hubUnder, *killer) {
			k := &killer{at: random.IntN(100) + 1, after: random.IntN(2) == 0}
			return w.hub("doomed", k.client(c), k), k
		}
		h, k := doom()
		process := k.process(ctx)
		carrier := &team{w: w}
		w.runs("dev", "1.1")
		for range 300 {
			for range random.IntN(4) + 1 {
				h.pass(process)
			}
			if k.over() {
				killed++
				k.end()
				h, k = doom()
				process = k.process(ctx)
			}
			newest := w.newest(ctx, "staging")
			if newest.Spec.RollbackOf != nil && newest.Status.Phase.Finished() {
				break
			}
			if !carrier.act() && newest.Spec.Revision == "1.1" && newest.Status.Phase == capstanv1.PhaseVerifying {
				w.unready("staging", "1.1", false)
			}
			w.clock.Step(6 * time.Minute)
		}
		k.end()
		t.Logf("killed %d hubs", killed)
		last := w.hub("last", c, nil)
		w.clock.Step(afterClaim)
		last.settle(ctx)
		last.live(ctx, time.Hour, 10*time.Minute)
		all := w.into(ctx, "staging")
		g.Expect(killed).To(BeNumerically(">", 0))
		g.Expect(w.revisions(ctx, "staging")).To(Equal([]string{"1.0", "1.1", "1.0"}), "%s", w.print(ctx))
		g.Expect(all[2].Spec.RollbackOf).NotTo(BeNil())
		g.Expect(w.receiver.ids).To(HaveLen(2), "each has one identity")
	})
}
