package useraction

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	ledger "github.com/capstan-hub/capstan/internal/promotions"
)

// Refusal is why an action cannot be done.
type Refusal struct {
	Text string
	// Newer is the promotion that replaced the object; nil if none did.
	Newer *capstanv1.Promotion
	// Suspended is set if the Pipeline must be resumed first.
	Suspended bool
	// Done is set if it was done or decided before, by this user or another one. At is when; zero if that is not known.
	Done bool
	At   time.Time
}

// Refuse returns why an action cannot be done to a subject now; nil if it can. of are the promotions of the Pipeline,
// and may have those of others. The rights of the user are not judged: the API server does that.
func (a *Action) Refuse(of []capstanv1.Promotion, s *Subject) *Refusal { return a.refuse(of, s) }

func refused(format string, args ...any) *Refusal {
	return &Refusal{Text: fmt.Sprintf(format, args...)}
}

func done(format string, args ...any) *Refusal {
	r := refused(format, args...)
	r.Done = true
	return r
}

// NewestInto returns the newest of the promotions of a Pipeline into an environment, by its number; nil if there is
// none.
func NewestInto(promotions []capstanv1.Promotion, namespace, pipeline, environment string) *capstanv1.Promotion {
	var newest *capstanv1.Promotion
	for i := range promotions {
		q := &promotions[i]
		if q.Namespace == namespace && q.Spec.Pipeline.Name == pipeline && q.Spec.Environment == environment && (newest == nil || q.Spec.Number > newest.Spec.Number) {
			newest = q
		}
	}
	return newest
}

// NewestOf returns the newest promotion into the environment of a subject; nil if there is none.
func NewestOf(promotions []capstanv1.Promotion, s *Subject) *capstanv1.Promotion {
	switch {
	case s.Promotion != nil:
		return NewestInto(promotions, s.Promotion.Namespace, s.Promotion.Spec.Pipeline.Name, s.Promotion.Spec.Environment)
	case s.Environment != "":
		return NewestInto(promotions, s.Pipeline.Namespace, s.Pipeline.Name, s.Environment)
	}
	return nil
}

// NewestNumber returns the number of the newest promotion into the environment that a request is for; 0 if there is
// none.
func NewestNumber(promotions []capstanv1.Promotion, s *Subject) int64 {
	if s.Promotion != nil {
		return 0
	}
	if n := NewestOf(promotions, s); n != nil {
		return n.Spec.Number
	}
	return 0
}

// replaced returns the refusal of an action whose object was replaced by a promotion; nil if none was.
func replaced(promotions []capstanv1.Promotion, p *capstanv1.Promotion) *Refusal {
	n := NewestInto(promotions, p.Namespace, p.Spec.Pipeline.Name, p.Spec.Environment)
	if n == nil || n.Spec.Number <= p.Spec.Number {
		return nil
	}
	return ReplacedBy(n)
}

// ReplacedBy returns the refusal of an action on an outdated object: a newer promotion exists.
func ReplacedBy(n *capstanv1.Promotion) *Refusal {
	r := refused("A newer promotion replaced it: no. %d, of %s into %s, is %s.", n.Spec.Number, n.Spec.Revision, n.Spec.Environment, ledger.PhaseWord(n.Status.Phase))
	r.Newer = n
	return r
}

// decided returns the refusal of an approval or rejection if the run has one already; else nil.
func decided(p *capstanv1.Promotion) *Refusal {
	switch {
	case p.Approved():
		r := done("It was already approved by %s%s.", p.Spec.Approval.By, Quoted(p.Spec.Approval.Comment))
		if a := p.Status.Approval; a != nil && a.Retry == p.Spec.Approval.Retry {
			r.At = a.ApprovalTime.Time
		}
		return r
	case p.Rejected():
		r := done("It was already rejected by %s%s.", p.Spec.Rejection.By, Quoted(p.Spec.Rejection.Comment))
		if p.Status.FinishTime != nil {
			r.At = p.Status.FinishTime.Time
		}
		return r
	}
	return nil
}

// Quoted returns a comment of a user as the end of a sentence; empty if there is none.
func Quoted(comment string) string {
	if comment == "" {
		return ""
	}
	return ": " + comment
}

