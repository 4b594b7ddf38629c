package promotions_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/hub/pipeline/gate"
	"github.com/capstan-hub/capstan/index"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider/providertest"
)

// openWithin is how long a promotion waits at most after its gates opened: they do not all continue at
// the same time.
const openWithin = 31 * time.Second

func soaking(wanted string) *pipelinesv1.Gates {
	return &pipelinesv1.Gates{Soak: &pipelinesv1.Soak{For: wanted}}
}

func denying(name, schedule, duration string) pipelinesv1.Window {
	w := pipelinesv1.Window{Name: name, WindowSpec: pipelinesv1.WindowSpec{Type: pipelinesv1.DenyWindow, Schedule: schedule, Duration: duration}}
	if schedule != "" {
		w.TimeZone = "UTC"
	}
	return w
}

func frozen() *pipelinesv1.Gates {
	return &pipelinesv1.Gates{Windows: []pipelinesv1.Window{denying("freeze", "", "")}}
}

// frozenFor returns gates that deny for a duration from now.
func (w *world) frozenFor(d time.Duration) *pipelinesv1.Gates {
	g := frozen()
	g.Windows[0].Until = w.clock.Now().Add(d).UTC().Format(time.RFC3339)
	return g
}

// gated is a world whose Pipeline has gates. All environments run 1.0, and have soaked.
func gated(t *testing.T, gates *pipelinesv1.Gates, promotion *pipelinesv1.Promotion, envs ...string) (*WithT, context.Context, *world, *hubUnder) {
	t.Helper()
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	p := w.newPipeline("web", promotion, envs...)
	p.Spec.Gates = gates
	return g, ctx, w, w.began(ctx, p)
}

// edit changes the spec of the Pipeline.
func (w *world) edit(ctx context.Context, change func(*pipelinesv1.Pipeline)) {
	w.Helper()
	p := w.pipeline(ctx, "web")
	before := p.DeepCopy()
	change(p)
	if err := w.c.Patch(ctx, p, client.MergeFrom(before)); err != nil {
		w.Fatalf("%v", err)
	}
}

// live lets a duration pass in steps, and settles after each.
func (h *hubUnder) live(ctx context.Context, d, step time.Duration) {
	h.w.Helper()
	for ; d > 0; d -= step {
		h.w.clock.Step(min(step, d))
		h.settle(ctx)
	}
}

// wakesBefore checks that the newest promotion into staging is reconciled again before a time, also if no
// event comes.
func (h *hubUnder) wakesBefore(ctx context.Context, g Gomega, end time.Time) {
	p := h.w.newest(ctx, "staging")
	result, err := h.promotions.Reconcile(ctx, requestFor(&p))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.RequeueAfter).To(BeNumerically(">", 0))
	g.Expect(h.w.clock.Now().Add(result.RequeueAfter)).To(BeTemporally("<=", end))
}

// G3: a promotion waits for the soak, and continues within a second after it, although no event comes:
// the reconciler of the Pipeline asks to be called then.
func TestG3SoakThenPromoted(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := gated(t, soaking("2h"), notify(false), "dev", "prod")
	w.runs("dev", "1.1")
	h.settle(ctx)
	p := w.newest(ctx, "prod")
	g.Expect(p.Status).To(And(HaveField("Phase", capstanv1.PhaseAwaitingGates), HaveField("Reason", gate.ReasonSoaking),
		HaveField("Message", `environment "dev" must be healthy with 1.1 for 2h`)))
	g.Expect(p.Status.Gates).To(ConsistOf(And(HaveField("Type", capstanv1.SoakGate), HaveField("State", capstanv1.GateClosed))))
	due := w.clock.Now().Add(2 * time.Hour)
	g.Expect(p.Status.ExpectedTime.Time).To(BeTemporally("~", due, time.Second))
	g.Expect(p.Status.Attempt).To(BeNil())

	for w.clock.Now().Before(due) {
		result, err := h.pipelines.Reconcile(ctx, requestFor(w.pipeline(ctx, "web")))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(result.RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", 15*time.Minute)))
		g.Expect(w.receiver.received()).To(BeEmpty())
		w.clock.Step(min(result.RequeueAfter, due.Sub(w.clock.Now())))
	}
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingRollout)
	g.Expect(w.receiver.received()).To(HaveLen(1))
	g.Expect(w.newest(ctx, "prod").Status.Gates).To(ConsistOf(HaveField("Reason", gate.ReasonSoaked)), "as they were when it was carried out")
	w.runs("prod", "1.1")
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseSucceeded)
}

