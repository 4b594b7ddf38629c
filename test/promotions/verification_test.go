package promotions_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/index"
)

// verified is a world with three environments that verify revisions. It is in staging that 1.1 was rolled
// out.
func verified(t *testing.T, v pipelinesv1.Verification) (*WithT, context.Context, *world, *hubUnder) {
	t.Helper()
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	p := w.newPipeline("web", notify(false), "dev", "staging", "prod")
	p.Spec.Verification = &v
	h := w.began(ctx, p)
	for _, env := range []string{"staging", "prod"} { // They had run 1.0 before, and verify it.
		w.expectPhase(ctx, g, env, capstanv1.PhaseVerifying)
		h.live(ctx, 40*time.Minute, 10*time.Minute)
		w.expectPhase(ctx, g, env, capstanv1.PhaseSucceeded)
	}
	g.Expect(w.receiver.received()).To(BeEmpty(), "nothing has to be carried out for that")
	w.runs("dev", "1.1")
	h.settle(ctx)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingRollout)
	return g, ctx, w, h
}

var halfAnHour = pipelinesv1.Verification{For: "30m", Tolerate: "5m", RolloutDeadline: "20m"}

// unready makes an application fail, or its controller work on it.
func (w *world) unready(env, revision string, progressing bool) {
	w.x.Observe(w.object(env), index.Observation{Found: true, Progressing: progressing, Revision: revision, At: w.clock.Now(), Reason: "Probing", Message: "the probe fails"})
}

// expectReason checks the phase of the newest promotion into an environment, and its reason.
func (w *world) expectReason(ctx context.Context, g Gomega, env string, phase capstanv1.PromotionPhase, reason decision.PhaseReason) {
	w.Helper()
	s := w.newest(ctx, env).Status
	g.ExpectWithOffset(1, s.Phase).To(Equal(phase), "%s: %s", s.Reason, s.Message)
	g.ExpectWithOffset(1, s.Reason).To(Equal(string(reason)), s.Message)
}

// A revision is promoted further when it was healthy for long enough, and not before. No event is needed.
func TestVerifiedRevisionTravels(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := verified(t, halfAnHour)
	w.runs("staging", "1.1")
	h.settle(ctx)
	p := w.newest(ctx, "staging")
	g.Expect(p.Status).To(And(HaveField("Phase", capstanv1.PhaseVerifying), HaveField("Reason", "RolledOut"),
		HaveField("Message", `every target of environment "staging" runs 1.1, and must be ready for 30m in all`)))
	end := w.clock.Now().Add(30 * time.Minute)
	g.Expect(p.Status.ExpectedTime.Time).To(BeTemporally("~", end, time.Second))
	for w.clock.Now().Before(end) {
		h.wakesBefore(ctx, g, end)
		w.expectPhase(ctx, g, "prod", capstanv1.PhaseSucceeded)
		p = w.newest(ctx, "staging")
		result, err := h.promotions.Reconcile(ctx, requestFor(&p))
		g.Expect(err).NotTo(HaveOccurred())
		w.clock.Step(min(result.RequeueAfter, end.Sub(w.clock.Now())))
	}
	h.settle(ctx)
	g.Expect(w.into(ctx, "staging")).To(ContainElement(And(HaveField("Spec.Revision", "1.1"), HaveField("Status.Reason", string(decision.Verified)))))
	w.expectReason(ctx, g, "prod", capstanv1.PhaseAwaitingRollout, decision.CarriedOut)
	g.Expect(w.newest(ctx, "prod").Spec.Revision).To(Equal("1.1"))
}

