package promotion

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
)

// maxSteps bounds how many rows of the table one reconcile may apply. The longest sequence
// is retry, created, AwaitingGates, Promoting, AwaitingRollout.
const maxSteps = 8

// advance applies the lifecycle table until no row matches the facts. reason and message
// are those of the strategy for an outcome that is impossible.
func (r *Reconciler) advance(p *capstanv1.Promotion, v view, outcome decision.Outcome, reason, message string) {
	now := metav1.NewTime(r.Clock.Now())
	noteRetry(p)
	v.noteSoak(p)
	r.noteTrial(p, v)
	r.noteChecks(p, v)
	for range maxSteps {
		phase, why, moved := decision.Next(p.Status.Phase, v.facts(p, outcome))
		if !moved {
			break
		}
		switch why { //nolint:exhaustive // The others are phases to enter.
		case decision.Retried:
			p.Status = nextRun(p)
			continue
		case decision.SecretChanged: // The same promotion continues: it keeps its pull request.
			r.shown.forget(p.UID)
			p.Status = capstanv1.PromotionStatus{
				Retry: p.Status.Retry, IgnoredRetry: p.Status.IgnoredRetry, Approval: p.Status.Approval, OtherApprovals: p.Status.OtherApprovals,
				URL: p.Status.URL, PullRequest: p.Status.PullRequest, SoakedSeconds: p.Status.SoakedSeconds, GatesShown: p.Status.GatesShown,
			}
			continue
		}
		if phase == capstanv1.PhaseSucceeded && p.Status.CarriedOutTime != nil && p.Spec.Strategy.PullRequest != nil {
			// Its pull request was merged: none is open. The branch may be left.
			p.Status.Withdrawn = p.Spec.Strategy.PullRequest.KeepBranch
		}
		r.enter(p, phase, why, now)
		if phase == capstanv1.PhaseSucceeded || phase == capstanv1.PhaseVerifying {
			p.Status.Message = cut(p.Status.Message + v.leftOut(p))
		}
		v.endTrial(p, why, now)
		if why == decision.Approved {
			recordApproval(p, now)
		}
		if why == decision.Impossible {
			p.Status.Reason, p.Status.Message = reason, message
		}
	}
	noteOtherApprovals(p, now)
	noteIgnoredRetry(p, v)
	if p.Status.Phase == capstanv1.PhasePromoting && v.suspended() {
		p.Status.Reason, p.Status.Message = reasonSuspended, suspendedMessage(p)
	}
	v.showGates(p)
	r.showTrial(p, v)
	r.conditions(p, now)
	p.Status.ObservedGeneration = p.Generation
}

// reasonSuspended is the reason while spec.suspend of the Pipeline blocks a promotion.
const reasonSuspended = "Suspended"

func suspendedMessage(p *capstanv1.Promotion) string {
	return fmt.Sprintf("blocked: spec.suspend of Pipeline %s is true; set it to false to continue", p.Spec.Pipeline.Name)
}

// enter sets the phase, with its reason, message and times.
func (r *Reconciler) enter(p *capstanv1.Promotion, phase capstanv1.PromotionPhase, why decision.PhaseReason, now metav1.Time) {
	s := &p.Status
	if s.StartTime == nil {
		s.StartTime = &now
	}
	if s.Phase == capstanv1.PhaseFailed {
		recovered(p, phase, now)
	}
	s.Phase, s.Reason, s.Message = phase, string(why), sentence(p, why)
	if why == decision.CarriedOut || why == decision.PullRequestMerged || why == decision.MergedWhileClosed {
		s.CarriedOutTime = &now
	}
	if phase == capstanv1.PhaseVerifying { // What failed before, such as a look at the pull request, has no meaning any more.
		s.VerifyTime, s.Secret, s.Failure, s.Checks = &now, nil, nil, nil
	}
	if phase.Finished() {
		s.FinishTime = &now
	}
}