// A promotion that waits causes no writes but those of the sums of its soak.
func TestAWaitingPromotionWritesOnlySums(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := gated(t, soaking("24h"), notify(false), "dev", "prod")
	w.runs("dev", "1.1")
	h.settle(ctx)
	promoted, watched := w.newest(ctx, "prod").ResourceVersion, w.pipeline(ctx, "web").ResourceVersion
	writes := 0
	for range 120 {
		w.clock.Step(time.Minute)
		h.pass(ctx)
		if now := w.pipeline(ctx, "web").ResourceVersion; now != watched {
			writes, watched = writes+1, now
		}
	}
	g.Expect(writes).To(Equal(8), "one in 15 minutes")
	g.Expect(w.newest(ctx, "prod").ResourceVersion).To(Equal(promoted))
}

// A cached Pipeline is older than the stored one, and a write of its status names a field that is not
// there any more: that is a conflict, and not an error.
func TestAStatusOfAnOlderPipelineIsAConflict(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := gated(t, soaking("2h"), notify(false), "dev", "prod")
	w.runs("dev", "1.1")
	h.settle(ctx)
	old := w.pipeline(ctx, "web")
	g.Expect(old.Status.Environments["dev"].Agreed.Soak).NotTo(BeNil())
	refusals := 0
	late := w.hub("late", interceptor.NewClient(w.c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if p, is := o.(*pipelinesv1.Pipeline); is && old != nil {
				old.DeepCopyInto(p)
				return nil
			}
			return c.Get(ctx, key, o, options...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, kind string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			err := c.SubResource(kind).Patch(ctx, o, patch, options...)
			if err != nil {
				refusals, old = refusals+1, nil // The API server is asked next.
			}
			return err
		},
	}), nil)
	request := requestFor(old)
	_, err := late.pipelines.Reconcile(ctx, request) // It counts from here.
	g.Expect(err).NotTo(HaveOccurred())
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates = nil })
	h.settle(ctx)
	g.Expect(w.pipeline(ctx, "web").Status.Environments["dev"].Agreed.Soak).To(BeNil())
	w.clock.Step(20 * time.Minute)
	result, err := late.pipelines.Reconcile(ctx, request)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(refusals).To(Equal(1))
	g.Expect(result.RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<", time.Second)))
	late.settle(ctx)
	g.Expect(w.pipeline(ctx, "web").Status.Environments["dev"].Agreed.Soak).To(BeNil())
}

// G8: it does not count how long a revision soaked in an environment that is not the source.
func TestG8SoaksInTheSource(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := gated(t, nil, notify(false), "dev", "staging", "prod")
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Environments[2].Gates = soaking("2h") })
	w.runs("dev", "1.1")
	h.settle(ctx)
	h.live(ctx, 3*time.Hour, 15*time.Minute)
	w.runs("staging", "1.1")
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingGates)
	h.live(ctx, 110*time.Minute, 10*time.Minute)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingGates)
	h.live(ctx, 10*time.Minute, 5*time.Minute)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingRollout)
}