// G27, G45: a revision degrades while it is verified, and dev still runs it. It fails when it was
// unready for longer than tolerated, and prod never gets it.
func TestG27G45DegradedWhileVerifying(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := verified(t, halfAnHour)
	w.runs("staging", "1.1")
	h.settle(ctx)
	h.live(ctx, 10*time.Minute, time.Minute)
	w.unready("staging", "1.1", false)
	h.settle(ctx)
	g.Expect(w.newest(ctx, "staging").Status.Message).To(ContainSubstring("after 5m the promotion fails"))
	h.live(ctx, 5*time.Minute, time.Minute)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseVerifying)
	h.wakesBefore(ctx, g, w.clock.Now().Add(2*time.Second))
	h.live(ctx, 2*time.Second, time.Second)
	w.expectReason(ctx, g, "staging", capstanv1.PhaseFailed, decision.Degraded)

	for range 2 { // Neither its recovery nor the hour after which failures are tried again changes that.
		h.live(ctx, 2*time.Hour, 10*time.Minute)
		w.expectReason(ctx, g, "staging", capstanv1.PhaseFailed, decision.Degraded)
		w.runs("staging", "1.1")
		h.settle(ctx)
	}
	g.Expect(w.newest(ctx, "prod").Spec.Revision).To(Equal("1.0"))
	g.Expect(w.receiver.received()).To(HaveLen(1), "to staging")
	g.Expect(w.pipeline(ctx, "web").Status.Conditions).To(ContainElement(And(
		HaveField("Type", pipelinesv1.StalledCondition), HaveField("Reason", pipelinesv1.PromotionFailedReason))))

	w.runs("dev", "1.2")
	h.settle(ctx)
	w.runs("staging", "1.2")
	h.settle(ctx)
	h.live(ctx, 31*time.Minute, 5*time.Minute)
	g.Expect(w.newest(ctx, "prod")).To(And(HaveField("Spec.Revision", "1.2"), HaveField("Status.Phase", capstanv1.PhaseAwaitingRollout)))
}

// G28: a revision is verified again because a user raises spec.retry, and fails. It was promoted into
// prod before, and is not promoted there again.
func TestG28VerifiedAgainAndFailed(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := verified(t, halfAnHour)
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Environments[2].Gates = frozen() })
	w.runs("staging", "1.1")
	h.settle(ctx)
	h.live(ctx, 31*time.Minute, 5*time.Minute)
	w.expectReason(ctx, g, "staging", capstanv1.PhaseSucceeded, decision.Verified)
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Environments[2].Promotion = nil })
	p := w.newest(ctx, "staging")
	p.Spec.Retry = 1
	g.Expect(w.c.Update(ctx, &p)).To(Succeed())
	h.settle(ctx)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseVerifying)
	w.unready("staging", "1.1", false)
	h.settle(ctx)
	h.live(ctx, 6*time.Minute, time.Minute)
	w.expectReason(ctx, g, "staging", capstanv1.PhaseFailed, decision.Degraded)
	w.runs("staging", "1.1")
	h.settle(ctx)

	// A new environment would get the revision now.
	w.edit(ctx, func(p *pipelinesv1.Pipeline) {
		last := *p.Spec.Environments[2].DeepCopy()
		last.Name, last.Gates, last.Targets[0].ClusterRef.Name = "late", nil, "late"
		p.Spec.Environments[2] = last
	})
	h.settle(ctx)
	w.runs("late", "1.0")
	h.settle(ctx)
	h.live(ctx, time.Hour, 10*time.Minute)
	g.Expect(w.into(ctx, "late")).To(BeEmpty())
}

// G28 with spec.rollback: the newest promotion into staging is the rollback when prod's is judged.
func TestG28RolledBackWhileProdWaits(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := verified(t, halfAnHour)
	w.edit(ctx, func(p *pipelinesv1.Pipeline) {
		p.Spec.Rollback = &pipelinesv1.Rollback{Mode: pipelinesv1.RollbackPromote}
		p.Spec.Environments[2].Gates = frozen()
	})
	w.runs("staging", "1.1")
	h.settle(ctx)
	h.live(ctx, 31*time.Minute, 5*time.Minute)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingGates)
	p := w.newest(ctx, "staging")
	p.Spec.Retry++
	g.Expect(w.c.Update(ctx, &p)).To(Succeed())
	h.degrades(ctx, "staging", "1.1")
	g.Expect(w.newest(ctx, "staging").Spec.RollbackOf).To(HaveField("Name", p.Name))
	w.expectReason(ctx, g, "prod", capstanv1.PhaseSuperseded, decision.SourceFailed)
}

