package decision

import (
	"fmt"
	"slices"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/internal/revision"
)

// RollbackRules say what happens when a revision failed in an environment. The zero value says nothing more.
type RollbackRules struct {
	Mode   pipelinesv1.RollbackMode
	Within pipelinesv1.RollbackLimit
	wrong  error
}

// RollbackFor returns the rules of environment i of a Pipeline.
func RollbackFor(p *pipelinesv1.Pipeline, i int) RollbackRules {
	env, path := &p.Spec.Environments[i], "spec.rollback"
	if env.Rollback != nil {
		path = p.Path(i) + ".rollback"
	}
	spec := p.RollbackFor(env)
	if spec == nil {
		return RollbackRules{}
	}
	r := RollbackRules{Mode: pipelinesv1.RollbackNever, Within: pipelinesv1.RollbackMinor}
	switch spec.Mode {
	case "":
	case pipelinesv1.RollbackNever, pipelinesv1.RollbackNotify, pipelinesv1.RollbackPromote:
		r.Mode = spec.Mode
	default:
		r.wrong = fmt.Errorf("%s.mode: %q is not Never, Notify or Promote", path, spec.Mode)
	}
	switch spec.Within {
	case "":
	case pipelinesv1.RollbackPatch, pipelinesv1.RollbackMinor, pipelinesv1.RollbackAny:
		r.Within = spec.Within
	default:
		r.wrong = fmt.Errorf("%s.within: %q is not Patch, Minor or Any", path, spec.Within)
	}
	if r.wrong != nil {
		r.Mode = pipelinesv1.RollbackNever
	}
	return r
}

// concern returns whether a failure has a consequence.
func (r RollbackRules) concern() bool { return r.Mode != "" && r.Mode != pipelinesv1.RollbackNever }

// Err returns what is invalid, with the path of the field and what to do; nil if all is valid.
func (r RollbackRules) Err() error { return r.wrong }

// rollsBack returns whether a promotion failed for a reason after which it is rolled back. A verdict that is
// missing (Inconclusive) says nothing about the revision.
func rollsBack(phase capstanv1.PromotionPhase, reason string) bool {
	return phase == capstanv1.PhaseFailed &&
		(reason == string(VerificationFailed) || reason == string(Degraded) || reason == string(RolloutDeadline))
}

// Rollback returns the promotion whose revision a rollback of the newest promotion of an environment would
// promote, if that failed there and a rollback is configured; nil if none is. why is why it is not promoted
// without a request; empty if it is.
func Rollback(q Question) (to *Entry, why string) {
	n, rules := q.Into.Ledger.Newest(), q.Into.Rollback
	switch {
	case n == nil || n.Former || !rollsBack(n.Phase, n.Reason) || !rules.concern(),
		q.Into.Intent == nil || n.Intent.App != q.Into.Intent.App:
		return nil, ""
	case n.Rollback():
		return nil, "" // One that fails is not rolled back: the revision before it failed, too.
	}
	to = q.RollbackTo
	if runs, ok := q.Into.Agree(); ok && !revision.Same(runs, n.Revision) && (to == nil || !revision.Same(runs, to.Revision)) {
		return nil, "" // The environment was changed since.
	}
	switch {
	case to == nil:
		return nil, "no other revision succeeded there before"
	case n.Request != "" && revision.Older(n.Revision, to.Revision):
		return to, fmt.Sprintf("%s was requested, and %s is later", n.Revision, to.Revision)
	case rules.Mode == pipelinesv1.RollbackNotify:
		return to, "spec.rollback has the mode Notify"
	case rules.Within == pipelinesv1.RollbackAny:
		return to, ""
	}
	switch change, ok := revision.Change(n.Revision, to.Revision); {
	case !ok:
		return to, fmt.Sprintf("%s or %s is no semantic version, and spec.rollback is within %s", n.Revision, to.Revision, rules.Within)
	case change == revision.MajorChange, change == revision.MinorChange && rules.Within == pipelinesv1.RollbackPatch:
		return to, fmt.Sprintf("%s to %s is further back than spec.rollback.within (%s)", n.Revision, to.Revision, rules.Within)
	}
	return to, ""
}