// G9: dev changes every hour. What has not soaked is superseded; what has soaked waits for its window
// and goes, and the next one that soaks replaces it before.
func TestG9WhatHasSoakedGoes(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := gated(t, soaking("2h"), notify(false), "dev", "prod")
	for _, version := range []string{"1.1", "1.2", "1.3"} {
		w.runs("dev", version)
		h.settle(ctx)
		h.live(ctx, time.Hour, 20*time.Minute)
		p := w.newest(ctx, "prod")
		g.Expect(p.Spec.Revision).To(Equal(version))
		g.Expect(p.Status.Phase).To(Equal(capstanv1.PhaseAwaitingGates))
	}
	starved := HaveField("Status.Conditions", ContainElement(HaveField("Type", pipelinesv1.StarvedCondition)))
	for _, version := range []string{"1.1", "1.2", "1.3"} {
		g.Expect(w.pipeline(ctx, "web")).NotTo(starved)
		w.runs("dev", version)
		h.settle(ctx)
	}
	g.Expect(w.pipeline(ctx, "web").Status.Conditions).To(ContainElement(And(HaveField("Type", pipelinesv1.StarvedCondition), HaveField("Message",
		`environment "prod" got none of the last 5 revisions, because "dev" changed before each had soaked for 2h: shorten the soak, or release less often`))))
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates.Windows = w.frozenFor(20 * time.Hour).Windows })
	h.live(ctx, 2*time.Hour, 20*time.Minute)
	g.Expect(w.newest(ctx, "prod").Status.Reason).To(Equal(gate.ReasonFrozen))
	w.runs("dev", "1.4")
	h.settle(ctx)
	g.Expect(w.pipeline(ctx, "web")).NotTo(starved)
	kept := w.newest(ctx, "prod")
	g.Expect(kept.Spec.Revision).To(Equal("1.3"))
	g.Expect(kept.Status).To(And(HaveField("Phase", capstanv1.PhaseAwaitingGates), HaveField("SoakedSeconds", BeNumerically(">=", 7200))))
	h.live(ctx, 2*time.Hour, 20*time.Minute)
	soaked := w.newest(ctx, "prod")
	g.Expect(soaked.Spec.Revision).To(Equal("1.4"), "it has soaked, too")
	g.Expect(w.into(ctx, "prod")[5].Status.Reason).To(Equal(string(decision.NewerPromotion)))
	w.runs("dev", "1.5")
	h.settle(ctx)
	h.live(ctx, time.Hour, 20*time.Minute)
	g.Expect(w.receiver.received()).To(BeEmpty())
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates.Windows = nil })
	h.settle(ctx)
	g.Expect(w.receiver.received()).To(HaveLen(1))
	g.Expect(w.newest(ctx, "prod").Spec.Revision).To(Equal("1.4"), "1.5 has not soaked")
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingRollout)
}

// soakedAndFrozen is a world whose revision 1.1 has soaked for two hours in dev, and waits for a window.
func soakedAndFrozen(t *testing.T) (*WithT, context.Context, *world, *hubUnder) {
	t.Helper()
	g, ctx, w, h := gated(t, soaking("2h"), notify(false), "dev", "prod")
	w.runs("dev", "1.1")
	h.settle(ctx)
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates.Windows = frozen().Windows })
	h.live(ctx, 2*time.Hour, 20*time.Minute)
	return g, ctx, w, h
}

// G10: a revision that has soaked does not go when dev goes back to an older one.
func TestG10TheSourceGoesBack(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := soakedAndFrozen(t)
	g.Expect(w.newest(ctx, "prod").Status.SoakedSeconds).To(BeNumerically(">=", 7200))
	w.runs("dev", "1.0")
	h.settle(ctx)
	g.Expect(w.newest(ctx, "prod").Status).To(And(HaveField("Phase", capstanv1.PhaseSuperseded), HaveField("Reason", string(decision.SourceMovedOn))))
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates.Windows = nil })
	h.settle(ctx)
	g.Expect(w.receiver.received()).To(BeEmpty())
}

// A mistake in the soak loses nothing: what has soaked is kept until it is corrected, also if dev moves
// on meanwhile.
func TestAnInvalidSoakKeepsWhatHasSoaked(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := soakedAndFrozen(t)
	soaked := w.pipeline(ctx, "web").Status.Environments["dev"].Agreed.Soak
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates.Soak.For = "2hh" })
	h.live(ctx, time.Hour, 20*time.Minute)
	g.Expect(w.newest(ctx, "prod").Status).To(And(HaveField("Phase", capstanv1.PhaseAwaitingGates), HaveField("Reason", gate.ReasonInvalidGate), HaveField("SoakedSeconds", BeNumerically(">=", 7200))))
	g.Expect(w.pipeline(ctx, "web").Status.Environments["dev"].Agreed.Soak.Seconds).To(Equal(soaked.Seconds))
	w.runs("dev", "1.2")
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingGates)
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates = soaking("2h") })
	h.settle(ctx)
	g.Expect(w.newest(ctx, "prod").Spec.Revision).To(Equal("1.1"))
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingRollout)
}

