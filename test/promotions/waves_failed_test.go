package promotions_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
)

// The canary fails its verification and is rolled back. Its only cluster then leaves, for example because it is rebuilt: the revision is
// not promoted to the next wave, which has no wave before it any more, until dev agrees on it again.
func TestTheCanaryLeavesAfterItFailed(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := wavesOf(t, rings(), threeRings(), verifiedOrBack)
	w.runs("eu-0", "1.1")
	h.settle(ctx)
	w.unready("eu-0", "1.1", false)
	h.settle(ctx)
	h.live(ctx, 6*time.Minute, time.Minute)
	g.Expect(w.newest(ctx, "prod/canary").Spec.RollbackOf).NotTo(BeNil())
	g.Expect(w.sentTo("prod/early")).NotTo(ContainElement("1.1"))
	w.label("eu-0", nil)
	h.settle(ctx)
	h.live(ctx, 10*time.Minute, time.Minute)
	g.Expect(w.sentTo("prod/early")).NotTo(ContainElement("1.1"), "1.1 failed in the canary, and was rolled back there")
	w.runs("dev", "1.0")
	h.settle(ctx)
	w.runs("dev", "1.1")
	h.settle(ctx)
	g.Expect(w.sentTo("prod/early")).To(ContainElement("1.1"), "a new roll-out")
}

// The only cluster of the canary leaves after the revision was sent to it and before it is known to work there: the next wave does
// not get the revision. When a cluster takes its place, it gets the revision first.
func TestTheCanaryLeavesBeforeItsVerdict(t *testing.T) {
	t.Parallel()
	for name, shown := range map[string]func(*world){
		"not rolled out":     func(*world) {},
		"not verified":       func(w *world) { w.runs("eu-0", "1.1") },
		"unready, tolerated": func(w *world) { w.runs("eu-0", "1.1"); w.unready("eu-0", "1.1", false) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, ctx, w, h := wavesOf(t, rings(), threeRings(), verifiedOrBack)
			shown(w)
			h.settle(ctx)
			h.live(ctx, 4*time.Minute, time.Minute)
			w.label("eu-0", nil)
			h.settle(ctx)
			w.expectReason(ctx, g, "prod/canary", capstanv1.PhaseSuperseded, decision.EnvironmentRemoved)
			h.live(ctx, 2*time.Hour, 10*time.Minute)
			g.Expect(w.sentTo("prod/early")).NotTo(ContainElement("1.1"), "the canary has not verified it")
			w.label("eu-9", ring(0))
			h.settle(ctx)
			w.runs("eu-9", "1.0")
			h.live(ctx, time.Hour, 5*time.Minute)
			g.Expect(w.lastSentTo("eu-9")).To(Equal("1.1"))
			w.runs("eu-9", "1.1")
			h.live(ctx, time.Hour, 5*time.Minute)
			g.Expect(w.sentTo("prod/early")).To(ContainElement("1.1"))
		})
	}
}

// The revision was sent to the canary. A promotion for a cluster that joined replaced that one, and was not sent when both clusters left.
func TestTheCanaryLeavesWithAClusterThatJoined(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := wavesOf(t, rings(), threeRings())
	w.unready("eu-0", "1.1", false)
	w.receiver.fail = 1000
	w.label("eu-9", ring(0))
	h.settle(ctx)
	w.runs("eu-9", "1.0")
	h.settle(ctx)
	h.live(ctx, 35*time.Minute, 5*time.Minute)
	w.expectPhase(ctx, g, "prod/canary", capstanv1.PhasePromoting)
	g.Expect(w.into(ctx, "prod/canary")).To(HaveLen(2))
	w.label("eu-0", nil)
	w.label("eu-9", nil)
	h.settle(ctx)
	w.receiver.fail = 0
	h.live(ctx, 2*time.Hour, 10*time.Minute)
	g.Expect(w.sentTo("prod/early")).NotTo(ContainElement("1.1"), "it did not run in the canary")
}

