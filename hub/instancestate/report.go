package instancestate

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
)

// report the status of a source, when it is another.
func (s *sources) report(ctx context.Context, backend *eventingv1.EventingBackend, invalid []eventingv1.ValidationError, running *source) error {
	next := backend.DeepCopy()
	status := &next.Status
	status.ObservedGeneration = backend.Generation
	status.ValidationErrors = invalid
	if running != nil {
		status.BackendType = typeSQS
	}
	at := metav1.NewTime(s.r.Clock.Now())
	ready := true
	all := []eventingv1.Condition{backendReady(invalid, running), publisherReady(), subscriptionsReady(running)}
	for _, c := range all {
		ready = ready && c.Status == corev1.ConditionTrue
	}
	all = append(all, overall(all, ready))
	status.Conditions = timed(backend.Status.Conditions, all, at)
	status.EventingReady = ptr.To(ready)
	if equality.Semantic.DeepEqual(backend.Status, next.Status) {
		return nil
	}
	if err := s.client.Status().Patch(ctx, next, client.MergeFromWithOptions(backend, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the status of EventingBackend %s/%s: %w", backend.Namespace, backend.Name, err)
	}
	return nil
}

func backendReady(invalid []eventingv1.ValidationError, running *source) eventingv1.Condition {
	c := eventingv1.Condition{Type: eventingv1.BackendReadyCondition, Status: corev1.ConditionFalse, Reason: eventingv1.BackendNotReadyReason}
	switch {
	case len(invalid) > 0:
		c.Reason, c.Message = eventingv1.InvalidConfigReason, fmt.Sprintf("%s: %s", invalid[0].Config, invalid[0].Error)
		if running != nil {
			c.Message += "; the last good configuration is in use"
		}
	case !running.consumer.Status().Ready:
		c.Message = whyNot(running)
	default:
		c.Status, c.Reason = corev1.ConditionTrue, eventingv1.BackendReadyReason
	}
	return c
}

// whyNot a source's queue can be read.
func whyNot(running *source) string {
	if message := running.consumer.Status().Message; message != "" {
		return message
	}
	return "the queue was not read yet"
}

func publisherReady() eventingv1.Condition {
	return eventingv1.Condition{
		Type: eventingv1.PublisherProxyReadyCondition, Status: corev1.ConditionTrue,
		Reason: eventingv1.PublisherReadyReason, Message: eventingv1.SourceOnlyMessage,
	}
}

func subscriptionsReady(running *source) eventingv1.Condition {
	c := eventingv1.Condition{Type: eventingv1.SubscriptionControllerReadyCondition, Status: corev1.ConditionFalse, Reason: eventingv1.SubscriptionsNotReadyReason}
	switch {
	case running == nil:
		c.Message = "no valid configuration was there yet"
	case !running.consumer.Status().Ready:
		c.Message = whyNot(running)
	default:
		c.Status, c.Reason = corev1.ConditionTrue, eventingv1.SubscriptionsStartedReason
	}
	return c
}

// overall is Ready, with the reason of the first that is not.
func overall(all []eventingv1.Condition, ready bool) eventingv1.Condition {
	if ready {
		return eventingv1.Condition{Type: eventingv1.ReadyCondition, Status: corev1.ConditionTrue, Reason: eventingv1.BackendReadyReason}
	}
	c := eventingv1.Condition{Type: eventingv1.ReadyCondition, Status: corev1.ConditionFalse}
	for _, other := range all {
		if other.Status != corev1.ConditionTrue {
			c.Reason, c.Message = other.Reason, other.Message
			break
		}
	}
	return c
}

// timed conditions, with the time at which each came to its status.
func timed(before, now []eventingv1.Condition, at metav1.Time) []eventingv1.Condition {
	for i := range now {
		now[i].LastTransitionTime = at
		for _, old := range before {
			if old.Type == now[i].Type && old.Status == now[i].Status {
				now[i].LastTransitionTime = old.LastTransitionTime
			}
		}
	}
	return now
}