// Checks of a pull request that is open while a gate is closed write nothing.
func TestAHeldPullRequestIsNotWritten(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := promotedByPullRequest(t, pipelinesv1.GitHub, nil)
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates = frozen() })
	h.live(ctx, 10*time.Minute, time.Minute)
	held := w.newest(ctx, "staging")
	g.Expect(held.Status.Reason).To(Equal("MergeHeld"))
	asked := len(w.forge.Requests())
	h.live(ctx, 2*time.Hour, time.Minute)
	g.Expect(len(w.forge.Requests())).To(BeNumerically(">", asked), "it was checked")
	g.Expect(w.newest(ctx, "staging").ResourceVersion).To(Equal(held.ResourceVersion))

	w.forge.AddFault(providertest.Fault{Method: http.MethodGet, Path: "/pulls", Status: http.StatusBadGateway})
	h.live(ctx, 30*time.Minute, time.Minute)
	failing := w.newest(ctx, "staging")
	g.Expect(failing.Status).To(And(HaveField("Reason", "Retrying"), HaveField("Message", HavePrefix("the pull request cannot be checked"))))
	w.forge.ClearFaults()
	h.live(ctx, 30*time.Minute, time.Minute)
	g.Expect(w.newest(ctx, "staging").Status.Reason).To(Equal("MergeHeld"))
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates = nil })
	h.live(ctx, 10*time.Minute, time.Minute)
	g.Expect(w.newest(ctx, "staging").Status.Reason).To(Equal(string(decision.PullRequestOpened)))
}

// A source that is unready for long enough starts its soak again, also of a promotion that waits for
// a window after it.
func TestTheSoakOfAWaitingPromotionStartsAgain(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := soakedAndFrozen(t)
	g.Expect(w.newest(ctx, "prod").Status.Reason).To(Equal(gate.ReasonFrozen))
	w.x.Observe(w.object("dev"), index.Observation{Found: true, Revision: "1.1", Reason: "HealthCheckFailed", At: w.clock.Now()})
	h.settle(ctx)
	h.live(ctx, 6*time.Minute, time.Minute)
	g.Expect(w.newest(ctx, "prod").Status).To(And(HaveField("Reason", gate.ReasonSourceUnready), HaveField("SoakedSeconds", BeZero())))
}

// G14: a freeze ends and no event comes: the promotion is reconciled then, plus a part of openSpread.
func TestG14AFreezeEnds(t *testing.T) {
	t.Parallel()
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	p := w.newPipeline("web", notify(false), "dev", "prod")
	p.Spec.Gates = w.frozenFor(3 * time.Minute)
	end := w.clock.Now().Add(3 * time.Minute)
	h := w.began(ctx, p)
	w.runs("dev", "1.1")
	h.settle(ctx)
	waiting := w.newest(ctx, "prod")
	g.Expect(waiting.Status).To(And(HaveField("Phase", capstanv1.PhaseAwaitingGates), HaveField("Reason", gate.ReasonFrozen)))
	g.Expect(waiting.Status.ExpectedTime.Time).To(BeTemporally("==", end))
	result, err := h.promotions.Reconcile(ctx, requestFor(&waiting))
	g.Expect(err).NotTo(HaveOccurred())
	left := end.Sub(w.clock.Now())
	g.Expect(result.RequeueAfter).To(And(BeNumerically(">=", left), BeNumerically("<=", left+openWithin)))
	w.clock.Step(left - time.Second)
	h.settle(ctx)
	g.Expect(w.receiver.received()).To(BeEmpty())
	w.clock.Step(time.Second)
	h.settle(ctx)
	g.Expect(w.receiver.received()).To(HaveLen(1))
}

// G42: an edit of the gates has its effect at once. The number and the approval stay.
func TestG42GatesAreEdited(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := gated(t, frozen(), notify(true), "dev", "prod")
	w.runs("dev", "1.1")
	h.settle(ctx)
	p := w.newest(ctx, "prod")
	g.Expect(p.Status.Phase).To(Equal(capstanv1.PhaseAwaitingGates))
	g.Expect(w.pipeline(ctx, "web").Status.Environments["prod"].WaitingApproval.Revision).To(Equal("1.1"), "it can be approved already")
	before := p.DeepCopy()
	p.Spec.Approval = &capstanv1.Approval{By: "anna"}
	g.Expect(w.c.Patch(ctx, &p, client.MergeFrom(before))).To(Succeed())
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingGates)
	g.Expect(w.pipeline(ctx, "web").Status.Environments["prod"].WaitingApproval.Revision).To(BeEmpty())
	w.edit(ctx, func(p *pipelinesv1.Pipeline) {
		p.Spec.Gates.Windows = nil
		p.Spec.Gates.Soak = &pipelinesv1.Soak{For: "1h"}
	})
	h.settle(ctx)
	g.Expect(w.newest(ctx, "prod").Status.Reason).To(Equal(gate.ReasonSoaking))
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates = nil })
	h.settle(ctx)
	done := w.newest(ctx, "prod")
	g.Expect(done.Status).To(And(HaveField("Phase", capstanv1.PhaseAwaitingRollout), HaveField("Approval.By", "anna"), HaveField("Gates", BeEmpty())))
	g.Expect(w.into(ctx, "prod")).To(HaveLen(1))
}