// G28: the same while prod waits to get the revision. Its promotion ends, and is made again when staging has
// verified the revision.
func TestG28VerifiedAgainAndFailedWhileProdWaits(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := verified(t, halfAnHour)
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Environments[2].Gates = frozen() })
	w.runs("staging", "1.1")
	h.settle(ctx)
	h.live(ctx, 31*time.Minute, 5*time.Minute)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingGates)
	again := func() {
		p := w.newest(ctx, "staging")
		p.Spec.Retry++
		g.Expect(w.c.Update(ctx, &p)).To(Succeed())
		h.settle(ctx)
		w.expectPhase(ctx, g, "staging", capstanv1.PhaseVerifying)
	}
	again()
	w.unready("staging", "1.1", false)
	h.settle(ctx)
	h.live(ctx, 6*time.Minute, time.Minute)
	w.expectReason(ctx, g, "staging", capstanv1.PhaseFailed, decision.Degraded)
	h.settle(ctx)
	w.expectReason(ctx, g, "prod", capstanv1.PhaseSuperseded, decision.SourceFailed)
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Environments[2].Gates = nil })
	w.runs("staging", "1.1")
	h.settle(ctx)
	h.live(ctx, time.Hour, 10*time.Minute)
	w.expectReason(ctx, g, "prod", capstanv1.PhaseSuperseded, decision.SourceFailed)
	again()
	h.live(ctx, 31*time.Minute, 5*time.Minute)
	w.expectReason(ctx, g, "prod", capstanv1.PhaseAwaitingRollout, decision.CarriedOut)
	g.Expect(w.newest(ctx, "prod").Spec.Revision).To(Equal("1.1"))
}

// An edit makes the whole Pipeline invalid while a revision is verified: nothing is observed, so the time
// does not count until the edit is corrected.
func TestInvalidPipelineWhileVerifying(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := verified(t, halfAnHour)
	w.runs("staging", "1.1")
	h.settle(ctx)
	h.live(ctx, 20*time.Minute, time.Minute)
	var name string
	w.edit(ctx, func(p *pipelinesv1.Pipeline) {
		name, p.Spec.Environments[2].Name = p.Spec.Environments[2].Name, "dev"
	})
	h.settle(ctx)
	h.live(ctx, time.Hour, time.Minute)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseVerifying)
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Environments[2].Name = name })
	h.settle(ctx)
	for env, runs := range map[string]string{"dev": "1.1", "staging": "1.1", "prod": "1.0"} {
		w.runs(env, runs)
	}
	h.settle(ctx)
	h.live(ctx, 9*time.Minute, time.Minute)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseVerifying)
	h.live(ctx, 2*time.Minute, time.Minute)
	w.expectReason(ctx, g, "staging", capstanv1.PhaseSucceeded, decision.Verified)
}

// A verification is set when staging has the revision already, and prod waits for it: it is verified in
// staging before prod gets it.
func TestVerificationOfWhatRuns(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := gated(t, nil, notify(false), "dev", "staging", "prod")
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Environments[2].Promotion = nil; p.Spec.Suspend = false })
	w.runs("dev", "1.1")
	h.settle(ctx)
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Environments[2].Gates = frozen() })
	w.runs("staging", "1.1")
	h.settle(ctx)
	w.expectReason(ctx, g, "staging", capstanv1.PhaseSucceeded, decision.RolledOut)
	sent := len(w.receiver.received())
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Environments[1].Verification = &halfAnHour })
	h.settle(ctx)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseVerifying)
	h.live(ctx, 31*time.Minute, 5*time.Minute)
	w.expectReason(ctx, g, "staging", capstanv1.PhaseSucceeded, decision.Verified)
	g.Expect(w.into(ctx, "staging")).To(HaveLen(2))
	g.Expect(w.receiver.received()).To(HaveLen(sent), "to verify it carries out nothing")
	h.live(ctx, time.Hour, 10*time.Minute)
	g.Expect(w.into(ctx, "staging")).To(HaveLen(2), "it is verified once")
}

