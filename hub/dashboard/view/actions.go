package view

import (
	"fmt"
	"slices"
	"unicode/utf8"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// Names of the actions: the last part of their addresses, which for Override, Promote and Rollback is
// followed by a gate or an environment.
const (
	ActionApprove  = "approve"
	ActionReject   = "reject"
	ActionRetry    = "retry"
	ActionOverride = "override"
	ActionSuspend  = "suspend"
	ActionResume   = "resume"
	ActionPromote  = "promote"
	ActionRollback = "rollback"
)

// Lengths that the API permits, in characters.
const (
	maxComment = 500
	maxReason  = 256
)

// Action is something that a user can do to a Promotion or to a Pipeline.
type Action struct {
	Name string
	// Label of the link and the button, such as "Approve".
	Label string
	// Done is the text of a log line, such as "approved".
	Done string
	// onPromotion is whether it is an action on a Promotion; else it is one on a Pipeline. parts of the
	// address follow the name of the action: 0 or 1.
	onPromotion bool
	parts       int
	// Verb, Resource and Role are the right that it needs, and the ClusterRole that has it.
	Verb, Resource, Role string
	// Comment is the text that the user gives.
	Comment Comment
	// Effect says what happens, and Record what is recorded, and where.
	Effect, Record string

	allowed func(Scope) Namespaces
	refuse  func(*Facts, *Subject) *Refusal
}

// Comment is a text that the user gives with an action; without a Label it has none.
type Comment struct {
	Label    string
	Max      int
	Required bool
}

// Subject is what an action is done to.
type Subject struct {
	// Promotion of an action on a Promotion; else nil.
	Promotion *capstanv1.Promotion
	// Pipeline of the promotion or of the action; nil if it does not exist or the viewer may not see it.
	Pipeline *pipelinesv1.Pipeline
	// Gate to override, or Environment to promote into.
	Gate, Environment string
}

// UID returns the UID of the object that the action is done to.
func (s *Subject) UID() string {
	if s.Promotion != nil {
		return string(s.Promotion.UID)
	}
	return string(s.Pipeline.UID)
}

var everyAction = []*Action{
	{
		Name: ActionApprove, Label: "Approve", Done: "approved", onPromotion: true,
		Verb: "approve", Resource: "promotions.capstan.dev", Role: "capstan-approver",
		Comment: Comment{Label: "Comment (optional)", Max: maxComment},
		Effect:  "The promotion continues after your approval, as soon as its gates are open. An approval cannot be withdrawn; suspend the Pipeline to stop the promotion.",
		Record:  "spec.approval of the Promotion: your user name, the run, and your comment",
		allowed: func(s Scope) Namespaces { return s.Approve }, refuse: refuseApproval,
	},
	{
		Name: ActionReject, Label: "Reject", Done: "rejected", onPromotion: true,
		Verb: "approve", Resource: "promotions.capstan.dev", Role: "capstan-approver",
		Comment: Comment{Label: "Why do you reject it?", Max: maxComment, Required: true},
		Effect:  "The promotion ends as Rejected, and nothing is changed in the environment. The revision is not promoted there again, unless a user retries the promotion or requests it.",
		Record:  "spec.rejection of the Promotion: your user name, the run, and your comment",
		allowed: func(s Scope) Namespaces { return s.Approve }, refuse: refuseRejection,
	},
	{
		Name: ActionRetry, Label: "Retry", Done: "retried", onPromotion: true,
		Verb: "patch", Resource: "promotions.capstan.dev", Role: "capstan-operator",
		Effect:  "The promotion starts again. Its gates are judged again, and a manual promotion waits for a new approval.",
		Record:  "spec.retry of the Promotion, raised by one. Your user name is in the audit log of the API server and in the log of the hub",
		allowed: func(s Scope) Namespaces { return s.Patch }, refuse: refuseRetry,
	},
	{
		Name: ActionOverride, Label: "Override", Done: "overrode", onPromotion: true, parts: 1,
		Verb: "override", Resource: "promotions.capstan.dev", Role: "capstan-overrider",
		Comment: Comment{Label: "Reason", Max: maxReason, Required: true},
		Effect:  "The gate is open for this run of the promotion, whatever its state is. The other gates and the approval still apply. An override cannot be withdrawn.",
		Record:  "spec.overrides of the Promotion: the gate, the run, your user name and your reason",
		allowed: func(s Scope) Namespaces { return s.Override }, refuse: refuseOverride,
	},
	{
		Name: ActionSuspend, Label: "Suspend", Done: "suspended",
		Verb: "patch", Resource: "pipelines.pipelines.weave.works", Role: "capstan-tenant",
		Effect:  "The hub makes no new promotions of this Pipeline and takes no further step of those in progress. What runs is not changed.",
		Record:  "spec.suspend: true of the Pipeline. Your user name is in the audit log of the API server and in the log of the hub. If Git sets the field, its next reconciliation may reset it",
		allowed: func(s Scope) Namespaces { return s.Suspend }, refuse: refuseSuspend,
	},
	{
		Name: ActionResume, Label: "Resume", Done: "resumed",
		Verb: "patch", Resource: "pipelines.pipelines.weave.works", Role: "capstan-tenant",
		Effect:  "The promotions of this Pipeline continue, and new revisions are promoted.",
		Record:  "spec.suspend: false of the Pipeline. Your user name is in the audit log of the API server and in the log of the hub. If Git sets the field, its next reconciliation may reset it",
		allowed: func(s Scope) Namespaces { return s.Suspend }, refuse: refuseResume,
	},
	{
		Name: ActionPromote, Label: "Promote", Done: "requested a promotion", parts: 1,
		Verb: "create", Resource: "promotionrequests.capstan.dev", Role: "capstan-promoter",
		Comment: Comment{Label: "Reason", Max: maxReason, Required: true},
		Effect:  "The hub promotes the revision into the environment, whatever the previous environment runs. The gates and the approval of the environment apply. A promotion in progress there is replaced.",
		Record:  "a PromotionRequest with your user name and your reason, and spec.request of its Promotion",
		allowed: func(s Scope) Namespaces { return s.Request }, refuse: refusePromote,
	},
	{
		Name: ActionRollback, Label: "Roll back", Done: "requested a rollback", parts: 1,
		Verb: "create", Resource: "promotionrequests.capstan.dev", Role: "capstan-promoter",
		Comment: Comment{Label: "Reason", Max: maxReason, Required: true},
		Effect:  "The hub promotes the revision that succeeded in the environment before. The soak, windows and checks of the Pipeline do not apply; an approval does. The revision that is rolled back is held out until the previous environment agrees on another one.",
		Record:  "a PromotionRequest with your user name and your reason, and spec.request and spec.rollbackOf of its Promotion",
		allowed: func(s Scope) Namespaces { return s.Request }, refuse: refuseRollback,
	},
}

// ActionNames returns the names of all actions.
func ActionNames() []string {
	names := make([]string, 0, len(everyAction))
	for _, a := range everyAction {
		names = append(names, a.Name)
	}
	return names
}

// FindAction returns the action that an address names (kind is "promotions" or "pipelines"; parts are
// namespace, name, action and, for some actions, a gate or an environment), and what it is done to;
// false if there is no such action or object, or if the viewer may not see it.
func FindAction(f *Facts, scope Scope, kind string, parts []string) (*Action, *Subject, bool) {
	const fixed = 3 // namespace, name, action
	if len(parts) < fixed {
		return nil, nil, false
	}
	namespace, name, onPromotion := parts[0], parts[1], kind == "promotions"
	i := slices.IndexFunc(everyAction, func(a *Action) bool {
		return a.Name == parts[2] && a.onPromotion == onPromotion && a.parts == len(parts)-fixed
	})
	if i < 0 {
		return nil, nil, false
	}
	a, s := everyAction[i], &Subject{}
	if onPromotion {
		if !scope.Promotions.Has(namespace) {
			return nil, nil, false
		}
		j := slices.IndexFunc(f.Promotions, func(p capstanv1.Promotion) bool { return p.Namespace == namespace && p.Name == name })
		if j < 0 {
			return nil, nil, false
		}
		s.Promotion = &f.Promotions[j]
		if scope.Pipelines.Has(namespace) {
			s.Pipeline = f.pipeline(namespace, s.Promotion.Spec.Pipeline.Name)
		}
		if a.parts > 0 {
			s.Gate = parts[fixed]
		}
		return a, s, true
	}
	if !scope.Pipelines.Has(namespace) {
		return nil, nil, false
	}
	if s.Pipeline = f.pipeline(namespace, name); s.Pipeline == nil {
		return nil, nil, false
	}
	if a.parts > 0 {
		s.Environment = parts[fixed]
		if s.environment() < 0 {
			return nil, nil, false
		}
	}
	return a, s, true
}

func (f *Facts) pipeline(namespace, name string) *pipelinesv1.Pipeline {
	i := slices.IndexFunc(f.Pipelines, func(p pipelinesv1.Pipeline) bool { return p.Namespace == namespace && p.Name == name })
	if i < 0 {
		return nil
	}
	return &f.Pipelines[i]
}

// into returns the name of the environment that a promotion is made into; empty for a whole Pipeline.
func (s *Subject) into() string {
	if s.Promotion != nil {
		return s.Promotion.Spec.Environment
	}
	return s.Environment
}

// environment returns the index of that environment in the Pipeline; -1 if there is none.
func (s *Subject) environment() int {
	if s.Pipeline == nil {
		return -1
	}
	return slices.IndexFunc(s.Pipeline.Spec.Environments, func(e pipelinesv1.Environment) bool { return e.Name == s.into() })
}

// Refuse returns why the viewer cannot do an action to a subject now; nil if the viewer can.
func (a *Action) Refuse(f *Facts, scope Scope, s *Subject) *Refusal {
	namespace := s.namespace()
	if scope.Nameless {
		return &Refusal{Forbidden: true, Text: "This dashboard has no sign-in and only shows the fleet. Use kubectl, or start the hub with --dashboard-auth=token."}
	}
	if !a.allowed(scope).Has(namespace) {
		return &Refusal{Forbidden: true, Text: fmt.Sprintf("You may not do this: you need the verb %s on %s in namespace %s, for example by the ClusterRole %s.", a.Verb, a.Resource, namespace, a.Role)}
	}
	if (a.Name == ActionPromote || a.Name == ActionRollback) && !scope.Promotions.Has(namespace) { // Its page shows what was promoted.
		return &Refusal{Forbidden: true, Text: fmt.Sprintf("You may not do this: you need permission to %s in namespace %s, too.", NeedPromotions, namespace)}
	}
	if s.Gate == capstanv1.GatePromotionWindows && !scope.OverrideWindows {
		return &Refusal{Forbidden: true, Text: "You may not override PromotionWindows: you need the verb override on promotionwindows.capstan.dev, for example by the ClusterRole capstan-window-admin."}
	}
	return a.refuse(f, s)
}

func (s *Subject) namespace() string {
	if s.Promotion != nil {
		return s.Promotion.Namespace
	}
	return s.Pipeline.Namespace
}

// Input is what the user gives with an action.
type Input struct {
	// Comment, or reason.
	Comment string
	// Revision to promote.
	Revision string
	// Newest is the number of the newest promotion into the environment that the user saw.
	Newest int64
}

// Check returns why an input cannot be used; empty if it can.
func (a *Action) Check(f *Facts, s *Subject, in Input) string {
	n := utf8.RuneCountInString(in.Comment)
	switch {
	case a.Comment.Required && n == 0:
		return "A reason is required: enter one and try again."
	case n > 0 && a.Comment.Label == "":
		return "This action takes no comment."
	case a.Comment.Max > 0 && n > a.Comment.Max:
		return fmt.Sprintf("The text has %d characters; at most %d are possible.", n, a.Comment.Max)
	case a.Name == ActionPromote && !slices.ContainsFunc(f.revisions(s), func(r RevisionOption) bool { return r.Revision == in.Revision }):
		return "Choose one of the revisions of this Pipeline."
	}
	return ""
}