// Permitted returns whether a promotion had its approval, if it needs one: one whose revision was put there by hand meanwhile
// succeeds without.
func (e Entry) Permitted() bool { return e.Approved || !e.Intent.Manual }

// Passed returns whether a promotion of an application succeeded with a revision, and whether that one, or another one that was
// carried out with it, had its approval.
func (l Ledger) Passed(app pipelinesv1.LocalAppReference, candidate string) bool {
	return l.Succeeded(candidate) && slices.ContainsFunc(l.entries, func(e Entry) bool {
		return e.Intent.App == app && revision.Same(e.Revision, candidate) && (e.CarriedOut || e.Phase == capstanv1.PhaseSucceeded) && e.Permitted()
	})
}

// hasPermitted returns whether promotions of an application brought a revision into the environment, and one of them had its
// approval. What the environment had before another revision does not count.
func (l Ledger) hasPermitted(app pipelinesv1.LocalAppReference, candidate string) bool {
	at := l.lastBrought()
	if at < 0 {
		return false
	}
	for i := range l.entries[at:] {
		e := &l.entries[at+i]
		switch {
		case !e.CarriedOut && !e.Brought() && !FailedInEnvironment(e.Phase, e.Reason):
		case e.Intent.App != app, !revision.Same(e.Revision, candidate):
			return false
		case e.Permitted():
			return true
		}
	}
	return false
}

// Succeeded returns whether a promotion succeeded with a revision.
func (l Ledger) Succeeded(candidate string) bool {
	return slices.ContainsFunc(l.entries, func(e Entry) bool {
		return e.Phase == capstanv1.PhaseSucceeded && revision.Same(e.Revision, candidate)
	})
}

// LastSucceeded returns the newest promotion of an application that succeeded with a revision other than one,
// that is not rejected and was not rolled back; nil if there is none. What succeeded between a revision and
// the rollback to it was rolled back.
func (l Ledger) LastSucceeded(app pipelinesv1.LocalAppReference, other string, rejected func(string) bool) *Entry {
	var back *Entry // The rollback of which the first promotion of its revision was not reached yet.
	for i := range l.entries {
		e := &l.entries[i]
		if e.Intent.App != app {
			continue
		}
		succeeded := e.Phase == capstanv1.PhaseSucceeded
		if back != nil {
			if !succeeded || e.Rollback() || !revision.Same(e.Revision, back.Revision) {
				continue
			}
			back = nil
		}
		if succeeded && !revision.Same(e.Revision, other) && !rejected(e.Revision) {
			return e
		}
		if e.Rollback() && (succeeded || e.CarriedOut) {
			back = e
		}
	}
	return nil
}

// Holds returns whether a promotion keeps other revisions out of the environment. A request that ended before it was
// carried out does not.
func (e Entry) Holds() bool { return e.Hold > 0 && !e.withdrawn() }

// withdrawn returns whether a request ended before it was carried out: the environment is as if there had been none.
func (e Entry) withdrawn() bool {
	return e.Request != "" && !e.CarriedOut && (e.Phase == capstanv1.PhaseRejected || e.Phase == capstanv1.PhaseSuperseded)
}

// Hold returns the highest sequence of the source up to which no revision is promoted without a request; 0
// if there is none.
func (l Ledger) Hold(source string) int64 {
	var until int64
	for i := range l.entries {
		e := &l.entries[i]
		if e.Source == source && e.Holds() { // Those of a former Pipeline, too: Record continues its sequences.
			until = max(until, e.Hold)
		}
	}
	return until
}

// held returns whether a rollback or a request keeps the candidate out of the environment. In a Pipeline that
// was created again, whose sequences begin anew, the first agreement of the source is what it was before.
func held(q Question) bool {
	if q.Source.Agreed == nil {
		return false
	}
	if n := q.Into.Ledger.Newest(); n != nil && n.Former && n.Holds() && q.Source.Agreed.Sequence == 1 {
		return true
	}
	return q.HeldBefore || q.Source.Agreed.Sequence <= q.Into.Ledger.Hold(q.Source.Name)
}