func refuseApproval(of []capstanv1.Promotion, s *Subject) *Refusal {
	p := s.Promotion
	if r := cmp.Or(replaced(of, p), decided(p)); r != nil {
		return r
	}
	switch {
	case Approvable(p):
		return nil
	case !p.Spec.Manual:
		return refused("The promotion of %s into %s needs no approval.", p.Spec.Revision, p.Spec.Environment)
	}
	return refused("The promotion of %s into %s is not waiting for an approval: it is %s.", p.Spec.Revision, p.Spec.Environment, ledger.PhaseWord(p.Status.Phase))
}

func refuseRejection(of []capstanv1.Promotion, s *Subject) *Refusal {
	p := s.Promotion
	if r := cmp.Or(replaced(of, p), decided(p)); r != nil {
		return r
	}
	if !p.Waits() || p.Status.Attempt != nil || p.Status.PullRequest != nil {
		r := refused("The promotion of %s into %s has begun or has ended: it is %s.", p.Spec.Revision, p.Spec.Environment, ledger.PhaseWord(p.Status.Phase))
		if !p.Status.Phase.Finished() && p.Status.URL != "" {
			r.Text += " Close its pull request to reject it."
		}
		return r
	}
	return nil
}

func refuseRetry(of []capstanv1.Promotion, s *Subject) *Refusal {
	p := s.Promotion
	if r := replaced(of, p); r != nil {
		return r
	}
	switch {
	case !p.Status.Phase.Finished():
		return refused("The promotion has not finished: it is %s. Only a finished promotion can be started again.", ledger.PhaseWord(p.Status.Phase))
	case p.Status.Phase == capstanv1.PhaseSucceeded:
		return refused("The promotion succeeded. To promote %s again, request its promotion.", p.Spec.Revision)
	case p.Spec.Retry > max(p.Status.Retry, p.Status.IgnoredRetry):
		return done("The promotion was already started again (retry %d). The hub begins it shortly.", p.Spec.Retry)
	}
	return nil
}

func refuseOverride(of []capstanv1.Promotion, s *Subject) *Refusal {
	p := s.Promotion
	if r := replaced(of, p); r != nil {
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
		return refused("The promotion is %s: no gate blocks it.", ledger.PhaseWord(p.Status.Phase))
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

func refuseSuspend(_ []capstanv1.Promotion, s *Subject) *Refusal {
	if s.Pipeline.Spec.Suspend {
		return done("The Pipeline is already suspended.")
	}
	return nil
}

func refuseResume(_ []capstanv1.Promotion, s *Subject) *Refusal {
	if !s.Pipeline.Spec.Suspend {
		return done("The Pipeline is not suspended.")
	}
	return nil
}

func refusePromote(of []capstanv1.Promotion, s *Subject) *Refusal {
	if r := RefuseRequest(s); r != nil {
		return r
	}
	if len(Revisions(of, s, 1)) == 0 {
		return refused("The Pipeline knows no other revision.")
	}
	return nil
}

func refuseRollback(of []capstanv1.Promotion, s *Subject) *Refusal {
	if r := RefuseRequest(s); r != nil {
		return r
	}
	if _, err := ResolveRollback(of, s); err != nil {
		return refused("Nothing to roll back to: %s.", decision.RefusalText(err))
	}
	return nil
}

// RefuseRequest returns why nothing can be requested for an environment; nil if something can.
func RefuseRequest(s *Subject) *Refusal {
	p, i := s.Pipeline, s.Index()
	switch {
	case i < 0:
		return refused("The Pipeline has no environment %s.", s.Environment)
	case i == 0:
		return refused("%s is the first environment of the Pipeline: nothing is promoted into it.", s.Environment)
	case p.PromotionFor(&p.Spec.Environments[i]) == nil:
		return refused("The environment %s has no promotion: neither its promotion nor spec.promotion is set.", s.Environment)
	case p.Spec.Suspend:
		return &Refusal{Text: "The Pipeline is suspended: resume it first.", Suspended: true}
	}
	return nil
}

// Approvable reports whether a promotion waits for an approval.
func Approvable(p *capstanv1.Promotion) bool {
	return p.Status.Phase != "" && p.WaitsForApproval()
}