// sentence returns the message of a phase: the state, and what it waits for or what the
// user has to do.
func sentence(p *capstanv1.Promotion, why decision.PhaseReason) string {
	env, revision := p.Spec.Environment, p.Spec.Revision
	switch why {
	case decision.PipelineDeleted:
		return fmt.Sprintf("Pipeline %s was deleted, or re-created under another UID", p.Spec.Pipeline.Name)
	case decision.EnvironmentRemoved:
		if wave := p.Spec.Wave; wave != nil {
			return fmt.Sprintf("environment %q of Pipeline %s was removed, or no cluster is in its wave %q any more", wave.Environment, p.Spec.Pipeline.Name, wave.Name)
		}
		return fmt.Sprintf("environment %q was removed from Pipeline %s", env, p.Spec.Pipeline.Name)
	case decision.PromotionRemoved:
		return fmt.Sprintf("the promotion into environment %q was removed from Pipeline %s", env, p.Spec.Pipeline.Name)
	case decision.SourceChanged:
		return fmt.Sprintf("environment %q is not promoted from %q any more: the environments of Pipeline %s were edited", env, p.Spec.Source.Environment, p.Spec.Pipeline.Name)
	case decision.SourceFailed:
		of := fmt.Sprintf("environment %q, its source", p.Spec.Source.Environment)
		if p.Spec.Wave != nil {
			of += fmt.Sprintf(", or of another wave of %q", p.Spec.Wave.Environment)
		}
		return fmt.Sprintf("%s failed in the verification of %s, or is being rolled back there; it is promoted when it is verified there", revision, of)
	case decision.WaveChanged:
		return fmt.Sprintf("a cluster of %q belongs to another wave of %q now, or to none; a promotion of %s into the clusters that it has now replaces this one",
			env, p.Spec.Wave.Environment, revision)
	case decision.RequestDeleted:
		return fmt.Sprintf("PromotionRequest %s, which caused it, was deleted", p.Spec.Request.Name)
	case decision.NewerPromotion:
		return "a promotion with a higher number replaced this one"
	case decision.AlreadyThere:
		return fmt.Sprintf("environment %q already ran %s; the hub made no attempt", env, revision)
	case decision.RolledOut:
		return fmt.Sprintf("every target of environment %q runs %s", env, revision)
	case decision.SourceMovedOn:
		return fmt.Sprintf("environment %q, the source of %s, agreed on another revision", p.Spec.Source.Environment, revision)
	case decision.EnvironmentMovedOn:
		return fmt.Sprintf("environment %q agreed on a revision that no promotion is for; it is not promoted into until %q agrees on a new revision, or spec.retry of this Promotion is raised", env, p.Spec.Source.Environment)
	case decision.RevisionRejected:
		return fmt.Sprintf("%s is in spec.reject of Pipeline %s: it is promoted again when it is taken off that list", revision, p.Spec.Pipeline.Name)
	case decision.RejectedByUser:
		return fmt.Sprintf("rejected by %s: %s; the hub promotes into environment %q again when there is a new revision, or when spec.retry is raised",
			p.Spec.Rejection.By, p.Spec.Rejection.Comment, env)
	case decision.GateClosed: // The first closed gate says what it waits for: showGates.
		return ""
	case decision.MergedWhileClosed:
		return fmt.Sprintf("the pull request was merged while a gate was closed; waiting for every target of %q to run %s", env, revision)
	case decision.ApprovalRequired:
		return approvalRequired(p)
	case decision.Approved:
		return fmt.Sprintf("Approved by %s; starting", p.Spec.Approval.By)
	case decision.Automatic:
		return "Starting (no approval needed)"
	case decision.PullRequestOpened:
		return "waiting for the pull request to be merged"
	case decision.PullRequestMerged, decision.CarriedOut:
		return fmt.Sprintf("waiting for every target of %q to run %s", env, revision)
	case decision.PullRequestClosed:
		return "the pull request was closed unmerged; the hub opens it again when there is a new revision, or when spec.retry is raised"
	case decision.NothingNew:
		return fmt.Sprintf("%s differs from what Git has for environment %q only in what promotions wrote; no pull request is needed", revision, env)
	case decision.Verified:
		return fmt.Sprintf("every target of environment %q runs %s, which is verified there", env, revision)
	case decision.RolloutDeadline, decision.Degraded, decision.VerificationFailed, decision.Inconclusive: // The verification says why: endTrial.
		return ""
	case decision.Impossible, decision.Retried, decision.SecretChanged:
		return ""
	}
	return ""
}

