package useraction

import (
	"context"
	"fmt"
	"slices"
	"unicode/utf8"

	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// Names of the actions.
const (
	Approve  = "approve"
	Reject   = "reject"
	Retry    = "retry"
	Override = "override"
	Suspend  = "suspend"
	Resume   = "resume"
	Promote  = "promote"
	Rollback = "rollback"
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
	// OnPromotion is whether it is an action on a Promotion; else it is one on a Pipeline.
	OnPromotion bool
	// Parts is 1 if the action is done to a part of the object, a gate or an environment; else 0.
	Parts int
	// Verb, Resource and Role are the right that it needs, and the ClusterRole that has it.
	Verb, Resource, Role string
	// Comment is the text that the user gives.
	Comment Comment
	// Effect says what happens, and Record what is recorded, and where.
	Effect, Record string

	refuse func([]capstanv1.Promotion, *Subject) *Refusal
	write  func(context.Context, client.Client, Order) (client.Object, error)
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
	// Pipeline of the promotion or of the action; nil if it does not exist or the caller may not see it.
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

var all = []*Action{
	{
		Name: Approve, Label: "Approve", Done: "approved", OnPromotion: true,
		Verb: "approve", Resource: "promotions.capstan.dev", Role: "capstan-approver",
		Comment: Comment{Label: "Comment (optional)", Max: maxComment},
		Effect:  "The promotion continues after your approval, as soon as its gates are open. An approval cannot be withdrawn; suspend the Pipeline to stop the promotion.",
		Record:  "spec.approval of the Promotion: your user name, the run, and your comment",
		refuse:  refuseApproval, write: writeApproval,
	},
	{
		Name: Reject, Label: "Reject", Done: "rejected", OnPromotion: true,
		Verb: "approve", Resource: "promotions.capstan.dev", Role: "capstan-approver",
		Comment: Comment{Label: "Why do you reject it?", Max: maxComment, Required: true},
		Effect:  "The promotion ends as Rejected, and nothing is changed in the environment. The revision is not promoted there again, unless a user retries the promotion or requests it.",
		Record:  "spec.rejection of the Promotion: your user name, the run, and your comment",
		refuse:  refuseRejection, write: writeRejection,
	},
	{
		Name: Retry, Label: "Retry", Done: "retried", OnPromotion: true,
		Verb: "patch", Resource: "promotions.capstan.dev", Role: "capstan-operator",
		Effect: "The promotion starts again. Its gates are judged again, and a manual promotion waits for a new approval.",
		Record: "spec.retry of the Promotion, raised by one. Your user name is in the audit log of the API server and in the log of the hub",
		refuse: refuseRetry, write: writeRetry,
	},
	{
		Name: Override, Label: "Override", Done: "overrode", OnPromotion: true, Parts: 1,
		Verb: "override", Resource: "promotions.capstan.dev", Role: "capstan-overrider",
		Comment: Comment{Label: "Reason", Max: maxReason, Required: true},
		Effect:  "The gate is open for this run of the promotion, whatever its state is. The other gates and the approval still apply. An override cannot be withdrawn.",
		Record:  "spec.overrides of the Promotion: the gate, the run, your user name and your reason",
		refuse:  refuseOverride, write: writeOverride,
	},
	{
		Name: Suspend, Label: "Suspend", Done: "suspended",
		Verb: "patch", Resource: "pipelines.pipelines.weave.works", Role: "capstan-tenant",
		Effect: "The hub makes no new promotions of this Pipeline and takes no further step of those in progress. What runs is not changed.",
		Record: "spec.suspend: true of the Pipeline. Your user name is in the audit log of the API server and in the log of the hub. If Git sets the field, its next reconciliation may reset it",
		refuse: refuseSuspend, write: writeSuspend,
	},
	{
		Name: Resume, Label: "Resume", Done: "resumed",
		Verb: "patch", Resource: "pipelines.pipelines.weave.works", Role: "capstan-tenant",
		Effect: "The promotions of this Pipeline continue, and new revisions are promoted.",
		Record: "spec.suspend: false of the Pipeline. Your user name is in the audit log of the API server and in the log of the hub. If Git sets the field, its next reconciliation may reset it",
		refuse: refuseResume, write: writeResume,
	},
	{
		Name: Promote, Label: "Promote", Done: "requested a promotion", Parts: 1,
		Verb: "create", Resource: "promotionrequests.capstan.dev", Role: "capstan-promoter",
		Comment: Comment{Label: "Reason", Max: maxReason, Required: true},
		Effect:  "The hub promotes the revision into the environment, whatever the previous environment runs. The gates and the approval of the environment apply. A promotion in progress there is replaced.",
		Record:  "a PromotionRequest with your user name and your reason, and spec.request of its Promotion",
		refuse:  refusePromote, write: writePromote,
	},
	{
		Name: Rollback, Label: "Roll back", Done: "requested a rollback", Parts: 1,
		Verb: "create", Resource: "promotionrequests.capstan.dev", Role: "capstan-promoter",
		Comment: Comment{Label: "Reason", Max: maxReason, Required: true},
		Effect:  "The hub promotes the revision that succeeded in the environment before. The soak, windows and checks of the Pipeline do not apply; an approval does. The revision that is rolled back is held out until the previous environment agrees on another one.",
		Record:  "a PromotionRequest with your user name and your reason, and spec.request and spec.rollbackOf of its Promotion",
		refuse:  refuseRollback, write: writeRollback,
	},
}

// All returns all actions.
func All() []*Action { return all }

// Find returns the action with a name; nil if there is none.
func Find(name string) *Action {
	i := slices.IndexFunc(all, func(a *Action) bool { return a.Name == name })
	if i < 0 {
		return nil
	}
	return all[i]
}

// Namespace returns the namespace of the object that the action is done to.
func (s *Subject) Namespace() string {
	if s.Promotion != nil {
		return s.Promotion.Namespace
	}
	return s.Pipeline.Namespace
}

// Into returns the name of the environment that a promotion is made into; empty for a whole Pipeline.
func (s *Subject) Into() string {
	if s.Promotion != nil {
		return s.Promotion.Spec.Environment
	}
	return s.Environment
}

// Index returns the index of that environment in the Pipeline; -1 if there is none.
func (s *Subject) Index() int {
	if s.Pipeline == nil {
		return -1
	}
	return slices.IndexFunc(s.Pipeline.Spec.Environments, func(e pipelinesv1.Environment) bool { return e.Name == s.Into() })
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

// Check returns why an input cannot be used; empty if it can. revisions are those that can be
// promoted.
func (a *Action) Check(revisions []Revision, in Input) string {
	n := utf8.RuneCountInString(in.Comment)
	switch {
	case a.Comment.Required && n == 0:
		return "A reason is required: enter one and try again."
	case n > 0 && a.Comment.Label == "":
		return "This action takes no comment."
	case a.Comment.Max > 0 && n > a.Comment.Max:
		return fmt.Sprintf("The text has %d characters; at most %d are possible.", n, a.Comment.Max)
	case a.Name == Promote && !slices.ContainsFunc(revisions, func(r Revision) bool { return r.Revision == in.Revision }):
		return "Choose one of the revisions of this Pipeline."
	}
	return ""
}
