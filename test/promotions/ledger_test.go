package promotions_test

import (
	"context"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// C7, C8: a revision is promoted through all environments in order, and then the next one.
func TestPromotesThroughAllEnvironments(t *testing.T) {
	t.Parallel()
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	h := w.began(ctx, w.newPipeline("web", notify(false), "dev", "staging", "prod"))
	g.Expect(w.promotions(ctx)).To(BeEmpty(), "all run 1.0")
	for i, revision := range []string{"1.1", "1.2"} {
		w.runs("dev", revision)
		h.settle(ctx)
		w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingRollout)
		g.Expect(w.into(ctx, "prod")).To(HaveLen(i), "not before staging runs it")
		w.runs("staging", revision)
		h.settle(ctx)
		w.expectPhase(ctx, g, "staging", capstanv1.PhaseSucceeded)
		w.runs("prod", revision)
		h.settle(ctx)
		w.expectPhase(ctx, g, "prod", capstanv1.PhaseSucceeded)
		g.Expect(w.newest(ctx, "prod").Status.Reason).To(Equal("RolledOut"))
		g.Expect(w.newest(ctx, "prod").Spec.Number).To(Equal(int64(i + 1)))
	}
	var messages []string
	for _, e := range w.receiver.received() {
		messages = append(messages, e.Message)
		g.Expect(e.Reason).To(Equal("Promote"))
	}
	message := func(env, version string) string {
		return fmt.Sprintf("Promote pipeline %s/web to %s with version %s", w.ns, env, version)
	}
	g.Expect(messages).To(Equal([]string{message("staging", "1.1"), message("prod", "1.1"), message("staging", "1.2"), message("prod", "1.2")}))
	status := w.pipeline(ctx, "web").Status.Environments["prod"]
	g.Expect(status.Agreed).To(Equal(&pipelinesv1.AgreedRevision{Revision: "1.2", Sequence: 3}))
	g.Expect(status.LastPromotion).To(Equal(int64(2)))
	g.Expect(status.Promotion.Phase).To(Equal("Succeeded"))
}

// The hub is stopped, dev moves 1.0 → 1.1 → 1.2, the hub starts: 1.2 is promoted once.
func TestMissedRevisions(t *testing.T) {
	t.Parallel()
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	w.began(ctx, w.newPipeline("web", notify(false), "dev", "staging"))
	w.runs("dev", "1.1")
	w.runs("dev", "1.2")
	w.hub("the next hub", w.c, nil).settle(ctx)
	g.Expect(w.into(ctx, "staging")).To(HaveLen(1))
	g.Expect(w.newest(ctx, "staging").Spec.Revision).To(Equal("1.2"))
	g.Expect(w.receiver.received()).To(HaveLen(1))
}

// N2: 1.0 → 1.1 → 1.0 is three states; the third is promoted, once.
func TestABA(t *testing.T) {
	t.Parallel()
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	h := w.began(ctx, w.newPipeline("web", notify(false), "dev", "staging"))
	for _, revision := range []string{"1.1", "1.0", "1.1"} {
		w.runs("dev", revision)
		h.settle(ctx)
		w.runs("staging", revision)
		h.settle(ctx)
	}
	all := w.into(ctx, "staging")
	g.Expect(all).To(HaveLen(3))
	for i, p := range all {
		g.Expect(p.Spec.Number).To(Equal(int64(i + 1)))
		g.Expect(p.Spec.Source.Sequence).To(Equal(int64(i + 2)))
		g.Expect(p.Status.Phase).To(Equal(capstanv1.PhaseSucceeded))
	}
	g.Expect(w.receiver.received()).To(HaveLen(3))
}

// C9: mixed or unready targets of the first environment block all promotions, and the
// condition says so.
func TestPromotionPending(t *testing.T) {
	t.Parallel()
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	h := w.began(ctx, w.newPipeline("web", notify(false), "dev", "staging"))
	w.stale("dev")
	h.settle(ctx)
	p := w.pipeline(ctx, "web")
	c := meta.FindStatusCondition(p.Status.Conditions, pipelinesv1.PromotionPendingCondition)
	g.Expect(c).NotTo(BeNil())
	g.Expect(c.Reason).To(Equal("EnvironmentNotReady"))
	target := p.Status.Environments["dev"].Targets[0]
	g.Expect(target.Stale).To(BeTrue())
	g.Expect(target.Ready).To(BeFalse(), "stale is never healthy")
	g.Expect(target.Revision).To(Equal("1.0"), "what was last seen stays")
	w.runs("dev", "1.0")
	h.settle(ctx)
	g.Expect(meta.FindStatusCondition(w.pipeline(ctx, "web").Status.Conditions, pipelinesv1.PromotionPendingCondition)).To(BeNil())
}

// A stale environment is not promoted into; a stale source is not promoted from.
func TestNothingIsDecidedFromStaleTargets(t *testing.T) {
	t.Parallel()
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	h := w.began(ctx, w.newPipeline("web", notify(false), "dev", "staging"))
	w.stale("staging")
	w.runs("dev", "1.1")
	h.settle(ctx)
	g.Expect(w.promotions(ctx)).To(BeEmpty())
	w.runs("staging", "1.0")
	h.settle(ctx)
	g.Expect(w.into(ctx, "staging")).To(HaveLen(1))
}

func approve(ctx context.Context, g Gomega, w *world, p capstanv1.Promotion) {
	before := p.DeepCopy()
	p.Spec.Approval = &capstanv1.Approval{By: "alice"}
	g.Expect(w.c.Patch(ctx, &p, client.MergeFrom(before))).To(Succeed())
}

