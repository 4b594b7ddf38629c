package view

import (
	"cmp"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
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

// Refusal is why an action cannot be done.
type Refusal struct {
	// Forbidden is set if the user lacks a right.
	Forbidden bool
	Text      string
	// Link is the page of what replaced the object, with the text LinkText; empty if there is none.
	Link, LinkText string
	// Done is set if it was done or decided before, by this user or another one. At is when; zero if that is not known.
	Done bool
	At   time.Time
}

func refused(format string, args ...any) *Refusal {
	return &Refusal{Text: fmt.Sprintf(format, args...)}
}

func done(format string, args ...any) *Refusal {
	r := refused(format, args...)
	r.Done = true
	return r
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

// newer returns the newest promotion into the environment of a promotion, if it has a higher number; else nil.
func (f *Facts) newer(p *capstanv1.Promotion) *capstanv1.Promotion {
	if n := f.newestInto(p.Namespace, p.Spec.Pipeline.Name, p.Spec.Environment); n != nil && n.Spec.Number > p.Spec.Number {
		return n
	}
	return nil
}

// newestInto returns the newest promotion of a Pipeline into an environment; nil if there is none.
func (f *Facts) newestInto(namespace, pipeline, environment string) *capstanv1.Promotion {
	var newest *capstanv1.Promotion
	for i := range f.Promotions {
		q := &f.Promotions[i]
		if q.Namespace == namespace && q.Spec.Pipeline.Name == pipeline && q.Spec.Environment == environment && (newest == nil || q.Spec.Number > newest.Spec.Number) {
			newest = q
		}
	}
	return newest
}

// Newest returns the number of the newest promotion into the environment of a subject; 0 if there is none.
func (f *Facts) Newest(s *Subject) int64 {
	if s.Promotion != nil || s.Environment == "" {
		return 0
	}
	if n := f.newestInto(s.Pipeline.Namespace, s.Pipeline.Name, s.Environment); n != nil {
		return n.Spec.Number
	}
	return 0
}

// Replaced returns the refusal of an action whose object was replaced by a promotion; nil if none was.
func (f *Facts) replaced(p *capstanv1.Promotion) *Refusal {
	n := f.newer(p)
	if n == nil {
		return nil
	}
	return ReplacedBy(n)
}

// ReplacedBy returns the refusal of an action on an outdated page: a newer promotion exists.
func ReplacedBy(n *capstanv1.Promotion) *Refusal {
	r := refused("A newer promotion replaced it: no. %d, of %s into %s, is %s.", n.Spec.Number, n.Spec.Revision, n.Spec.Environment, phaseWord(n.Status.Phase))
	r.Link, r.LinkText = linkTo(n), fmt.Sprintf("Promotion of %s into %s", n.Spec.Revision, n.Spec.Environment)
	return r
}

// linkTo returns where a promotion is shown: the page that approves it while it waits for that, else
// the page of its Pipeline.
func linkTo(p *capstanv1.Promotion) string {
	if Approvable(p) {
		return ApprovePath(p.Namespace, p.Name)
	}
	return pipelinePath(p.Namespace, p.Spec.Pipeline.Name) + "#" + entryID(p.Namespace, p.Name)
}

// NewestPromotion returns the newest promotion into the environment of a subject; nil if there is none.
func (f *Facts) NewestPromotion(s *Subject) *capstanv1.Promotion {
	switch {
	case s.Promotion != nil:
		return f.newestInto(s.Promotion.Namespace, s.Promotion.Spec.Pipeline.Name, s.Promotion.Spec.Environment)
	case s.Environment != "":
		return f.newestInto(s.Pipeline.Namespace, s.Pipeline.Name, s.Environment)
	}
	return nil
}

// decided returns the refusal of an approval or rejection if the run has one already; else nil.
func decided(p *capstanv1.Promotion) *Refusal {
	switch {
	case p.Approved():
		r := done("It was already approved by %s%s.", p.Spec.Approval.By, quoted(p.Spec.Approval.Comment))
		if a := p.Status.Approval; a != nil && a.Retry == p.Spec.Approval.Retry {
			r.At = a.ApprovalTime.Time
		}
		return r
	case p.Rejected():
		r := done("It was already rejected by %s%s.", p.Spec.Rejection.By, quoted(p.Spec.Rejection.Comment))
		if p.Status.FinishTime != nil {
			r.At = p.Status.FinishTime.Time
		}
		return r
	}
	return nil
}

func quoted(comment string) string {
	if comment == "" {
		return ""
	}
	return ": " + comment
}

func refuseApproval(f *Facts, s *Subject) *Refusal {
	p := s.Promotion
	if r := cmp.Or(f.replaced(p), decided(p)); r != nil {
		return r
	}
	switch {
	case Approvable(p):
		return nil
	case !p.Spec.Manual:
		return refused("The promotion of %s into %s needs no approval.", p.Spec.Revision, p.Spec.Environment)
	}
	return refused("The promotion of %s into %s is not waiting for an approval: it is %s.", p.Spec.Revision, p.Spec.Environment, phaseWord(p.Status.Phase))
}

func refuseRejection(f *Facts, s *Subject) *Refusal {
	p := s.Promotion
	if r := cmp.Or(f.replaced(p), decided(p)); r != nil {
		return r
	}
	if !p.Waits() || p.Status.Attempt != nil || p.Status.PullRequest != nil {
		r := refused("The promotion of %s into %s has begun or has ended: it is %s.", p.Spec.Revision, p.Spec.Environment, phaseWord(p.Status.Phase))
		if !p.Status.Phase.Finished() && p.Status.URL != "" {
			r.Text += " Close its pull request to reject it."
		}
		return r
	}
	return nil
}

func refuseRetry(f *Facts, s *Subject) *Refusal {
	p := s.Promotion
	if r := f.replaced(p); r != nil {
		return r
	}
	switch {
	case !p.Status.Phase.Finished():
		return refused("The promotion has not finished: it is %s. Only a finished promotion can be started again.", phaseWord(p.Status.Phase))
	case p.Status.Phase == capstanv1.PhaseSucceeded:
		return refused("The promotion succeeded. To promote %s again, use Promote on the page of the Pipeline.", p.Spec.Revision)
	case p.Spec.Retry > max(p.Status.Retry, p.Status.IgnoredRetry):
		return done("The promotion was already started again (retry %d). The hub begins it shortly.", p.Spec.Retry)
	}
	return nil
}

func refuseOverride(f *Facts, s *Subject) *Refusal {
	p := s.Promotion
	if r := f.replaced(p); r != nil {
		return r
	}
	if o := p.OverrideOf(s.Gate); o != nil {
		return done("The gate %s was already overridden by %s: %s.", s.Gate, o.By, o.Reason)
	}
	if s.Gate == capstanv1.GateReject {
		return refused("The gate reject cannot be overridden: correct spec.reject of the Pipeline.")
	}
	switch p.Status.Phase {
	case capstanv1.PhaseAwaitingRollout, capstanv1.PhaseVerifying, capstanv1.PhaseSucceeded, capstanv1.PhaseRejected, capstanv1.PhaseSuperseded:
		return refused("The promotion is %s: no gate blocks it.", phaseWord(p.Status.Phase))
	case "", capstanv1.PhaseAwaitingGates, capstanv1.PhaseAwaitingApproval, capstanv1.PhasePromoting, capstanv1.PhaseAwaitingMerge, capstanv1.PhaseFailed:
	}
	i := slices.IndexFunc(p.Status.Gates, func(g capstanv1.GateStatus) bool { return g.Name == s.Gate })
	switch {
	case i < 0:
		return refused("The promotion has no gate %s.", s.Gate)
	case p.Status.Gates[i].State == capstanv1.GateOpen:
		return refused("The gate %s is open.", s.Gate)
	}
	return nil
}

func refuseSuspend(_ *Facts, s *Subject) *Refusal {
	if s.Pipeline.Spec.Suspend {
		return done("The Pipeline is already suspended.")
	}
	return nil
}

func refuseResume(_ *Facts, s *Subject) *Refusal {
	if !s.Pipeline.Spec.Suspend {
		return done("The Pipeline is not suspended.")
	}
	return nil
}

func refusePromote(f *Facts, s *Subject) *Refusal {
	if r := refuseRequest(s); r != nil {
		return r
	}
	if len(f.revisions(s)) == 0 {
		return refused("The Pipeline knows no other revision.")
	}
	return nil
}

func refuseRollback(f *Facts, s *Subject) *Refusal {
	if r := refuseRequest(s); r != nil {
		return r
	}
	if _, err := f.rollback(s); err != nil {
		return refused("Nothing to roll back to: %s.", err)
	}
	return nil
}

// refuseRequest returns why nothing can be requested for an environment; nil if something can.
func refuseRequest(s *Subject) *Refusal {
	p, i := s.Pipeline, s.environment()
	switch {
	case i == 0:
		return refused("%s is the first environment of the Pipeline: nothing is promoted into it.", s.Environment)
	case p.PromotionFor(&p.Spec.Environments[i]) == nil:
		return refused("The environment %s has no promotion: neither its promotion nor spec.promotion is set.", s.Environment)
	case p.Spec.Suspend:
		return &Refusal{Text: "The Pipeline is suspended: resume it first.", Link: ActionPath("pipelines", p.Namespace, p.Name, ActionResume), LinkText: "Resume the Pipeline"}
	}
	return nil
}

// rollback returns what a rollback of the environment of a subject promotes, as the hub decides it.
func (f *Facts) rollback(s *Subject) (*decision.Request, error) {
	i := s.environment()
	q := decision.QuestionOf(s.Pipeline, decision.FleetsOf(s.Pipeline), f.promotionsOf(s.Pipeline), i)
	return decision.ResolveRollback(s.Pipeline, q, i)
}

// promotionsOf returns the promotions of a Pipeline, also of former ones of its name, as the hub decides by them.
func (f *Facts) promotionsOf(p *pipelinesv1.Pipeline) []capstanv1.Promotion {
	var all []capstanv1.Promotion
	for i := range f.Promotions {
		if q := &f.Promotions[i]; q.Namespace == p.Namespace && q.Spec.Pipeline.Name == p.Name {
			all = append(all, *q)
		}
	}
	return all
}

// ActionPath returns the address of an action: kind is "promotions" or "pipelines", more is a gate or an
// environment.
func ActionPath(kind, namespace, name, action string, more ...string) string {
	return path(append([]string{kind, namespace, name, action}, more...)...)
}

// ActionLink leads to the page of an action.
type ActionLink struct {
	Name, Label, Link string
}

// ActionsOf returns the actions on a promotion that the viewer can do now.
func (f *Facts) ActionsOf(p *capstanv1.Promotion, scope Scope) []ActionLink {
	if p.Status.Phase == capstanv1.PhaseSucceeded || p.Status.Phase == capstanv1.PhaseSuperseded {
		return nil // Most are; those that can be started again are found by the address.
	}
	var links []ActionLink
	for _, a := range everyAction {
		if !a.onPromotion || !a.allowed(scope).Has(p.Namespace) {
			continue
		}
		if a.parts == 0 {
			if a.Refuse(f, scope, &Subject{Promotion: p}) == nil {
				links = append(links, ActionLink{a.Name, a.Label, ActionPath("promotions", p.Namespace, p.Name, a.Name)})
			}
			continue
		}
		for i := range p.Status.Gates {
			gate := p.Status.Gates[i].Name
			if a.Refuse(f, scope, &Subject{Promotion: p, Gate: gate}) == nil {
				links = append(links, ActionLink{a.Name, a.Label + " " + gate, ActionPath("promotions", p.Namespace, p.Name, a.Name, gate)})
			}
		}
	}
	return links
}

// ActionsOn returns the actions on a whole Pipeline that the viewer can do now: to suspend or to resume it.
func (f *Facts) ActionsOn(p *pipelinesv1.Pipeline, scope Scope) []ActionLink {
	var links []ActionLink
	for _, a := range everyAction {
		if !a.onPromotion && a.parts == 0 && a.Refuse(f, scope, &Subject{Pipeline: p}) == nil {
			links = append(links, ActionLink{a.Name, a.Label, ActionPath("pipelines", p.Namespace, p.Name, a.Name)})
		}
	}
	return links
}

// ActionsInto returns the actions on an environment of a Pipeline: to promote a revision into it, and to roll it
// back. Whether there is a revision to do so with is found on their pages.
func ActionsInto(p *pipelinesv1.Pipeline, environment string, scope Scope) []ActionLink {
	s := &Subject{Pipeline: p, Environment: environment}
	if !scope.Request.Has(p.Namespace) || !scope.Promotions.Has(p.Namespace) || s.environment() < 0 || refuseRequest(s) != nil {
		return nil
	}
	return []ActionLink{
		{ActionPromote, "Promote", ActionPath("pipelines", p.Namespace, p.Name, ActionPromote, environment)},
		{ActionRollback, "Roll back", ActionPath("pipelines", p.Namespace, p.Name, ActionRollback, environment)},
	}
}