// conditions sets the conditions, which follow from the phase and the age.
func (r *Reconciler) conditions(p *capstanv1.Promotion, now metav1.Time) {
	set := func(kind string, status metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&p.Status.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: message,
			ObservedGeneration: p.Generation, LastTransitionTime: now,
		})
	}
	switch p.Status.Phase {
	case capstanv1.PhaseSucceeded:
		set(capstanv1.ReadyCondition, metav1.ConditionTrue, p.Status.Reason, p.Status.Message)
	case capstanv1.PhaseFailed, capstanv1.PhaseRejected, capstanv1.PhaseSuperseded:
		set(capstanv1.ReadyCondition, metav1.ConditionFalse, p.Status.Reason, p.Status.Message)
	case capstanv1.PhaseAwaitingGates, capstanv1.PhaseAwaitingApproval, capstanv1.PhasePromoting, capstanv1.PhaseAwaitingMerge, capstanv1.PhaseAwaitingRollout, capstanv1.PhaseVerifying, "":
		set(capstanv1.ReadyCondition, metav1.ConditionUnknown, string(p.Status.Phase), p.Status.Message)
	}
	if p.Status.IgnoredRetry > p.Status.Retry && p.Status.Phase.Finished() {
		set(capstanv1.RetryIgnoredCondition, metav1.ConditionTrue, "Replaced", fmt.Sprintf(
			"spec.retry has no effect: a promotion with a higher number replaced this one; to promote %s into environment %q again, create a PromotionRequest with pipeline: %s, environment: %s and revision: %s",
			p.Spec.Revision, p.Spec.Environment, p.Spec.Pipeline.Name, p.Spec.Environment, p.Spec.Revision))
	} else {
		meta.RemoveStatusCondition(&p.Status.Conditions, capstanv1.RetryIgnoredCondition)
	}
	if gateReport(p) == nil {
		meta.RemoveStatusCondition(&p.Status.Conditions, capstanv1.GatesNotShownCondition)
	}
	switch {
	case p.Status.Phase == capstanv1.PhaseFailed:
		set(capstanv1.StalledCondition, metav1.ConditionTrue, p.Status.Reason, p.Status.Message)
	case modified(p):
		set(capstanv1.StalledCondition, metav1.ConditionTrue, branchModified, p.Status.Message)
	case !p.Status.Phase.Finished() && r.old(p, now.Time):
		set(capstanv1.StalledCondition, metav1.ConditionTrue, "TooOld", fmt.Sprintf("in %s since %s, which is longer than --stall-after %s: %s",
			p.Status.Phase, r.oldSince(p).UTC().Format(time.RFC3339), r.StallAfter, p.Status.Message))
	default:
		meta.RemoveStatusCondition(&p.Status.Conditions, capstanv1.StalledCondition)
	}
}

// branchModified is the reason while the branch of an open pull request has commits that
// the hub did not make.
const branchModified = "BranchModified"

func modified(p *capstanv1.Promotion) bool {
	return p.Status.Phase == capstanv1.PhaseAwaitingMerge && p.Status.PullRequest != nil && p.Status.PullRequest.ForeignSHA != ""
}

// ages returns whether a promotion is stalled when it gets old. One that waits for gates is not, and one
// that is verified has a deadline for the time in which its targets are observed.
func ages(p *capstanv1.Promotion) bool {
	return !aGateIsClosed(p) && p.Status.Phase != capstanv1.PhaseVerifying
}