func TestManualWaitsForApproval(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := promotedByNotification(t, true, "prod")
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingApproval)
	g.Expect(w.pipeline(ctx, "web").Status.Environments["prod"].WaitingApproval.Revision).To(Equal("1.1"))
	g.Expect(w.receiver.received()).To(BeEmpty())
	approve(ctx, g, w, w.newest(ctx, "prod"))
	h.settle(ctx)
	p := w.newest(ctx, "prod")
	g.Expect(p.Status.Phase).To(Equal(capstanv1.PhaseAwaitingRollout))
	g.Expect(p.Status.Approval.By).To(Equal("alice"))
	g.Expect(p.Status.Approval.Method).To(Equal(capstanv1.ApprovalByKubernetes))
	g.Expect(p.Status.Approval.ApprovalTime.IsZero()).To(BeFalse())
	g.Expect(w.receiver.received()).To(HaveLen(1))
	g.Expect(w.pipeline(ctx, "web").Status.Environments["prod"].WaitingApproval.Revision).To(BeEmpty())
}

// An approval that is given while the next revision supersedes the promotion has no effect.
func TestApproveWhileSuperseding(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := promotedByNotification(t, true, "prod")
	first := w.newest(ctx, "prod")
	w.runs("dev", "1.2")
	approve(ctx, g, w, first)
	h.settle(ctx)
	all := w.into(ctx, "prod")
	g.Expect(all).To(HaveLen(2))
	g.Expect(all[0].Status.Phase).To(Equal(capstanv1.PhaseSuperseded))
	g.Expect(all[1].Status.Phase).To(Equal(capstanv1.PhaseAwaitingApproval))
	g.Expect(w.receiver.received()).To(BeEmpty())
}

func TestApproveASupersededOne(t *testing.T) {
	t.Parallel()
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	h := w.began(ctx, w.newPipeline("web", notify(true), "dev", "prod"))
	for _, revision := range []string{"1.1", "1.2"} {
		w.runs("dev", revision)
		h.settle(ctx)
	}
	approve(ctx, g, w, w.into(ctx, "prod")[0])
	h.settle(ctx)
	g.Expect(w.into(ctx, "prod")[0].Status.Phase).To(Equal(capstanv1.PhaseSuperseded))
	first := w.into(ctx, "prod")[0].Status
	g.Expect(first.Approval).To(BeNil(), "it had no effect")
	g.Expect(first.OtherApprovals).To(HaveLen(1))
	g.Expect(first.OtherApprovals[0].By).To(Equal("alice"), "it is recorded all the same")
	g.Expect(first.OtherApprovals[0].NoEffect).To(Equal(capstanv1.ApprovalTooLateReason))
	g.Expect(w.receiver.received()).To(BeEmpty())
}

func TestSourceMovedOn(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := promotedByNotification(t, false, "staging")
	w.runs("dev", "1.0") // Rolled back while the promotion is in flight; staging runs it already.
	h.settle(ctx)
	g.Expect(w.into(ctx, "staging")).To(HaveLen(1))
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseSuperseded)
	g.Expect(w.newest(ctx, "staging").Status.Reason).To(Equal("SourceMovedOn"))
	// The notification was out: staging follows it late. It is brought back.
	w.runs("staging", "1.1")
	h.settle(ctx)
	g.Expect(w.newest(ctx, "staging").Spec.Revision).To(Equal("1.0"))
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingRollout)
}

func TestEnvironmentMovedOn(t *testing.T) {
	t.Parallel()
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	h := w.began(ctx, w.newPipeline("web", notify(false), "dev", "staging", "prod"))
	w.runs("dev", "1.1")
	h.settle(ctx)
	w.runs("staging", "9.9") // Changed outside the pipeline.
	h.settle(ctx)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseSuperseded)
	g.Expect(w.newest(ctx, "staging").Status.Reason).To(Equal("EnvironmentMovedOn"))
	g.Expect(w.into(ctx, "staging")).To(HaveLen(1), "what a person did stays")
	g.Expect(w.into(ctx, "prod")).To(BeEmpty(), "and is not promoted")
	w.runs("dev", "1.2")
	h.settle(ctx)
	g.Expect(w.newest(ctx, "staging").Spec.Revision).To(Equal("1.2"), "until there is something new")
}

// A fast dev under a slow staging: prod is not starved, and the last one arrives.
func TestFastDevSlowStaging(t *testing.T) {
	t.Parallel()
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	h := w.began(ctx, w.newPipeline("web", notify(false), "dev", "staging", "prod"))
	for i := 1; i <= 5; i++ {
		w.runs("dev", fmt.Sprintf("1.%d", i))
		h.settle(ctx)
	}
	g.Expect(w.newest(ctx, "staging").Spec.Number).To(Equal(int64(5)))
	w.runs("staging", "1.3") // A late carrier of an earlier one: no person's hand.
	h.settle(ctx)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingRollout, "1.5 is still awaited")
	w.runs("staging", "1.5")
	w.runs("dev", "1.6")
	h.settle(ctx)
	g.Expect(w.newest(ctx, "staging").Spec.Revision).To(Equal("1.6"))
	w.runs("staging", "1.6")
	h.settle(ctx)
	w.runs("dev", "1.7")
	h.settle(ctx)
	g.Expect(w.newest(ctx, "prod").Spec.Revision).To(Equal("1.6"), "staging got it by promotion: it travels though dev is ahead")
}
