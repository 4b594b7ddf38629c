package pipeline

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// reportTransitions records an Event and a log line if the status or the reason of a
// condition changed, and nothing if only its message changed. A failed promotion has an Event
// of its own here, which names the Promotion; the Event of the Promotion has the cause.
//
// That a Pipeline is Ready, or is not because a cluster does not answer, has no Event if it is older than this
// process, was never Ready or not Ready before, and this is the first status that the process writes.
// A first start would create one for each Pipeline, which takes the API server as long as the
// statuses. Such a cluster has an Event of its own.
func (r *Reconciler) reportTransitions(ctx context.Context, before, after *pipelinesv1.Pipeline, clusterFault bool) {
	for _, kind := range []string{pipelinesv1.ReadyCondition, pipelinesv1.StalledCondition, pipelinesv1.StarvedCondition, pipelinesv1.AppSharedCondition, pipelinesv1.WavesDivergedCondition} {
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
		severity, reason := eventOf(after, now, clusterFault)
		_, observed := r.Observed(client.ObjectKeyFromObject(after), after.UID)
		unknown := old == nil || old.Status == metav1.ConditionUnknown
		if unknown && (reason == reasonUpdated || reason == reasonGetClusterError && now.Reason == pipelinesv1.TargetNotReadableReason) &&
			after.CreationTimestamp.Time.Before(r.began) && !observed {
			continue
		}
		if reason != "" {
			r.Recorder.Eventf(after, nil, severity, reason, "Reconcile", "%s", now.Message)
		}
	}
	for i := range after.Spec.Environments {
		env := after.Spec.Environments[i].Name
		r.reportStandings(after, before.Status.Environments[env], i)
		if failed := newlyFailed(before.Status.Environments[env], after.Status.Environments[env]); failed != nil {
			r.Recorder.Eventf(after, nil, corev1.EventTypeWarning, pipelinesv1.PromotionFailedReason, "Reconcile",
				"The promotion of %s into environment %q failed (%s): see Promotion %s", failed.Revision, env, failed.Reason, failed.Name)
			if advice := after.Status.Environments[env].RollbackAdvice; advice != "" {
				r.Recorder.Eventf(after, nil, corev1.EventTypeWarning, ReasonNotRolledBack, "Reconcile", "%s failed in environment %q, and %s", failed.Revision, env, advice)
			}
		}
	}
}

// ReasonNotRolledBack is the reason of the Event that a promotion failed in its environment, that rollbacks are
// configured, and that the hub makes none.
const ReasonNotRolledBack = "NotRolledBack"

// Reasons of Events that weave's controller uses, for alerts on them.
const (
	reasonUpdated         = "Updated"
	reasonGetClusterError = "GetClusterError"
	reasonGetAppError     = "GetAppError"
)

// eventOf returns the type and the reason of the Event about a condition; no reason if
// another Event reports the same.
func eventOf(p *pipelinesv1.Pipeline, c *metav1.Condition, clusterFault bool) (severity, reason string) {
	switch {
	case c.Type == pipelinesv1.ReadyCondition && c.Status == metav1.ConditionTrue:
		return corev1.EventTypeNormal, reasonUpdated
	case c.Type == pipelinesv1.StalledCondition && c.Reason == pipelinesv1.PromotionFailedReason:
		return "", "" // Each failed promotion has its own.
	case c.Type == pipelinesv1.StalledCondition && c.Reason == pipelinesv1.InvalidSpecReason &&
		meta.IsStatusConditionFalse(p.Status.Conditions, pipelinesv1.ReadyCondition) &&
		meta.FindStatusCondition(p.Status.Conditions, pipelinesv1.ReadyCondition).Reason == pipelinesv1.InvalidSpecReason:
		return "", "" // Ready has the same message.
	case c.Reason == pipelinesv1.TargetClusterNotFoundReason, c.Reason == pipelinesv1.TargetClusterNotReadyReason,
		c.Reason == pipelinesv1.TargetNotReadableReason && clusterFault:
		return corev1.EventTypeWarning, reasonGetClusterError
	case c.Reason == pipelinesv1.TargetNotReadableReason:
		return corev1.EventTypeWarning, reasonGetAppError
	}
	return corev1.EventTypeWarning, c.Reason
}

// newlyFailed returns the newest promotion into an environment if it failed since the last
// status.
func newlyFailed(before, after *pipelinesv1.EnvironmentStatus) *pipelinesv1.PromotionSummary {
	failed := func(s *pipelinesv1.EnvironmentStatus) *pipelinesv1.PromotionSummary {
		if s == nil || s.Promotion == nil || s.Promotion.Phase != string(capstanv1.PhaseFailed) {
			return nil
		}
		return s.Promotion
	}
	now, was := failed(after), failed(before)
	if now == nil || (was != nil && was.Name == now.Name) {
		return nil
	}
	return now
}
