package pipeline

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
)

// status returns the new Pipeline.status: a function of the last status, the observations
// and the Promotions.
func (r *Reconciler) status(p *pipelinesv1.Pipeline, seen observations, promotions []capstanv1.Promotion) pipelinesv1.PipelineStatus {
	found := r.problems(p)
	status := *p.Status.DeepCopy()
	status.ObservedGeneration = p.Generation
	status.Environments = r.environments(p, seen, promotions, found)

	set := func(c metav1.Condition) {
		c.ObservedGeneration = p.Generation
		c.LastTransitionTime = metav1.NewTime(r.Clock.Now())
		meta.SetStatusCondition(&status.Conditions, c)
	}
	set(ready(p, seen, found))
	if c := pending(p, seen); c != nil && !concernsAll(found) {
		set(*c)
	} else {
		meta.RemoveStatusCondition(&status.Conditions, pipelinesv1.PromotionPendingCondition)
	}
	if c := stalled(p, seen, promotions, found); c != nil {
		set(*c)
	} else {
		meta.RemoveStatusCondition(&status.Conditions, pipelinesv1.StalledCondition)
	}
	return status
}

// environments returns the environments of the status. An environment that the spec no
// longer names is removed. If a problem concerns the whole Pipeline (a name is used twice,
// for example), all environments stay as they are.
func (r *Reconciler) environments(p *pipelinesv1.Pipeline, seen observations, promotions []capstanv1.Promotion, found []problem) map[string]*pipelinesv1.EnvironmentStatus {
	if concernsAll(found) {
		return p.Status.DeepCopy().Environments
	}
	targets := seen.targets()
	all := make(map[string]*pipelinesv1.EnvironmentStatus, len(p.Spec.Environments))
	for i := range p.Spec.Environments {
		env := &p.Spec.Environments[i]
		last := p.Status.Environments[env.Name]
		if last == nil {
			last = &pipelinesv1.EnvironmentStatus{}
		}
		status := &pipelinesv1.EnvironmentStatus{
			Targets: r.targetStatuses(p, env, last, seen[i]),
			Agreed:  decision.Record(last.Agreed.DeepCopy(), targets[i], decision.Outbound(promotions, env.Name)),
		}
		status.LastPromotion = decision.LedgerOf(promotions, env.Name, last.LastPromotion).Highest()
		if newest := decision.NewestOf(promotions, env.Name); newest != nil {
			status.Promotion = &pipelinesv1.PromotionSummary{
				Name: newest.Name, Revision: newest.Spec.Revision, Phase: string(newest.Status.Phase),
				Reason: newest.Status.Reason, Message: newest.Status.Message, URL: newest.Status.URL,
			}
			if newest.Status.Phase == capstanv1.PhaseAwaitingApproval {
				status.WaitingApproval.Revision = newest.Spec.Revision
			}
		}
		all[env.Name] = status
	}
	return all
}

func (r *Reconciler) targetStatuses(p *pipelinesv1.Pipeline, env *pipelinesv1.Environment, last *pipelinesv1.EnvironmentStatus, seen []observation) []pipelinesv1.TargetStatus {
	statuses := make([]pipelinesv1.TargetStatus, 0, len(env.Targets))
	for j := range env.Targets {
		status := pipelinesv1.TargetStatus{ClusterAppRef: pipelinesv1.ClusterAppReference{LocalAppReference: p.Spec.AppRef}}
		if ref := env.Targets[j].ClusterRef; ref != nil {
			status.ClusterAppRef.ClusterRef = ref.DeepCopy()
			status.ClusterAppRef.ClusterRef.Namespace = reference(p, &env.Targets[j]).Namespace
		}
		before := lastSeen(last, j, status.ClusterAppRef)
		s := seen[j]
		status.Ready, status.Revision, status.Error = s.target.Ready, s.target.Revision, s.err
		if !s.known && before != nil {
			// This process has not observed the target: the last revision stays.
			status.Revision = before.Revision
		}
		// An application that was observed to be absent becomes stale, too. Otherwise its
		// target would appear as one that is known to run nothing.
		wasSeen := status.Revision != "" || s.known || (before != nil && before.ObservedTime != nil)
		status.Stale = !s.target.Fresh && wasSeen
		status.ObservedTime = r.observedTime(before, status, s)
		statuses = append(statuses, status)
	}
	return statuses
}

