package promotion

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
)

// A promotion that was replaced after its merge may yet prove to be the one that brought what the environment runs: when
// the newer one, which is in flight, ends because it brings nothing new. Until then it is kept.
func TestAReplacedPromotionIsKeptWhileANewerOneIsInFlight(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	r := &Reconciler{}
	r.Clock, r.Retention = clocktesting.NewFakeClock(now), 24*time.Hour
	promotion := func(n int64, phase capstanv1.PromotionPhase, reason decision.PhaseReason, carriedOut bool) *capstanv1.Promotion {
		p := &capstanv1.Promotion{}
		p.Spec.Number, p.Spec.Strategy.PullRequest = n, &pipelinesv1.PullRequestPromotion{}
		p.Status.Phase, p.Status.Reason = phase, string(reason)
		old := metav1.NewTime(now.Add(-48 * time.Hour))
		if phase.Finished() {
			p.Status.FinishTime = &old
		}
		if carriedOut {
			p.Status.CarriedOutTime = &old
		}
		return p
	}
	succeeded := promotion(1, capstanv1.PhaseSucceeded, "", true)
	older := promotion(2, capstanv1.PhaseSuperseded, decision.SourceMovedOn, true)
	replaced := promotion(3, capstanv1.PhaseSuperseded, decision.NewerPromotion, true)
	left := promotion(4, capstanv1.PhaseSuperseded, decision.SourceMovedOn, false)
	g.Expect(r.outdatedIn([]*capstanv1.Promotion{promotion(5, capstanv1.PhasePromoting, "", false), left, replaced, older, succeeded}, true)).
		To(Equal([]*capstanv1.Promotion{left, older}))
	empty := promotion(5, capstanv1.PhaseSuperseded, decision.NothingNew, false)
	g.Expect(r.outdatedIn([]*capstanv1.Promotion{empty, left, replaced, older, succeeded}, true)).To(Equal([]*capstanv1.Promotion{left, older}))
	by := func(p *capstanv1.Promotion, approval *capstanv1.ApprovalRecord) *capstanv1.Promotion {
		p.Spec.Manual, p.Spec.Revision, p.Status.Approval = true, "1.1", approval
		return p
	}
	approved := by(promotion(3, capstanv1.PhaseSucceeded, "", true), &capstanv1.ApprovalRecord{By: "anna"})
	approvedBefore := by(promotion(2, capstanv1.PhaseSucceeded, "", true), &capstanv1.ApprovalRecord{By: "anna"})
	byHand := by(promotion(4, capstanv1.PhaseSucceeded, decision.AlreadyThere, false), nil)
	g.Expect(r.outdatedIn([]*capstanv1.Promotion{byHand, approved, approvedBefore}, true)).To(Equal([]*capstanv1.Promotion{approvedBefore}), "the approval is for all waves")
	better := promotion(5, capstanv1.PhaseSucceeded, "", true)
	g.Expect(r.outdatedIn([]*capstanv1.Promotion{better, left, replaced, older, succeeded}, true)).To(Equal([]*capstanv1.Promotion{left, replaced, older, succeeded}))
}
