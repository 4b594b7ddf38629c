package event

import (
	"fmt"
	"slices"
	"strings"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// Promotion is the data of events of promotions.
type Promotion struct {
	Namespace         string   `json:"namespace" jsonschema:"namespace of the Pipeline and the Promotion"`
	Pipeline          string   `json:"pipeline" jsonschema:"name of the Pipeline"`
	Promotion         string   `json:"promotion" jsonschema:"name of the Promotion"`
	Number            int64    `json:"number" jsonschema:"number of the promotion among those into the environment"`
	Attempt           int64    `json:"attempt" jsonschema:"number of manual retries (spec.retry)"`
	App               App      `json:"app" jsonschema:"the application that is promoted"`
	FromEnvironment   string   `json:"fromEnvironment" jsonschema:"environment where the revision was observed"`
	ToEnvironment     string   `json:"toEnvironment" jsonschema:"environment that the revision is promoted into"`
	Targets           []string `json:"targets,omitempty" jsonschema:"targets of the environment, as readable text"`
	Revision          string   `json:"revision" jsonschema:"the revision that is promoted"`
	PreviousRevisions []string `json:"previousRevisions,omitempty" jsonschema:"previous revision of each target; an empty string when a target had none"`
	Strategy          string   `json:"strategy,omitempty" jsonschema:"strategy of the promotion: pull-request or notification"`
	Manual            bool     `json:"manual" jsonschema:"whether the promotion needs an approval"`
	RollbackOf        string   `json:"rollbackOf,omitempty" jsonschema:"name of the Promotion that is rolled back, if this one is a rollback"`
	Request           string   `json:"request,omitempty" jsonschema:"name of the PromotionRequest that caused the promotion, if one did"`
	RequestedBy       string   `json:"requestedBy,omitempty" jsonschema:"name of the user who created the PromotionRequest"`
	Actor             string   `json:"actor,omitempty" jsonschema:"name of the user who approved, or who overrode a gate"`
	CarriedOut        bool     `json:"carriedOut,omitempty" jsonschema:"whether the notification was accepted or the pull request was merged; set in events of an end"`
	PullRequestURL    string   `json:"pullRequestURL,omitempty" jsonschema:"URL of the pull request"`
	Reason            string   `json:"reason,omitempty" jsonschema:"reason for the result, in CamelCase"`
	Message           string   `json:"message,omitempty" jsonschema:"explanation of the reason"`
}

// App names an application.
type App struct {
	APIVersion string `json:"apiVersion" jsonschema:"API group and version of the application"`
	Kind       string `json:"kind" jsonschema:"kind of the application"`
	Name       string `json:"name" jsonschema:"name of the application"`
}

// Promotions returns the events of a Promotion in its present retry (spec.retry), in
// order. Later changes of the object add events and do not change earlier ones.
func (h Hub) Promotions(p *capstanv1.Promotion) []ce.Event {
	s := &p.Status
	add := func(events []ce.Event, k Kind, attempt int64, at time.Time, transition string, with func(*Promotion)) []ce.Event {
		data := promotionData(p)
		data.Attempt = attempt
		if with != nil {
			with(&data)
		}
		return append(events, h.event(details{
			kind: k, object: string(p.UID), transition: transition, attempt: attempt, at: at,
			subject: "pipelines/" + p.Namespace + "/" + p.Spec.Pipeline.Name, partition: p.Namespace + "/" + p.Spec.Pipeline.Name, data: data,
		}))
	}
	actor := func(data *Promotion) {
		if s.Approval != nil {
			data.Actor = s.Approval.By
		}
	}
	events := add(nil, PromotionDetected, 0, p.CreationTimestamp.Time, "", nil)
	if p.Spec.RollbackOf != nil {
		events = add(events, PromotionRolledBack, 0, p.CreationTimestamp.Time, "", func(data *Promotion) {
			data.Reason, data.Message = rollbackCause(p)
		})
	}
	if s.StartTime == nil {
		return events
	}
	// A promotion may start again in the same retry, when a Secret has changed.
	run := stamp(s.StartTime.Time)
	// In earlier versions the approval of the first run was valid in all retries: then a
	// retry did not wait.
	if p.Spec.Manual && (s.Approval == nil || s.Approval.Retry == s.Retry) {
		events = add(events, PromotionWaiting, s.Retry, s.StartTime.Time, "", nil)
	}
	events = append(events, h.gates(p, add)...)
	if s.Approval != nil {
		events = add(events, PromotionApproved, s.Approval.Retry, s.Approval.ApprovalTime.Time, "", actor)
	}
	if s.Attempt != nil {
		events = add(events, PromotionStarted, s.Retry, startOf(s), run, actor)
	}
	if s.VerifyTime != nil {
		events = add(events, PromotionVerifying, s.Retry, s.VerifyTime.Time, stamp(s.VerifyTime.Time), nil)
	}
	// A failed promotion has the condition too, for its failure, which is an event of its own.
	if c := meta.FindStatusCondition(s.Conditions, capstanv1.StalledCondition); c != nil && c.Status == metav1.ConditionTrue && !s.Phase.Finished() {
		events = add(events, PromotionStalled, s.Retry, c.LastTransitionTime.Time, stamp(c.LastTransitionTime.Time), func(data *Promotion) {
			data.PullRequestURL, data.Reason, data.Message = s.URL, c.Reason, cut(c.Message)
		})
	}
	if k := ending(s.Phase); k != "" && s.FinishTime != nil {
		events = add(events, k, s.Retry, s.FinishTime.Time, run+" "+stamp(s.FinishTime.Time), func(data *Promotion) {
			if actor(data); s.Phase == capstanv1.PhaseRejected && p.Rejected() {
				data.Actor = p.Spec.Rejection.By
			}
			data.PullRequestURL, data.Reason, data.Message = s.URL, s.Reason, cut(s.Message)
			data.CarriedOut = s.CarriedOutTime != nil
		})
	}
	return events
}

// Reasons of a rollback. They are the values of the label trigger of capstan_rollbacks_total.
const (
	rollbackFailure = "failure"
	rollbackRequest = "request"
)

// rollbackCause returns the reason for a rollback, and its explanation. Both are parts of the intent, which
// never changes.
func rollbackCause(p *capstanv1.Promotion) (reason, message string) {
	of := p.Spec.RollbackOf.Name
	if by := p.Spec.Request; by != nil {
		return rollbackRequest, cut(fmt.Sprintf("%s requested to roll back Promotion %s of environment %q to %s: %s", by.By, of, p.Spec.Environment, p.Spec.Revision, by.Reason))
	}
	return rollbackFailure, cut(fmt.Sprintf("Promotion %s failed; environment %q is rolled back to %s", of, p.Spec.Environment, p.Spec.Revision))
}

// gates returns the events of the gates of a promotion, as its status shows them: that they block it, or
// do so no more, and each override. The status has the last time of each: a promotion whose gates
// close several times has had earlier ones, at other places in the order.
func (Hub) gates(p *capstanv1.Promotion, add func(events []ce.Event, k Kind, attempt int64, at time.Time, transition string, with func(*Promotion)) []ce.Event) []ce.Event {
	s := &p.Status
	if len(s.Gates) == 0 && len(s.Conditions) == 0 && (s.Phase == capstanv1.PhaseSucceeded || s.Phase == capstanv1.PhaseSuperseded) {
		return nil // The cache keeps of a settled promotion only the times, and no conditions: its events were published before.
	}
	var events []ce.Event
	unblocked := func() {
		if s.GatesOpenTime != nil {
			events = add(events, PromotionUnblocked, s.Retry, s.GatesOpenTime.Time, stamp(s.GatesOpenTime.Time), nil)
		}
	}
	blocked := func() {
		if s.GatesCloseTime == nil {
			return
		}
		events = add(events, PromotionBlocked, s.Retry, s.GatesCloseTime.Time, stamp(s.GatesCloseTime.Time), func(data *Promotion) {
			if i := slices.IndexFunc(s.Gates, func(g capstanv1.GateStatus) bool { return g.State != capstanv1.GateOpen }); i >= 0 {
				data.PullRequestURL, data.Reason, data.Message = s.URL, s.Gates[i].Reason, cut(s.Gates[i].Message)
			}
		})
	}
	if s.GatesCloseTime != nil && s.GatesOpenTime != nil && s.GatesOpenTime.Before(s.GatesCloseTime) {
		unblocked()
		blocked()
	} else {
		blocked()
		unblocked()
	}
	for _, g := range s.Gates {
		if by := p.OverrideOf(g.Name); by != nil && g.Reason == capstanv1.GateOverridden && g.LastTransitionTime != nil {
			events = add(events, PromotionOverridden, s.Retry, g.LastTransitionTime.Time, g.Name, func(data *Promotion) {
				data.Actor, data.Reason, data.Message = by.By, g.Name, cut(g.Message)
			})
		}
	}
	return events
}

// startOf is the time from which the promotion waited only for the hub.
func startOf(s *capstanv1.PromotionStatus) time.Time {
	if s.Approval != nil && s.Approval.ApprovalTime.After(s.StartTime.Time) {
		return s.Approval.ApprovalTime.Time
	}
	return s.StartTime.Time
}

// ending is the kind for a phase that ends a promotion; empty for any other.
func ending(phase capstanv1.PromotionPhase) Kind {
	switch phase {
	case capstanv1.PhaseSucceeded:
		return PromotionSucceeded
	case capstanv1.PhaseFailed:
		return PromotionFailed
	case capstanv1.PhaseRejected:
		return PromotionRejected
	case capstanv1.PhaseSuperseded:
		return PromotionSuperseded
	case "", capstanv1.PhaseAwaitingGates, capstanv1.PhaseAwaitingApproval, capstanv1.PhasePromoting, capstanv1.PhaseAwaitingMerge, capstanv1.PhaseAwaitingRollout, capstanv1.PhaseVerifying:
	}
	return ""
}

// promotionData returns the data of the spec.
func promotionData(p *capstanv1.Promotion) Promotion {
	data := Promotion{
		Namespace: p.Namespace, Pipeline: p.Spec.Pipeline.Name, Promotion: p.Name, Number: p.Spec.Number,
		App:             App{APIVersion: p.Spec.App.APIVersion, Kind: p.Spec.App.Kind, Name: p.Spec.App.Name},
		FromEnvironment: p.Spec.Source.Environment, ToEnvironment: p.Spec.Environment,
		Revision: p.Spec.Revision, Strategy: strategyName(p.Spec.Strategy), Manual: p.Spec.Manual,
	}
	if of := p.Spec.RollbackOf; of != nil {
		data.RollbackOf = of.Name
	}
	if by := p.Spec.Request; by != nil {
		data.Request, data.RequestedBy = by.Name, by.By
	}
	if from := p.Spec.From; from != nil {
		data.PreviousRevisions, data.Targets = from.Revisions, from.Targets
	}
	return data
}

func strategyName(s pipelinesv1.Strategy) string {
	var names []string
	if s.PullRequest != nil {
		names = append(names, "pull-request")
	}
	if s.Notification != nil {
		names = append(names, "notification")
	}
	return strings.Join(names, ",")
}
