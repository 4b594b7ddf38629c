package promotion

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
)

// A promotion is carried out in runs. status.retry identifies the present one: it is the
// value of spec.retry that started it. A raise of spec.retry starts the next run only if
// the present one has finished. Each run of a manual promotion needs its own approval.

// maxOtherApprovals is the maximum number of items in status.otherApprovals.
const maxOtherApprovals = 20

// retryDue returns whether spec.retry was raised since the present run finished.
func retryDue(p *capstanv1.Promotion) bool {
	return p.Status.Phase.Finished() && p.Spec.Retry > max(p.Status.Retry, p.Status.IgnoredRetry)
}

// noteRetry sets the first run, and records a raise of spec.retry that has no effect
// because the present run has not finished. The hub writes each end over the version that
// it read, so no raise before the end is missed.
func noteRetry(p *capstanv1.Promotion) {
	s := &p.Status
	switch {
	case s.Phase.Finished():
	case s.Phase == "":
		s.Retry = p.Spec.Retry
	case p.Spec.Retry > max(s.Retry, s.IgnoredRetry):
		s.IgnoredRetry = p.Spec.Retry
	}
}

// noteIgnoredRetry records a raise of spec.retry of a promotion that has finished and was replaced: what it would
// promote again was put aside on purpose, such as by a rollback. A PromotionRequest is the way to do so.
func noteIgnoredRetry(p *capstanv1.Promotion, v view) {
	if retryDue(p) && v.pipeline != nil && v.ledger.Outranks(decision.EntryOf(p)) {
		p.Status.IgnoredRetry = p.Spec.Retry
	}
}

// nextRun returns the status with which the next run begins. It keeps the approval of the
// present run as a record.
func nextRun(p *capstanv1.Promotion) capstanv1.PromotionStatus {
	next := capstanv1.PromotionStatus{Retry: p.Spec.Retry, OtherApprovals: p.Status.OtherApprovals, SoakedSeconds: p.Status.SoakedSeconds, GatesShown: p.Status.GatesShown}
	if p.Status.Approval != nil {
		next.OtherApprovals = appendApproval(next.OtherApprovals, *p.Status.Approval)
	}
	return next
}

// approvalOfRun returns the approval of the present run; nil if it was not given.
func approvalOfRun(p *capstanv1.Promotion) *capstanv1.Approval {
	if p.Spec.Approval == nil || p.Spec.Approval.Retry != p.Status.Retry {
		return nil
	}
	return p.Spec.Approval
}

// recordApproval records the approval with which the present run continues, and when the
// hub observed it.
func recordApproval(p *capstanv1.Promotion, now metav1.Time) {
	if p.Status.Approval != nil {
		return // The run started again because a Secret changed.
	}
	if a := approvalOfRun(p); a != nil {
		p.Status.Approval = recordOf(a, now)
	}
}

func recordOf(a *capstanv1.Approval, now metav1.Time) *capstanv1.ApprovalRecord {
	method := a.Method
	if method == "" {
		method = capstanv1.ApprovalByKubernetes
	}
	return &capstanv1.ApprovalRecord{By: a.By, ApprovalTime: now, Method: method, Retry: a.Retry, Comment: a.Comment}
}

// noteOtherApprovals records an approval that has no effect on the present run.
func noteOtherApprovals(p *capstanv1.Promotion, now metav1.Time) {
	s := &p.Status
	if why := ineffective(p); s.Approval != nil && why != "" {
		// An earlier version of the hub recorded it as if it had an effect.
		s.OtherApprovals = appendApproval(s.OtherApprovals, withoutEffect(*s.Approval, why))
		s.Approval = nil
	}
	a := p.Spec.Approval
	if a == nil || (s.Approval != nil && s.Approval.Retry == a.Retry) ||
		slices.ContainsFunc(s.OtherApprovals, func(r capstanv1.ApprovalRecord) bool { return r.Retry == a.Retry }) {
		return
	}
	switch {
	case !p.Spec.Manual:
		s.OtherApprovals = appendApproval(s.OtherApprovals, withoutEffect(*recordOf(a, now), capstanv1.ApprovalNotRequiredReason))
	case a.Retry <= s.Retry:
		s.OtherApprovals = appendApproval(s.OtherApprovals, withoutEffect(*recordOf(a, now), capstanv1.ApprovalTooLateReason))
	}
}

// ineffective returns why status.approval cannot have had an effect; empty if it may have.
func ineffective(p *capstanv1.Promotion) string {
	s := &p.Status
	switch {
	case s.Approval == nil:
		return ""
	case !p.Spec.Manual:
		return capstanv1.ApprovalNotRequiredReason
	case s.Phase.Finished() && s.FinishTime != nil && s.Approval.ApprovalTime.After(s.FinishTime.Time):
		return capstanv1.ApprovalTooLateReason
	}
	return ""
}

func withoutEffect(r capstanv1.ApprovalRecord, why string) capstanv1.ApprovalRecord {
	r.NoEffect = why
	return r
}

func appendApproval(records []capstanv1.ApprovalRecord, r capstanv1.ApprovalRecord) []capstanv1.ApprovalRecord {
	r.FormerAt = nil //nolint:staticcheck // It is dropped.
	records = append(slices.Clone(records), r)
	return records[max(0, len(records)-maxOtherApprovals):]
}

// approvalRequired says how to approve the present run.
func approvalRequired(p *capstanv1.Promotion) string {
	if p.Status.Retry == 0 {
		return fmt.Sprintf("waiting for an approval: set spec.approval.by of promotions.capstan.dev %s to your user name", p.Name)
	}
	return fmt.Sprintf("waiting for an approval of retry %d: set spec.approval of promotions.capstan.dev %s to by: your user name, retry: %d; an approval of an earlier run does not apply",
		p.Status.Retry, p.Name, p.Status.Retry)
}

// reportIneffective records one Event and one log line for a raise of spec.retry, and for
// an approval, that has no effect.
func (r *Reconciler) reportIneffective(ctx context.Context, before, p *capstanv1.Promotion) {
	if ignored := p.Status.IgnoredRetry; ignored > before.Status.IgnoredRetry {
		message := fmt.Sprintf("spec.retry was raised to %d before the promotion had finished; this has no effect: raise it again after the end", ignored)
		if c := meta.FindStatusCondition(p.Status.Conditions, capstanv1.RetryIgnoredCondition); c != nil {
			message = c.Message
		}
		r.Recorder.Eventf(p, nil, corev1.EventTypeWarning, "RetryIgnored", "Retry", "%s", cut(message))
		log.FromContext(ctx).Info("a raise of spec.retry is ignored", "retry", ignored, "run", p.Status.Retry, "phase", before.Status.Phase)
	}
	for i := range p.Status.OtherApprovals {
		a := &p.Status.OtherApprovals[i]
		if a.NoEffect == "" || before.Status.Approval != nil ||
			slices.ContainsFunc(before.Status.OtherApprovals, func(b capstanv1.ApprovalRecord) bool { return b.Retry == a.Retry }) {
			continue
		}
		r.Recorder.Eventf(p, nil, corev1.EventTypeWarning, a.NoEffect, "Approve", "approved by %s, but the promotion does not wait for an approval (%s); the approval has no effect", a.By, p.Status.Phase)
		log.FromContext(ctx).Info("an approval has no effect", "reason", a.NoEffect, "by", a.By, "phase", p.Status.Phase)
	}
}