// G46: dev gets a newer revision while staging verifies. The verification ends with its verdict; then the
// newer revision follows.
func TestG46NewerRevisionWhileVerifying(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := verified(t, halfAnHour)
	w.runs("staging", "1.1")
	h.settle(ctx)
	w.runs("dev", "1.2")
	h.settle(ctx)
	h.live(ctx, 29*time.Minute, time.Minute)
	g.Expect(w.newest(ctx, "staging")).To(And(HaveField("Spec.Revision", "1.1"), HaveField("Status.Phase", capstanv1.PhaseVerifying)))
	h.live(ctx, 2*time.Minute, time.Minute)
	g.Expect(w.newest(ctx, "staging")).To(And(HaveField("Spec.Revision", "1.2"), HaveField("Status.Phase", capstanv1.PhaseAwaitingRollout)))
	g.Expect(w.into(ctx, "staging")).To(ContainElement(And(HaveField("Spec.Revision", "1.1"), HaveField("Status.Reason", string(decision.Verified)))))
}

// G47: the cluster cannot be reached, or its controller is at work, for much longer than all deadlines,
// and the hub restarts meanwhile. Nothing fails, neither in the roll-out nor in the verification.
func TestG47PartitionFailsNothing(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := verified(t, halfAnHour)
	h.live(ctx, 19*time.Minute, time.Minute)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingRollout)
	away := func(phase capstanv1.PromotionPhase) {
		w.stale("staging")
		h.settle(ctx)
		if phase == capstanv1.PhaseVerifying {
			g.Expect(w.newest(ctx, "staging").Status.Message).To(ContainSubstring("the time does not count while a target is reconciled or cannot be observed"))
		}
		h.live(ctx, 24*time.Hour, time.Hour)
		w.expectPhase(ctx, g, "staging", phase)
		h = w.hub("another", w.c, nil)
		h.settle(ctx)
		h.live(ctx, 24*time.Hour, time.Hour)
		w.expectPhase(ctx, g, "staging", phase)
	}
	away(capstanv1.PhaseAwaitingRollout)
	w.runs("staging", "1.1")
	h.settle(ctx)
	h.live(ctx, 10*time.Minute, time.Minute)
	away(capstanv1.PhaseVerifying)
	w.runs("staging", "1.1")
	w.unready("staging", "1.1", true)
	h.settle(ctx)
	h.live(ctx, 24*time.Hour, time.Hour)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseVerifying)
	w.runs("staging", "1.1")
	h.settle(ctx)
	h.live(ctx, 16*time.Minute, time.Minute)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseVerifying, "at most what was counted since the last write is lost, and nothing is won")
	h.live(ctx, 6*time.Minute, time.Minute)
	g.Expect(w.into(ctx, "staging")).To(ContainElement(HaveField("Status.Reason", string(decision.Verified))))
}

// A roll-out that takes too long fails, is not sent again, and is verified when it arrives.
func TestRolloutDeadline(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := verified(t, halfAnHour)
	h.live(ctx, 19*time.Minute, time.Minute)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingRollout)
	h.wakesBefore(ctx, g, w.clock.Now().Add(time.Minute))
	h.live(ctx, time.Minute, time.Minute)
	w.expectReason(ctx, g, "staging", capstanv1.PhaseFailed, decision.RolloutDeadline)
	h.live(ctx, 3*time.Hour, 10*time.Minute)
	g.Expect(w.receiver.received()).To(HaveLen(1))
	w.runs("staging", "1.1")
	h.settle(ctx)
	w.expectReason(ctx, g, "staging", capstanv1.PhaseVerifying, decision.RolledOut)
	h.live(ctx, 31*time.Minute, 5*time.Minute)
	g.Expect(w.newest(ctx, "prod").Spec.Revision).To(Equal("1.1"))
}