// lastSeen returns the target's last status, if that is of the same application.
func lastSeen(last *pipelinesv1.EnvironmentStatus, j int, ref pipelinesv1.ClusterAppReference) *pipelinesv1.TargetStatus {
	if j >= len(last.Targets) {
		return nil
	}
	before := &last.Targets[j]
	a, b := before.ClusterAppRef, ref
	if a.LocalAppReference != b.LocalAppReference || (a.ClusterRef == nil) != (b.ClusterRef == nil) || (a.ClusterRef != nil && *a.ClusterRef != *b.ClusterRef) {
		return nil
	}
	return before
}

// observedTime returns when the application was first observed with the shown revision
// and readiness. It changes only when these change: a target that becomes stale keeps the
// time.
func (r *Reconciler) observedTime(before *pipelinesv1.TargetStatus, now pipelinesv1.TargetStatus, s observation) *metav1.Time {
	same := before != nil && before.Revision == now.Revision && (before.Ready == now.Ready || now.Stale || before.Stale)
	switch {
	case same && before.ObservedTime != nil:
		return before.ObservedTime
	case s.known && !s.obs.At.IsZero():
		return &metav1.Time{Time: s.obs.At.Truncate(1e9)}
	default:
		return nil
	}
}

// unreadyOrder is the order in which the condition Ready prefers reasons.
var unreadyOrder = []string{
	pipelinesv1.InvalidSpecReason,
	pipelinesv1.TargetClusterNotFoundReason,
	pipelinesv1.TargetClusterNotReadyReason,
	pipelinesv1.TargetNotReadableReason,
}

// ready returns the condition Ready. Targets that this process has not observed yet do not
// change it: after a restart the condition stays as it was.
func ready(p *pipelinesv1.Pipeline, seen observations, found []problem) metav1.Condition {
	if concernsAll(found) {
		return metav1.Condition{Type: pipelinesv1.ReadyCondition, Status: metav1.ConditionFalse, Reason: pipelinesv1.InvalidSpecReason, Message: messages(found)}
	}
	for _, reason := range unreadyOrder {
		var errs []string
		for i := range seen {
			for _, s := range seen[i] {
				if s.unready == reason && !s.early {
					errs = append(errs, s.err)
				}
			}
		}
		if len(errs) == 0 {
			continue
		}
		return metav1.Condition{Type: pipelinesv1.ReadyCondition, Status: metav1.ConditionFalse, Reason: reason, Message: shorten(errs)}
	}
	if waiting := early(seen); waiting > 0 {
		if before := meta.FindStatusCondition(p.Status.Conditions, pipelinesv1.ReadyCondition); before != nil && p.Status.ObservedGeneration == p.Generation {
			return *before
		}
		return metav1.Condition{
			Type: pipelinesv1.ReadyCondition, Status: metav1.ConditionUnknown,
			Reason: pipelinesv1.ProgressingReason, Message: fmt.Sprintf("waiting for the first observation of %d targets", waiting),
		}
	}
	return metav1.Condition{
		Type: pipelinesv1.ReadyCondition, Status: metav1.ConditionTrue,
		Reason: pipelinesv1.ReconciliationSucceededReason, Message: "All clusters checked",
	}
}

// early counts the targets that this process has not observed yet.
func early(seen observations) int {
	n := 0
	for i := range seen {
		for _, s := range seen[i] {
			if s.early {
				n++
			}
		}
	}
	return n
}

// maxShown is how many targets a message names; the others are counted.
const maxShown = 3

func shorten(errs []string) string {
	if len(errs) > maxShown {
		return fmt.Sprintf("%s; and %d more targets", strings.Join(errs[:maxShown], "; "), len(errs)-maxShown)
	}
	return strings.Join(errs, "; ")
}

// pending returns the condition that the first environment has no revision to promote; nil
// if it has one.
func pending(p *pipelinesv1.Pipeline, seen observations) *metav1.Condition {
	if len(seen) == 0 || len(seen[0]) == 0 {
		return nil
	}
	targets := seen.targets()[0]
	if _, ok := decision.Agree(targets); ok {
		return nil
	}
	message := "Waiting for all targets to be ready"
	if revisions := decision.Revisions(targets); len(revisions) != 1 || revisions[0] == "" {
		message = "Waiting for all targets to have the same revision"
	}
	var which []string
	for j, t := range targets {
		if t.Ready && t.Fresh {
			which = append(which, fmt.Sprintf("%s has %s", targetText(p, 0, j), t.Revision))
			continue
		}
		why := seen[0][j].err
		if why == "" {
			why = seen[0][j].obs.Message
		}
		which = append(which, fmt.Sprintf("%s is not ready: %s", targetText(p, 0, j), why))
	}
	return &metav1.Condition{
		Type: pipelinesv1.PromotionPendingCondition, Status: metav1.ConditionTrue, Reason: pipelinesv1.EnvironmentNotReadyReason,
		Message: fmt.Sprintf("%s of environment %q: %s", message, p.Spec.Environments[0].Name, shorten(which)),
	}
}

