package backend

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/publisher"
)

// Messages of conditions, and parts of them.
const (
	lastGood      = "; the last good configuration is in use"
	heldBack      = "; events are held back"
	notAnswered   = "the backend has not answered yet"
	noValidConfig = "there was no valid configuration since the hub started"
	switching     = "the hub is connecting to the changed configuration; the previous one is in use"
	ending        = "the backend is being deleted"
	queueIsFull   = "the queue is full: further events of objects are published when there is space again"
	acceptsNoMore = "the receiver accepts no more events (410 Gone); change the configuration or the Secret to start again"
)

// facts about an EventingBackend. Its status is a function of them.
type facts struct {
	// specType is the type in the spec; empty when it is unknown.
	specType string
	// invalid are the validation errors of the spec.
	invalid []eventingv1.ValidationError
	// problem is why a valid configuration cannot be used.
	problem string
	// activeType is the type of the configuration in use; empty when there is none.
	activeType string
	// withheld: the Secret does not allow the host of the configuration in use any more.
	withheld bool
	// source: the configuration in use, or else the desired one, reads a queue.
	source bool
	// replacing: another configuration is about to replace the one in use.
	replacing bool
	// checked: the broker of the desired configuration was pinged, or the source's queue
	// was read. fault is the error; empty when there was none.
	checked bool
	fault   string
	// published is the publisher's status; nil when the publisher does not have the backend.
	published *publisher.Status
	// deadLetter is the problem of the dead letter backend; empty when there is none.
	deadLetter string
	// note is what a queue that is read cannot do; empty when there is nothing.
	note string
	// delivery is the state of the events; nil when there is none.
	delivery *eventingv1.Delivery
	// fixed are the immutable keys of the configuration in use.
	fixed map[string]string
	// ending: the object is being deleted.
	ending bool
}

// settled reports whether the conditions are final, and do not wait for a first check.
func (f facts) settled() bool {
	return len(f.invalid) > 0 || f.problem != "" || (f.checked && !f.replacing) || f.fault != ""
}

// noConfigReason is the message why no configuration is in use.
func (f facts) noConfigReason() string {
	switch {
	case f.problem != "":
		return f.problem
	case len(f.invalid) > 0:
		return noValidConfig
	}
	return notAnswered
}

// condition of a type, without its transition time.
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
	switch {
	case f.withheld:
		kept = heldBack
	case f.activeType != "":
		kept = lastGood
	}
	switch {
	case f.ending:
		return not(eventingv1.BackendNotReadyReason, ending)
	case len(f.invalid) > 0:
		return not(eventingv1.InvalidConfigReason, fmt.Sprintf("%s: %s", f.invalid[0].Config, f.invalid[0].Error)+kept)
	case f.problem != "":
		return not(eventingv1.BackendNotReadyReason, f.problem+kept)
	case f.fault != "" && f.replacing:
		return not(eventingv1.BackendNotReadyReason, f.fault+kept)
	case f.fault != "":
		return not(eventingv1.BackendNotReadyReason, f.fault)
	case f.replacing:
		return not(eventingv1.BackendNotReadyReason, switching)
	case !f.checked:
		return not(eventingv1.BackendNotReadyReason, notAnswered)
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
	case f.activeType == "" && f.problem != "" && !f.source:
		return condition(eventingv1.PublisherProxyReadyCondition, false, eventingv1.PublisherSecretNotSyncReason, f.problem)
	case f.source && (f.activeType != "" || len(f.invalid) == 0):
		return condition(eventingv1.PublisherProxyReadyCondition, true, eventingv1.PublisherReadyReason, eventingv1.SourceOnlyMessage)
	case f.activeType == "":
		return not(f.noConfigReason())
	case f.replacing && f.activeType != f.specType:
		return not(switching)
	case f.published == nil:
		return not(notAnswered)
	case f.published.Gone:
		return not(acceptsNoMore)
	case !f.published.Taking && f.published.LastError != nil:
		return not("events are held back: " + f.published.LastError.Error())
	case !f.published.Taking:
		return not("events are held back")
	case f.published.Full:
		return not(queueIsFull)
	case f.deadLetter != "":
		return not(f.deadLetter)
	}
	return condition(eventingv1.PublisherProxyReadyCondition, true, eventingv1.PublisherReadyReason, losses(f.delivery))
}

func (f facts) subscriptionsReady() eventingv1.Condition {
	not := func(message string) eventingv1.Condition {
		return condition(eventingv1.SubscriptionControllerReadyCondition, false, eventingv1.SubscriptionsNotReadyReason, message)
	}
	switch {
	case f.ending:
		return not(ending)
	case f.activeType == "":
		return not(f.noConfigReason())
	case f.replacing && f.activeType != f.specType:
		return not(switching)
	case !f.source:
		return condition(eventingv1.SubscriptionControllerReadyCondition, true, eventingv1.SubscriptionsStartedReason, eventingv1.PublishOnlyMessage)
	case f.fault != "":
		return not(f.fault)
	case !f.checked:
		return not(notAnswered)
	}
	return condition(eventingv1.SubscriptionControllerReadyCondition, true, eventingv1.SubscriptionsStartedReason, f.notes())
}

// notes returns what a source that is ready has to say.
func (f facts) notes() string {
	return strings.Join(slices.DeleteFunc([]string{f.note, losses(f.delivery)}, func(s string) bool { return s == "" }), "; ")
}

// status of the facts for a generation. It keeps the transition times of before.
func (f facts) status(before eventingv1.EventingBackendStatus, generation int64, now metav1.Time) eventingv1.EventingBackendStatus {
	s := *before.DeepCopy()
	s.ObservedGeneration = generation
	s.ValidationErrors = f.invalid
	s.BackendType = f.activeType
	if s.BackendType == "" {
		s.BackendType = f.specType
	}
	switch {
	case f.checked && f.fault == "" && !f.replacing && f.activeType != "":
		s.FixedConfig = f.fixed
	case s.BackendType != before.BackendType:
		s.FixedConfig = nil
	}
	s.Conditions = []eventingv1.Condition{f.backendReady(), f.publisherReady(), f.subscriptionsReady()}
	s.Delivery = f.delivery
	ready := condition(eventingv1.ReadyCondition, true, eventingv1.BackendReadyReason, f.notes())
	if i := slices.IndexFunc(s.Conditions, func(c eventingv1.Condition) bool { return c.Status != metav1.ConditionTrue }); i >= 0 {
		ready = condition(eventingv1.ReadyCondition, false, s.Conditions[i].Reason, s.Conditions[i].Message)
	}
	s.Conditions = append(s.Conditions, ready)
	for i := range s.Conditions {
		c := &s.Conditions[i]
		c.LastTransitionTime = now
		if old := before.Condition(c.Type); old != nil && old.Status == c.Status && !old.LastTransitionTime.IsZero() {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
	s.EventingReady = ptr.To(ready.Status == metav1.ConditionTrue)
	return s
}