// G53: a promotion that waits for its gates is not stalled, however long that takes; its age begins
// when they open.
func TestG53WaitingForGatesIsNotStalled(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := gated(t, frozen(), notify(true), "dev", "prod")
	w.runs("dev", "1.1")
	h.settle(ctx)
	h.live(ctx, 24*time.Hour, 6*time.Hour)
	stalled := HaveField("Status.Conditions", ContainElement(HaveField("Type", capstanv1.StalledCondition)))
	g.Expect(w.newest(ctx, "prod")).NotTo(stalled)
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates = nil })
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingApproval)
	h.live(ctx, 29*time.Minute, 29*time.Minute)
	g.Expect(w.newest(ctx, "prod")).NotTo(stalled)
	h.live(ctx, time.Minute, time.Minute)
	g.Expect(w.newest(ctx, "prod")).To(stalled)
}

// G63: gates of the Pipeline hold for an environment that has a promotion of its own.
func TestG63GatesOfThePipelineHold(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := gated(t, frozen(), notify(false), "dev", "prod")
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Environments[1].Promotion = notify(false) })
	w.runs("dev", "1.1")
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingGates)
}

// G17: a window closes while the branch is pushed. The push ends; the pull request is opened when the
// window opens again. Suspend and deletion work meanwhile.
func TestG17AWindowClosesDuringAPush(t *testing.T) {
	t.Parallel()
	g, ctx := NewWithT(t), t.Context()
	w, h := pulled(t, pipelinesv1.GitHub, nil, "dev", "staging")
	pushed := false
	w.hosted.once(http.MethodPost, "git-receive-pack", func() {
		pushed = true
		w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates = frozen() })
	})
	w.runs("dev", "1.1")
	h.settle(ctx)
	g.Expect(pushed).To(BeTrue())
	held := w.newest(ctx, "staging")
	g.Expect(held.Status).To(And(HaveField("Phase", capstanv1.PhasePromoting), HaveField("Reason", gate.ReasonFrozen),
		HaveField("Message", `blocked: window "freeze" denies promotions; no time is known at which promotions are allowed again`)))
	g.Expect(w.forge.PullRequests()).To(BeEmpty())
	h.expectNoRequest(g, "it waits", func() { h.live(ctx, time.Hour, 10*time.Minute) })
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Suspend = true })
	h.settle(ctx)
	g.Expect(w.newest(ctx, "staging").Status.Reason).To(Equal("Suspended"))
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Suspend, p.Spec.Gates = false, nil })
	h.rest(ctx)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingMerge)
	g.Expect(w.forge.PullRequests()).To(HaveLen(1))
}

// G55: a window opens for a pull request that is open for a day. It is merged within 31 s.
func TestG55AWindowOpensForAnOldPullRequest(t *testing.T) {
	t.Parallel()
	for name, host := range services {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, t)
			host(t, w)
			opensForAnOldPullRequest(t, w)
		})
	}
}

func opensForAnOldPullRequest(t *testing.T, w *world) {
	t.Helper()
	g, ctx := NewWithT(t), t.Context()
	h := w.began(ctx, w.newPipeline("web", w.pull(func(s *pipelinesv1.PullRequestPromotion) { s.AutoMerge = true }), "dev", "staging"))
	end := w.clock.Now().Add(24 * time.Hour)
	w.hosted.once(http.MethodPost, "/pulls", func() {
		w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates = w.frozenFor(24 * time.Hour) })
	})
	w.runs("dev", "1.1")
	h.settle(ctx)
	h.live(ctx, 24*time.Hour-20*time.Second, time.Hour)
	waiting := w.newest(ctx, "staging")
	g.Expect(waiting.Status).To(And(HaveField("Phase", capstanv1.PhaseAwaitingMerge), HaveField("Reason", "MergeHeld")))
	h.wakesBefore(ctx, g, end.Add(openWithin))
	w.clock.Step(end.Add(openWithin).Sub(w.clock.Now()))
	h.settle(ctx)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingRollout)
	g.Expect(w.newest(ctx, "staging").Status.Reason).To(Equal(string(decision.PullRequestMerged)))
}