// The waves are edited while a revision is on its way into the first one: its clusters are in another wave, which goes on.
func TestTheCanaryIsRenamedBeforeItsVerdict(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := wavesOf(t, rings(), threeRings(), verifiedOrBack)
	w.runs("eu-0", "1.1")
	h.settle(ctx)
	p := w.pipeline(ctx, "web")
	p.Spec.Environments[1].Waves[0].Name = "first"
	g.Expect(w.c.Update(ctx, p)).To(Succeed())
	h.settle(ctx)
	h.live(ctx, 40*time.Minute, 5*time.Minute)
	g.Expect(w.sentTo("prod/early")).To(ContainElement("1.1"))
}

// prod was rolled back. Then it gets waves: none of them gets the revision.
func TestWavesAreAddedToAnEnvironmentThatIsHeld(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := fleetOf(t, 3, nil, verifiedOrBack)
	for i := range 3 {
		w.runs(eu(i), "1.1")
	}
	h.settle(ctx)
	w.unready(eu(0), "1.1", false)
	h.settle(ctx)
	h.live(ctx, 6*time.Minute, time.Minute)
	g.Expect(w.newest(ctx, "prod").Spec.RollbackOf).NotTo(BeNil())
	for i := range 3 {
		w.runs(eu(i), "1.0")
	}
	h.settle(ctx)
	h.live(ctx, 31*time.Minute, 5*time.Minute)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseSucceeded)
	p := w.pipeline(ctx, "web")
	p.Spec.Environments[1].Waves = []pipelinesv1.Wave{{Name: "all"}}
	g.Expect(w.c.Update(ctx, p)).To(Succeed())
	h.settle(ctx)
	h.live(ctx, time.Hour, 10*time.Minute)
	g.Expect(w.sentTo("prod/all")).NotTo(ContainElement("1.1"), "it failed in prod, and was rolled back there")
}

// The canary failed and was rolled back. Then the waves are removed: the whole environment does not get the revision.
func TestWavesAreRemovedWhileTheFirstIsHeld(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := wavesOf(t, rings(), threeRings(), verifiedOrBack)
	w.runs("eu-0", "1.1")
	h.settle(ctx)
	w.unready("eu-0", "1.1", false)
	h.settle(ctx)
	h.live(ctx, 6*time.Minute, time.Minute)
	w.runs("eu-0", "1.0")
	h.settle(ctx)
	h.live(ctx, 31*time.Minute, 5*time.Minute)
	w.expectPhase(ctx, g, "prod/canary", capstanv1.PhaseSucceeded)
	p := w.pipeline(ctx, "web")
	p.Spec.Environments[1].Waves = nil
	g.Expect(w.c.Update(ctx, p)).To(Succeed())
	h.settle(ctx)
	h.live(ctx, time.Hour, 10*time.Minute)
	g.Expect(w.sentTo("prod")).NotTo(ContainElement("1.1"), "it failed in the canary")
}

// The canary is rolled back before the waves behind it got the revision before: WavesDiverged does not advise to roll these back.
func TestWavesDivergedNamesAWaveThatIsBehind(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := wavesOf(t, rings(func(waves []pipelinesv1.Wave) { waves[0].Soak = &pipelinesv1.Soak{For: "12h"} }), threeRings(), verifiedOrBack)
	w.runs("eu-0", "1.1")
	h.settle(ctx)
	h.live(ctx, 31*time.Minute, 5*time.Minute)
	w.expectPhase(ctx, g, "prod/canary", capstanv1.PhaseSucceeded)
	w.runs("dev", "1.2")
	h.settle(ctx)
	w.runs("eu-0", "1.2")
	h.settle(ctx)
	w.unready("eu-0", "1.2", false)
	h.settle(ctx)
	h.live(ctx, 6*time.Minute, time.Minute)
	w.runs("eu-0", "1.1")
	h.settle(ctx)
	h.live(ctx, 31*time.Minute, 5*time.Minute)
	g.Expect(w.sentTo("prod/early")).To(Equal([]string(nil)))
	g.Expect(w.pipeline(ctx, "web").Status.Conditions).NotTo(ContainElement(HaveField("Type", pipelinesv1.WavesDivergedCondition)))
}

