package promotions_test

import (
	"context"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// published are the Events that the hub has recorded on Promotions and Pipelines.
func (h *hubUnder) published() []string {
	recorder, ok := h.promotions.Recorder.(*events.FakeRecorder)
	if !ok {
		h.w.Fatalf("the recorder is another")
		return nil
	}
	var all []string
	for {
		select {
		case e := <-recorder.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

// approveRun approves a run of a promotion.
func approveRun(ctx context.Context, g Gomega, w *world, p capstanv1.Promotion, by string, run int64) {
	before := p.DeepCopy()
	p.Spec.Approval = &capstanv1.Approval{By: by, Retry: run}
	g.Expect(w.c.Patch(ctx, &p, client.MergeFrom(before))).To(Succeed())
}

// spec.retry that is raised while the promotion is in flight starts no run, neither then nor
// at the end: the record says what was done. Another raise after the end starts one.
func TestRaiseOfRetryInFlightIsIgnored(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := promotedByNotification(t, false, "staging")
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingRollout)
	h.published()
	retry(ctx, g, w, w.newest(ctx, "staging"))
	h.settle(ctx)
	p := w.newest(ctx, "staging")
	g.Expect(p.Status.Phase).To(Equal(capstanv1.PhaseAwaitingRollout))
	g.Expect(p.Status.IgnoredRetry).To(Equal(int64(1)))
	g.Expect(h.published()).To(ConsistOf(ContainSubstring("RetryIgnored spec.retry was raised to 1 before the promotion had finished")))

	w.runs("staging", "1.1")
	h.settle(ctx)
	p = w.newest(ctx, "staging")
	g.Expect(p.Status.Phase).To(Equal(capstanv1.PhaseSucceeded))
	g.Expect(p.Status.Reason).To(Equal("RolledOut"))
	g.Expect(p.Status.Retry).To(BeZero())
	g.Expect(p.Status.Attempt).NotTo(BeNil())
	g.Expect(p.Status.Attempt.Number).To(Equal(int64(1)))
	g.Expect(w.receiver.received()).To(HaveLen(1))
	// A hub that starts later decides the same.
	w.hub("later", w.c, nil).settle(ctx)
	g.Expect(w.newest(ctx, "staging").Status.Reason).To(Equal("RolledOut"))

	w.runs("staging", "1.0")
	h.settle(ctx)
	retry(ctx, g, w, w.newest(ctx, "staging"))
	h.settle(ctx)
	p = w.newest(ctx, "staging")
	g.Expect(p.Status.Phase).To(Equal(capstanv1.PhaseAwaitingRollout))
	g.Expect(p.Status.Retry).To(Equal(int64(2)))
	g.Expect(w.receiver.ids).To(HaveLen(2))
}

// A raise that arrives while the hub writes the end is in flight, too: the hub's write
// conflicts, and it decides again over the raise.
func TestRaiseOfRetryJustBeforeTheEndIsIgnored(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := promotedByNotification(t, false, "staging")
	w.runs("staging", "1.1")
	retry(ctx, g, w, w.newest(ctx, "staging"))
	h.settle(ctx)
	p := w.newest(ctx, "staging")
	g.Expect(p.Status.Reason).To(Equal("RolledOut"))
	g.Expect(p.Status.IgnoredRetry).To(Equal(int64(1)))
	g.Expect(p.Status.Retry).To(BeZero())
}

// The approval of a run does not apply to the next one. Both stay on record.
func TestRetryOfAManualPromotionWaitsForANewApproval(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := promotedByNotification(t, true, "prod")
	approveRun(ctx, g, w, w.newest(ctx, "prod"), "alice", 0)
	h.settle(ctx)
	w.runs("prod", "1.1")
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseSucceeded)

	w.runs("prod", "1.0") // Rolled back by hand.
	h.settle(ctx)
	retry(ctx, g, w, w.newest(ctx, "prod"))
	h.settle(ctx)
	p := w.newest(ctx, "prod")
	g.Expect(p.Status.Phase).To(Equal(capstanv1.PhaseAwaitingApproval))
	g.Expect(p.Status.Message).To(ContainSubstring("waiting for an approval of retry 1"))
	g.Expect(p.Status.Approval).To(BeNil(), "no user has approved this run")
	g.Expect(p.Status.OtherApprovals).To(HaveLen(1))
	g.Expect(p.Status.OtherApprovals[0].By).To(Equal("alice"))
	g.Expect(p.Status.OtherApprovals[0].NoEffect).To(BeEmpty())
	g.Expect(w.receiver.received()).To(HaveLen(1))
	g.Expect(w.pipeline(ctx, "web").Status.Environments["prod"].WaitingApproval.Revision).To(Equal("1.1"))

	approveRun(ctx, g, w, p, "bob", 1)
	h.settle(ctx)
	p = w.newest(ctx, "prod")
	g.Expect(p.Status.Phase).To(Equal(capstanv1.PhaseAwaitingRollout))
	g.Expect(p.Status.Approval.By).To(Equal("bob"))
	g.Expect(p.Status.Approval.Retry).To(Equal(int64(1)))
	g.Expect(p.Status.OtherApprovals).To(HaveLen(1))
	g.Expect(w.receiver.ids).To(HaveLen(2))
}

// A rejection ends the run, and the revision is not promoted again by itself. A retry waits for a decision of its own, and
// another revision is promoted as usual.
func TestRejectionEndsARun(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := promotedByNotification(t, true, "prod")
	p := w.newest(ctx, "prod")
	before := p.DeepCopy()
	p.Spec.Rejection = &capstanv1.Rejection{By: "alice", Comment: "not on a Friday"}
	g.Expect(w.c.Patch(ctx, &p, client.MergeFrom(before))).To(Succeed())
	h.settle(ctx)
	rejected := w.newest(ctx, "prod")
	g.Expect(rejected.Name).To(Equal(p.Name), "no other promotion is made")
	g.Expect(rejected.Status.Phase).To(Equal(capstanv1.PhaseRejected))
	g.Expect(rejected.Status.Reason).To(Equal("RejectedByUser"))
	g.Expect(rejected.Status.Message).To(HavePrefix("rejected by alice: not on a Friday; "))
	g.Expect(rejected.Status.FinishTime).NotTo(BeNil())
	g.Expect(w.receiver.received()).To(BeEmpty())
	g.Expect(w.pipeline(ctx, "web").Status.Environments["prod"].WaitingApproval.Revision).To(BeEmpty())

	retry(ctx, g, w, rejected)
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingApproval)
	approveRun(ctx, g, w, w.newest(ctx, "prod"), "bob", 1)
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingRollout)
	g.Expect(w.receiver.received()).To(HaveLen(1))
}

