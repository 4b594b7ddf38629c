package view

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
)

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