// A verification that has no verdict until its deadline fails, and one that is removed has succeeded.
func TestVerificationEnds(t *testing.T) {
	t.Parallel()
	flapping := halfAnHour
	flapping.Deadline = "45m"
	g, ctx, w, h := verified(t, flapping)
	w.runs("staging", "1.1")
	h.settle(ctx)
	for range 9 {
		w.runs("staging", "1.1")
		h.settle(ctx)
		h.live(ctx, time.Minute, time.Minute)
		w.unready("staging", "1.1", false)
		h.settle(ctx)
		h.live(ctx, 4*time.Minute, time.Minute)
	}
	w.expectReason(ctx, g, "staging", capstanv1.PhaseFailed, decision.Inconclusive)
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Verification.Deadline = "10m" })
	w.runs("dev", "1.2")
	h.settle(ctx)
	g.Expect(w.newest(ctx, "staging").Spec.Revision).To(Equal("1.1"), "the deadline is invalid")
	g.Expect(w.pipeline(ctx, "web").Status.Conditions).To(ContainElement(HaveField("Message", ContainSubstring(
		"spec.verification.deadline: 10m is not longer than for (30m): no revision could be verified"))))
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Verification.Deadline = "" })
	h.settle(ctx)
	w.runs("staging", "1.2")
	h.settle(ctx)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseVerifying)
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Verification = nil })
	h.settle(ctx)
	w.expectReason(ctx, g, "staging", capstanv1.PhaseSucceeded, decision.RolledOut)
	g.Expect(w.newest(ctx, "prod").Spec.Revision).To(Equal("1.2"))
}

// A hub that ends in an orderly way stores its sums: the next one continues with them.
func TestAHubThatEndsStoresItsVerifications(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := verified(t, halfAnHour)
	w.runs("staging", "1.1")
	h.settle(ctx)
	h.live(ctx, 4*time.Minute, time.Minute)
	ready := func() int64 { return w.newest(ctx, "staging").Status.Trial.ReadySeconds }
	g.Expect(ready()).To(BeZero())
	ended, end := context.WithCancel(ctx)
	end()
	g.Expect(h.promotions.StoreTrials(ended)).To(Succeed())
	g.Expect(ready()).To(BeEquivalentTo(4 * 60))
	w.clock.Step(time.Hour)
	h = w.hub("next", w.c, nil)
	h.settle(ctx)
	h.live(ctx, 25*time.Minute, time.Minute)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseVerifying)
	h.live(ctx, time.Minute, time.Minute)
	g.Expect(w.newest(ctx, "prod").Spec.Revision).To(Equal("1.1"))
}

// A pull request is open while every target runs its revision, because a user applied it: the revision is
// verified, although the pull request is open. Nothing is done to that until another revision replaces it.
func TestVerifiedWithAnOpenPullRequest(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := promotedByPullRequest(t, pipelinesv1.GitHub, nil)
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Verification = &halfAnHour })
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingMerge)
	w.runs("staging", "1.1")
	h.rest(ctx)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseVerifying)
	h.live(ctx, 10*time.Minute, time.Minute)
	g.Expect(w.hosted.opened("staging")).To(HaveLen(1), "nothing was decided yet")
	w.unready("staging", "1.1", false)
	h.settle(ctx)
	h.live(ctx, 6*time.Minute, time.Minute)
	w.expectReason(ctx, g, "staging", capstanv1.PhaseFailed, decision.Degraded)
	h.live(ctx, 3*time.Hour, 10*time.Minute)
	w.expectReason(ctx, g, "staging", capstanv1.PhaseFailed, decision.Degraded)
	w.runs("dev", "1.2")
	h.rest(ctx)
	g.Expect(w.newest(ctx, "staging").Spec.Revision).To(Equal("1.2"))
	g.Expect(w.hosted.opened("staging")).To(HaveLen(1), "that of 1.1 was closed, or is used by 1.2")
}

// The Pipeline is deleted and created again while a revision is verified. The verification starts again in
// the new Pipeline, and sends nothing.
func TestRecreatedWhileVerifying(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := verified(t, halfAnHour)
	w.runs("staging", "1.1")
	h.settle(ctx)
	h.live(ctx, 20*time.Minute, 10*time.Minute)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseVerifying)
	w.recreated(ctx, func() { h.settle(ctx) })
	h = w.hub("next", w.c, nil)
	h.settle(ctx)
	for _, env := range []string{"dev", "staging"} {
		w.runs(env, "1.1")
	}
	w.runs("prod", "1.0")
	h.settle(ctx)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseVerifying)
	h.live(ctx, 29*time.Minute, time.Minute)
	g.Expect(w.receiver.received()).To(HaveLen(1))
	h.live(ctx, 2*time.Minute, time.Minute)
	g.Expect(w.newest(ctx, "prod")).To(And(HaveField("Spec.Revision", "1.1"), HaveField("Status.Phase", capstanv1.PhaseAwaitingRollout)))
}