// A user rolls the canary back after the wave behind it got the revision, too: a promotion into the last wave that waits ends.
func TestARollbackOfTheCanaryStopsTheLastWave(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := wavesOf(t, rings(func(waves []pipelinesv1.Wave) { waves[1].Soak = &pipelinesv1.Soak{For: "2h"} }), threeRings())
	for _, revision := range []string{"1.1", "1.2"} {
		w.runs("dev", revision)
		h.settle(ctx)
		for _, c := range []string{"eu-0", "eu-1", "eu-2"} {
			w.runs(c, revision)
			h.settle(ctx)
		}
	}
	w.expectPhase(ctx, g, "prod/rest", capstanv1.PhaseAwaitingGates)
	w.ask(ctx, "back", "prod/canary", "")
	h.settle(ctx)
	w.runs("eu-0", "1.1")
	h.settle(ctx)
	h.live(ctx, 3*time.Hour, 10*time.Minute)
	g.Expect(w.newest(ctx, "prod/rest").Status).To(And(HaveField("Phase", capstanv1.PhaseSuperseded), HaveField("Reason", string(decision.SourceFailed))))
	g.Expect(w.sentTo("prod/rest")).NotTo(ContainElement("1.2"))
	g.Expect(w.pipeline(ctx, "web").Status.Conditions).To(ContainElement(And(HaveField("Type", pipelinesv1.WavesDivergedCondition),
		HaveField("Message", ContainSubstring(`canary runs 1.1 since 1.2 was rolled back there, and still in early;`)))))
}

// A user rolls the canary back after the hub has claimed the promotion into the last wave, and before it sends: nothing is sent.
// The wave between them, which is the source, still runs the revision.
func TestARollbackOfTheCanaryBeforeTheStepIntoTheLastWave(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := wavesOf(t, rings(), threeRings())
	everywhere := []string{"eu-0", "eu-1", "eu-2", "eu-3", "eu-4"}
	for _, c := range everywhere {
		w.runs(c, "1.1")
		h.settle(ctx)
	}
	w.runs("dev", "1.2")
	h.settle(ctx)
	w.runs("eu-0", "1.2")
	h.settle(ctx)
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates = frozen() })
	w.runs("eu-1", "1.2")
	w.runs("eu-2", "1.2")
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod/rest", capstanv1.PhaseAwaitingGates)
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates = nil })

	claimed := false
	w.hub("hub", afterClaimOf("prod/rest", w.c, func() {
		claimed = true
		w.ask(ctx, "back", "prod/canary", "")
		h.settlePipelines(ctx)
		g.Expect(w.newest(ctx, "prod/canary").Spec.RollbackOf).NotTo(BeNil())
	}), nil).settle(ctx)
	g.Expect(claimed).To(BeTrue())
	g.Expect(w.sentTo("prod/rest")).To(Equal([]string{"1.1"}))
	g.Expect(w.newest(ctx, "prod/rest").Status).To(And(HaveField("Phase", capstanv1.PhaseSuperseded), HaveField("Reason", string(decision.SourceFailed))))
}

// afterClaimOf returns a client that calls do once: after an attempt of a promotion into an environment was claimed.
func afterClaimOf(env string, c client.WithWatch, do func()) client.Client {
	done := false
	return interceptor.NewClient(c, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			err := c.SubResource(sub).Patch(ctx, o, patch, opts...)
			if p, is := o.(*capstanv1.Promotion); is && err == nil && !done && p.Spec.Environment == env && p.Status.Attempt != nil {
				done = true
				do()
			}
			return err
		},
	})
}