// An approval of an automatic or finished promotion has no effect, and the record says so.
// The admission policy refuses it; this is for clusters without the policy.
func TestApprovalWithoutEffectIsRecordedAsSuch(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		manual bool
		why    string
	}{
		"automatic": {false, capstanv1.ApprovalNotRequiredReason},
		"too late":  {true, capstanv1.ApprovalTooLateReason},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, ctx, w, h := promotedByNotification(t, tc.manual, "prod")
			w.runs("prod", "1.1")
			h.settle(ctx)
			w.expectPhase(ctx, g, "prod", capstanv1.PhaseSucceeded)
			h.published()
			approveRun(ctx, g, w, w.newest(ctx, "prod"), "alice", 0)
			h.settle(ctx)
			h.settle(ctx)
			p := w.newest(ctx, "prod")
			g.Expect(p.Status.Approval).To(BeNil(), "APPROVED BY shows status.approval.by")
			g.Expect(p.Status.OtherApprovals).To(HaveLen(1))
			g.Expect(p.Status.OtherApprovals[0].NoEffect).To(Equal(tc.why))
			g.Expect(h.published()).To(ConsistOf(ContainSubstring(tc.why + " approved by alice")))
		})
	}
}

// Versions before this one recorded an approval of an automatic or finished promotion as if
// it had an effect.
func TestFormerRecordOfAnApprovalWithoutEffect(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := promotedByNotification(t, false, "prod")
	w.runs("prod", "1.1")
	h.settle(ctx)
	p := w.newest(ctx, "prod")
	before := p.DeepCopy()
	p.Spec.Approval = &capstanv1.Approval{By: "alice"}
	g.Expect(w.c.Patch(ctx, &p, client.MergeFrom(before))).To(Succeed())
	before = p.DeepCopy()
	p.Status.Approval = &capstanv1.ApprovalRecord{By: "alice", Method: capstanv1.ApprovalByKubernetes, ApprovalTime: metav1.NewTime(w.clock.Now().Add(time.Minute))}
	g.Expect(w.c.Status().Patch(ctx, &p, client.MergeFrom(before))).To(Succeed())
	h.settle(ctx)
	p = w.newest(ctx, "prod")
	g.Expect(p.Status.Approval).To(BeNil())
	g.Expect(p.Status.OtherApprovals).To(HaveLen(1))
	g.Expect(p.Status.OtherApprovals[0].By).To(Equal("alice"))
	g.Expect(strings.Join(h.published(), "\n")).NotTo(ContainSubstring("ApprovalNotRequired"), "the record is corrected, nothing happened")
}
