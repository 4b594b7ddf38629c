package backend

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/publisher"
)

// Messages of conditions, and parts of them.
const (
	lastGood      = "; the last good configuration is in use"
	notAsked      = "the backend has not answered yet"
	noValidConfig = "there was no valid configuration since the hub began"
	switching     = "the changed configuration is being connected; the one before it is in use"
	ending        = "the backend is being deleted"
	queueIsFull   = "the queue is full: what does not fit waits in the objects that it tells of"
	wantsNoMore   = "the receiver wants no more events (410 Gone); change the configuration or the Secret to begin again"
)

// facts of an EventingBackend, of which its status follows.
type facts struct {
	// wants is the type that the spec names; empty when there is none such.
	wants string
	// invalid is what is wrong with the spec.
	invalid []eventingv1.ValidationError
	// problem is why a valid configuration cannot be used.
	problem string
	// uses is the type of the configuration in use; empty when there is none.
	uses string
	// source: the configuration in use, or else the wanted one, is of a queue that is read.
	source bool
	// moving: another configuration is about to take the place of the one in use.
	moving bool
	// health of the wanted configuration, and of a source's queue.
	asked bool
	fault string
	// published is the publisher's status; nil when it does not know the backend.
	published *publisher.Status
	// deadLetter is what is wrong with the dead letter backend.
	deadLetter string
	// fixed keys of the configuration in use.
	fixed map[string]string
	// ending: the object is being deleted.
	ending bool
}

// settled tells whether nothing is waited for: what the conditions say will last.
func (f facts) settled() bool {
	return len(f.invalid) > 0 || f.problem != "" || (f.asked && !f.moving) || f.fault != ""
}

// none says why no configuration is in use.
func (f facts) none() string {
	switch {
	case f.problem != "":
		return f.problem
	case len(f.invalid) > 0:
		return noValidConfig
	}
	return notAsked
}

// condition of a type, not yet timed.
func condition(kind string, ok bool, reason, message string) eventingv1.Condition {
	c := eventingv1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	if ok {
		c.Status = metav1.ConditionTrue
	}
	return c
}

func (f facts) backendReady() eventingv1.Condition {
	not := func(reason, message string) eventingv1.Condition {
		return condition(eventingv1.BackendReadyCondition, false, reason, message)
	}
	kept := ""
	if f.uses != "" {
		kept = lastGood
	}
	switch {
	case f.ending:
		return not(eventingv1.BackendNotReadyReason, ending)
	case len(f.invalid) > 0:
		return not(eventingv1.InvalidConfigReason, fmt.Sprintf("%s: %s", f.invalid[0].Config, f.invalid[0].Error)+kept)
	case f.problem != "":
		return not(eventingv1.BackendNotReadyReason, f.problem+kept)
	case f.fault != "" && f.moving:
		return not(eventingv1.BackendNotReadyReason, f.fault+kept)
	case f.fault != "":
		return not(eventingv1.BackendNotReadyReason, f.fault)
	case f.moving:
		return not(eventingv1.BackendNotReadyReason, switching)
	case !f.asked:
		return not(eventingv1.BackendNotReadyReason, notAsked)
	}
	return condition(eventingv1.BackendReadyCondition, true, eventingv1.BackendReadyReason, "")
}

func (f facts) publisherReady() eventingv1.Condition {
	not := func(message string) eventingv1.Condition {
		return condition(eventingv1.PublisherProxyReadyCondition, false, eventingv1.PublisherNotReadyReason, message)
	}
	switch {
	case f.ending:
		return not(ending)
	case f.uses == "" && f.problem != "" && !f.source:
		return condition(eventingv1.PublisherProxyReadyCondition, false, eventingv1.PublisherSecretNotSyncReason, f.problem)
	case f.source && (f.uses != "" || len(f.invalid) == 0):
		return condition(eventingv1.PublisherProxyReadyCondition, true, eventingv1.PublisherReadyReason, eventingv1.SourceOnlyMessage)
	case f.uses == "":
		return not(f.none())
	case f.moving && f.uses != f.wants:
		return not(switching)
	case f.published == nil:
		return not(notAsked)
	case f.published.Gone:
		return not(wantsNoMore)
	case !f.published.Taking && f.published.LastError != nil:
		return not("events are held back: " + f.published.LastError.Error())
	case !f.published.Taking:
		return not("events are held back")
	case f.published.Full:
		return not(queueIsFull)
	case f.deadLetter != "":
		return not(f.deadLetter)
	}
	return condition(eventingv1.PublisherProxyReadyCondition, true, eventingv1.PublisherReadyReason, "")
}

func (f facts) subscriptionsReady() eventingv1.Condition {
	not := func(message string) eventingv1.Condition {
		return condition(eventingv1.SubscriptionControllerReadyCondition, false, eventingv1.SubscriptionsNotReadyReason, message)
	}
	switch {
	case f.ending:
		return not(ending)
	case f.uses == "":
		return not(f.none())
	case f.moving && f.uses != f.wants:
		return not(switching)
	case !f.source:
		return condition(eventingv1.SubscriptionControllerReadyCondition, true, eventingv1.SubscriptionsStartedReason, eventingv1.PublishOnlyMessage)
	case f.fault != "":
		return not(f.fault)
	case !f.asked:
		return not(notAsked)
	}
	return condition(eventingv1.SubscriptionControllerReadyCondition, true, eventingv1.SubscriptionsStartedReason, "")
}

// status that follows of the facts, for the generation, after the one before.
func (f facts) status(before eventingv1.EventingBackendStatus, generation int64, now metav1.Time) eventingv1.EventingBackendStatus {
	s := *before.DeepCopy()
	s.ObservedGeneration = generation
	s.ValidationErrors = f.invalid
	s.BackendType = f.uses
	if s.BackendType == "" {
		s.BackendType = f.wants
	}
	switch {
	case f.asked && f.fault == "" && !f.moving && f.uses != "":
		s.FixedConfig = f.fixed
	case s.BackendType != before.BackendType:
		s.FixedConfig = nil
	}
	s.Conditions = []eventingv1.Condition{f.backendReady(), f.publisherReady(), f.subscriptionsReady()}
	ready := condition(eventingv1.ReadyCondition, true, eventingv1.BackendReadyReason, "")
	if i := slices.IndexFunc(s.Conditions, func(c eventingv1.Condition) bool { return c.Status != metav1.ConditionTrue }); i >= 0 {
		ready = condition(eventingv1.ReadyCondition, false, s.Conditions[i].Reason, s.Conditions[i].Message)
	}
	s.Conditions = append(s.Conditions, ready)
	for i := range s.Conditions {
		c := &s.Conditions[i]
		c.LastTransitionTime = now
		if old := conditionOf(before, c.Type); old != nil && old.Status == c.Status && !old.LastTransitionTime.IsZero() {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
	s.EventingReady = ptr.To(ready.Status == metav1.ConditionTrue)
	return s
}

// conditionOf a type; nil when there is none.
func conditionOf(s eventingv1.EventingBackendStatus, kind string) *eventingv1.Condition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == kind {
			return &s.Conditions[i]
		}
	}
	return nil
}