// old returns whether a promotion is stalled by its age.
func (r *Reconciler) old(p *capstanv1.Promotion, now time.Time) bool {
	return p.Status.StartTime != nil && ages(p) && now.Sub(r.oldSince(p)) >= r.StallAfter
}

// oldSince returns when the age of a promotion began: at its start, or when its gates opened.
func (*Reconciler) oldSince(p *capstanv1.Promotion) time.Time {
	if open := p.Status.GatesOpenTime; open != nil && open.After(p.Status.StartTime.Time) {
		return open.Time
	}
	return p.Status.StartTime.Time
}

func stalledAlready(p *capstanv1.Promotion) bool {
	return meta.IsStatusConditionTrue(p.Status.Conditions, capstanv1.StalledCondition)
}

// reportTransition records one Event and one log line for each transition.
func (r *Reconciler) reportTransition(ctx context.Context, before, p *capstanv1.Promotion) {
	if before.Status.Phase != p.Status.Phase {
		severity := corev1.EventTypeNormal
		switch p.Status.Phase {
		case capstanv1.PhaseFailed, capstanv1.PhaseRejected:
			severity = corev1.EventTypeWarning
		case capstanv1.PhaseAwaitingGates, capstanv1.PhaseAwaitingApproval, capstanv1.PhasePromoting, capstanv1.PhaseAwaitingMerge,
			capstanv1.PhaseVerifying, capstanv1.PhaseSucceeded, capstanv1.PhaseSuperseded:
		case capstanv1.PhaseAwaitingRollout:
			if p.Status.Reason == string(decision.MergedWhileClosed) {
				severity = corev1.EventTypeWarning
			}
		}
		r.Recorder.Eventf(p, nil, severity, string(p.Status.Phase), "Promote", "%s: %s", p.Status.Reason, p.Status.Message)
		log.FromContext(ctx).Info("promotion's phase changed", "from", before.Status.Phase, "to", p.Status.Phase, "reason", p.Status.Reason,
			"environment", p.Spec.Environment, "revision", p.Spec.Revision, "number", p.Spec.Number)
		r.metrics.count(p)
		r.countDelivery(ctx, before, p)
	}
	r.reportGates(ctx, before, p)
	if c := meta.FindStatusCondition(p.Status.Conditions, capstanv1.GatesNotShownCondition); c != nil && meta.FindStatusCondition(before.Status.Conditions, c.Type) == nil {
		r.Recorder.Eventf(p, nil, corev1.EventTypeWarning, ReasonGatesNotShown, "Promote", "%s", cut(c.Message))
		log.FromContext(ctx).Info("the gates cannot be shown at the pull request", "url", p.Status.URL, "reason", c.Reason, "message", c.Message)
	}
	if c := meta.FindStatusCondition(p.Status.Conditions, capstanv1.NotInGitCondition); c != nil && meta.FindStatusCondition(before.Status.Conditions, c.Type) == nil {
		r.Recorder.Eventf(p, nil, corev1.EventTypeWarning, ReasonNotInGit, "Withdraw", "%s", cut(c.Message))
		log.FromContext(ctx).Info("the environment runs a revision that Git does not have", "environment", p.Spec.Environment, "revision", p.Spec.Revision, "url", p.Status.URL)
	}
	// A failed promotion is stalled too, and the Event above reports it.
	if stalledAlready(p) && !stalledAlready(before) && p.Status.Phase != capstanv1.PhaseFailed {
		c := meta.FindStatusCondition(p.Status.Conditions, capstanv1.StalledCondition)
		r.Recorder.Eventf(p, nil, corev1.EventTypeWarning, "Stalled", "Promote", "%s", c.Message)
		log.FromContext(ctx).Info("promotion is stalled", "reason", c.Reason, "message", c.Message)
	}
	r.reportIneffective(ctx, before, p)
}