// G21: a person merges a pull request while a gate is closed. The promotion goes on, with a warning.
func TestG21MergedWhileClosed(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := promotedByPullRequest(t, pipelinesv1.Gitea, nil)
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates = frozen() })
	h.settle(ctx)
	g.Expect(w.newest(ctx, "staging").Status.Reason).To(Equal("MergeHeld"))
	w.forge.merge(w.forge.opened("staging")[0])
	h.rest(ctx)
	g.Expect(w.newest(ctx, "staging").Status).To(And(HaveField("Phase", capstanv1.PhaseAwaitingRollout), HaveField("Reason", string(decision.MergedWhileClosed))))
	h.live(ctx, time.Hour, 10*time.Minute)
	g.Expect(w.newest(ctx, "staging").Status.Conditions).To(ContainElement(HaveField("Type", capstanv1.StalledCondition)), "it waits for no gate")
	w.runs("staging", "1.1")
	h.settle(ctx)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseSucceeded)
}

// G44: the hub is killed at every outside call from AwaitingGates on. The next hub finishes the
// promotion: it is sent once, and not before dev has been ready for as long as the soak requires.
func TestG44KilledWhileGated(t *testing.T) {
	t.Parallel()
	const wanted = time.Hour
	play := func(ctx context.Context, g Gomega, w *world, k *killer) {
		p := w.newPipeline("web", notify(false), "dev", "staging")
		p.Spec.Gates = soaking(wanted.String())
		w.began(ctx, p)
		w.runs("dev", "1.1")
		began := w.clock.Now()
		doomed := w.hub("doomed", k.client(w.c), k)
		h, process := doomed, k.process(ctx)
		for range 30 {
			if k.over() && h == doomed {
				h, process = w.hub("next", w.c, nil), ctx
			}
			for range 4 {
				h.pass(process)
			}
			if len(w.receiver.received()) > 0 {
				break
			}
			w.clock.Step(5 * time.Minute)
		}
		g.Expect(w.clock.Now()).To(BeTemporally(">=", began.Add(wanted)), "not early")
		g.Expect(w.clock.Now()).To(BeTemporally("<=", began.Add(wanted+15*time.Minute)), "at most ten minutes are not stored, and the next hub starts five minutes later")
		k.end()
		next := w.hub("last", w.c, nil)
		next.settle(ctx)
		w.clock.Step(afterClaim)
		next.settle(ctx)
		g.Expect(w.into(ctx, "staging")).To(HaveLen(1))
		w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingRollout)
		g.Expect(w.receiver.ids).To(HaveLen(1), "one identity")
		w.runs("staging", "1.1")
		next.settle(ctx)
		w.expectPhase(ctx, g, "staging", capstanv1.PhaseSucceeded)
	}
	whole := &killer{}
	play(t.Context(), NewWithT(t), newWorld(t, t), whole)
	killAtEach(t, whole.calls, 5, func(t *testing.T, k *killer) {
		play(t.Context(), NewWithT(t), newWorld(t, t), k)
	})
}

// A hub that ends in an orderly way stores its sums: the next one continues with them.
func TestAHubThatEndsStoresItsSoaks(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := gated(t, soaking("2h"), notify(false), "dev", "prod")
	w.runs("dev", "1.1")
	h.settle(ctx)
	w.clock.Step(14 * time.Minute)
	h.settle(ctx)
	soak := func() int64 { return w.pipeline(ctx, "web").Status.Environments["dev"].Agreed.Soak.Seconds }
	g.Expect(soak()).To(BeZero())
	ended, end := context.WithCancel(ctx)
	end()
	g.Expect(h.pipelines.StoreSoaks(ended)).To(Succeed())
	g.Expect(soak()).To(BeEquivalentTo(14 * 60))
}