// targetText returns the name of a target in a message.
func targetText(p *pipelinesv1.Pipeline, i, j int) string {
	t := &p.Spec.Environments[i].Targets[j]
	return fmt.Sprintf("%s/%s in %s", t.Namespace, p.Spec.AppRef.Name, clusterText(string(reference(p, t).ClusterName())))
}

// stalled returns the condition that something keeps the Pipeline from advancing; nil if
// nothing does.
func stalled(p *pipelinesv1.Pipeline, seen observations, promotions []capstanv1.Promotion, found []problem) *metav1.Condition {
	if len(found) > 0 {
		return &metav1.Condition{Type: pipelinesv1.StalledCondition, Status: metav1.ConditionTrue, Reason: pipelinesv1.InvalidSpecReason, Message: messages(found)}
	}
	targets := seen.targets()
	var failed, old []string
	for i := 1; i < len(p.Spec.Environments); i++ {
		env := &p.Spec.Environments[i]
		newest := decision.NewestOf(promotions, env.Name)
		if newest == nil {
			continue
		}
		if revision, ok := decision.Agree(targets[i]); ok && revision == newest.Spec.Revision {
			continue
		}
		if newest.Status.Phase == capstanv1.PhaseFailed {
			failed = append(failed, fmt.Sprintf("promotion %s into environment %q failed: %s", newest.Name, env.Name, newest.Status.Message))
			continue
		}
		if c := meta.FindStatusCondition(newest.Status.Conditions, capstanv1.StalledCondition); c != nil && c.Status == metav1.ConditionTrue {
			old = append(old, fmt.Sprintf("promotion %s into environment %q: %s", newest.Name, env.Name, c.Message))
		}
	}
	switch {
	case len(failed) > 0:
		return &metav1.Condition{Type: pipelinesv1.StalledCondition, Status: metav1.ConditionTrue, Reason: pipelinesv1.PromotionFailedReason, Message: shorten(failed)}
	case len(old) > 0:
		return &metav1.Condition{Type: pipelinesv1.StalledCondition, Status: metav1.ConditionTrue, Reason: pipelinesv1.PromotionStalledReason, Message: shorten(old)}
	default:
		return nil
	}
}

// reportTransitions records an Event and a log line if the status or the reason of a
// condition changed, and nothing if only its message changed.
func (r *Reconciler) reportTransitions(ctx context.Context, before, after *pipelinesv1.Pipeline) {
	for _, kind := range []string{pipelinesv1.ReadyCondition, pipelinesv1.StalledCondition} {
		old, now := meta.FindStatusCondition(before.Status.Conditions, kind), meta.FindStatusCondition(after.Status.Conditions, kind)
		if now == nil {
			if old != nil {
				logger(ctx).Info("condition removed", "condition", kind)
			}
			continue
		}
		if old != nil && old.Status == now.Status && old.Reason == now.Reason {
			continue
		}
		if now.Status == metav1.ConditionUnknown {
			continue // It is in progress: there is nothing to report yet.
		}
		logger(ctx).Info("condition changed", "condition", kind, "status", now.Status, "reason", now.Reason, "message", now.Message)
		severity, reason := corev1.EventTypeWarning, now.Reason
		switch {
		case kind == pipelinesv1.ReadyCondition && now.Status == metav1.ConditionTrue:
			severity = corev1.EventTypeNormal
		case reason == pipelinesv1.TargetClusterNotFoundReason, reason == pipelinesv1.TargetClusterNotReadyReason:
			reason = "GetClusterError" // weave's reason, which alerts may use
		case reason == pipelinesv1.TargetNotReadableReason:
			reason = "GetAppError" // also weave's
		}
		r.Recorder.Eventf(after, nil, severity, reason, "Reconcile", "%s", now.Message)
	}
}
