package decision

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/gate"
	"github.com/capstan-hub/capstan/internal/revision"
)

// QuestionOf returns the question whether a Promotion into environment i of a Pipeline
// is due; i is at least 1. fleets holds the targets of each environment, in the order
// of the spec. promotions are those of all Pipelines of the name, into any environment:
// also those of a former Pipeline that was deleted (Line).
//
// The reconciler passes the targets that it observes now, an explanation passes those of
// the status (quorum.FleetsOf). All else is read from the Pipeline here, so both decide by the
// same rules.
func QuestionOf(p *pipelinesv1.Pipeline, fleets []Fleet, promotions []capstanv1.Promotion, i int) Question {
	q := Question{
		Suspended: p.Spec.Suspend,
		First:     environmentOf(p, fleets, promotions, 0),
		Source:    environmentOf(p, fleets, promotions, i-1),
		Into:      environmentOf(p, fleets, promotions, i),
	}
	q.SameOrigin = sameOrigin(p, promotions, q)
	q.HeldBefore = heldBefore(p, promotions, q)
	q.Ahead = ahead(LineOf(p), promotions, q)
	if s := p.Spec.Environments[i].Stage; s != nil && !s.First && q.Source.Agreed != nil {
		q.ApprovedInWave = LedgerOf(LineOf(p), promotions, p.Spec.Environments[FirstStage(p, i)].Name, 0).hasPermitted(p.Spec.AppRef, q.Source.Agreed.Revision)
	}
	if a := q.Source.Agreed; a != nil {
		q.FailedInWave = FailedInWave(p, promotions, i, capstanv1.PromotionSource{Environment: q.Source.Name, Sequence: a.Sequence}, a.Revision)
	}
	if n := q.Into.Ledger.Newest(); n != nil && actsLater(n) && (n.OutOfTurn() || failedBefore(n)) {
		q.WaveChanged = Moved(p, q.Into.Name, n.Clusters, failedBefore(n)) != ""
	}
	q.Into.Rollback = RollbackFor(p, i)
	rules := gate.For(p, i)
	if n := q.Into.Ledger.Newest(); n != nil && q.Into.Intent != nil && q.Into.Rollback.concern() {
		q.RollbackTo = q.Into.Ledger.LastSucceeded(q.Into.Intent.App, n.Revision, func(revision string) bool {
			_, is := rules.Rejected(revision)
			return is
		})
	}
	if q.Source.Agreed != nil {
		_, q.Rejected = rules.Rejected(q.Source.Agreed.Revision)
	}
	if soak := rules.Soak(); soak != nil && q.Source.Agreed != nil {
		q.Soaking = !soak.Done(gate.Facts{Source: q.Source.Name, Revision: q.Source.Agreed.Revision, Agreed: q.Source.Agreed})
		q.Qualified = qualified(q, soak)
	}
	return q
}

// qualified returns whether the newest promotion is in flight, continues, and has the present intent.
func qualified(q Question, soak *gate.Soak) bool {
	n := q.Into.Ledger.Newest()
	return n != nil && !n.Former && !n.Phase.Finished() && q.Into.Intent != nil && n.Intent.Equal(*q.Into.Intent) &&
		!revision.Same(n.Revision, q.Source.Agreed.Revision) && q.Into.Ledger.Qualified(*n, soak, q.Source.Agreed.Revision)
}

// Verifies returns whether revisions are verified in environment i of a Pipeline. In the first one, and in
// those without a promotion, there are no promotions that could be.
func Verifies(p *pipelinesv1.Pipeline, i int) bool {
	env := &p.Spec.Environments[i]
	return i > 0 && p.VerificationFor(env) != nil && p.PromotionFor(env) != nil
}

func environmentOf(p *pipelinesv1.Pipeline, fleets []Fleet, promotions []capstanv1.Promotion, i int) Environment {
	env := &p.Spec.Environments[i]
	e := Environment{Name: env.Name, Fleet: fleets[i], Verified: Verifies(p, i)}
	if promotion := p.PromotionFor(env); promotion != nil {
		e.Intent = &Intent{App: p.Spec.AppRef, Strategy: promotion.Strategy, Manual: promotion.Manual}
	}
	e.Wave = env.Stage != nil
	if s := env.Stage; s != nil && !s.First {
		of := p.PromotionFor(s.Of)
		e.ApprovedBefore = of != nil && of.Manual
	}
	var mark int64
	if status := p.Status.Environments[env.Name]; status != nil {
		e.Agreed, mark = status.Agreed, status.LastPromotion
	}
	e.Ledger = LedgerOf(LineOf(p), promotions, env.Name, mark)
	return e
}

// Line says which promotions are the history of a Pipeline: its own, which have its UID,
// and those of former Pipelines of its namespace and name, if they are for the same
// application. A Pipeline that was deleted and created again, or restored from a backup
// under a new UID, continues that history: what was carried out is not carried out again,
// and the numbers continue.
type Line struct {
	UID types.UID
	App pipelinesv1.LocalAppReference
}

// LineOf returns the Line of a Pipeline.
func LineOf(p *pipelinesv1.Pipeline) Line { return Line{UID: p.UID, App: p.Spec.AppRef} }

// entries returns the promotions that are part of the history and pass the filter.
func (l Line) entries(promotions []capstanv1.Promotion, filter func(*capstanv1.PromotionSpec) bool) []Entry {
	former := func(p *capstanv1.Promotion) bool { return p.Spec.Pipeline.UID != l.UID }
	concerned := func(p *capstanv1.Promotion) bool { return filter(&p.Spec) && (!former(p) || p.Spec.App == l.App) }
	n := 0 // Counted, because each reconciliation needs this for each environment.
	for i := range promotions {
		if concerned(&promotions[i]) {
			n++
		}
	}
	entries := slices.Grow([]Entry(nil), n)
	for i := range promotions {
		if p := &promotions[i]; concerned(p) {
			e := EntryOf(p)
			e.Former = former(p)
			entries = append(entries, e)
		}
	}
	return entries
}

// LedgerOf returns the ledger of one environment. promotions are those of all Pipelines of
// the name, into any environment. mark is the highest number that Pipeline.status keeps for
// the environment; 0 if it keeps none.
func LedgerOf(line Line, promotions []capstanv1.Promotion, environment string, mark int64) Ledger {
	return ledger(line.entries(promotions, func(p *capstanv1.PromotionSpec) bool { return p.Environment == environment }), mark)
}

// Outbound returns the promotions whose source is an environment. promotions are those of
// all Pipelines of the name.
func Outbound(line Line, promotions []capstanv1.Promotion, environment string) []Entry {
	return line.entries(promotions, func(p *capstanv1.PromotionSpec) bool { return p.Source.Environment == environment })
}

// sameOrigin returns whether the newest promotion into the environment is for the same
// roll-out as the candidate, although it names another agreement: an environment was
// inserted, removed, renamed or moved since, or the Pipeline was created again. Both come
// from the same agreement of an earlier environment, so a promotion that was carried out is
// not carried out again.
//
// If no environment from which the promotion came exists any more, the first agreement of
// the new source continues the roll-out. So does the first agreement in a re-created
// Pipeline, whose sequence began again.
func sameOrigin(p *pipelinesv1.Pipeline, promotions []capstanv1.Promotion, q Question) bool {
	newest, candidate := q.Into.Ledger.Newest(), q.Source.Agreed
	switch {
	case newest == nil || candidate == nil || !revision.Same(newest.Revision, candidate.Revision):
		return false
	case newest.Former && candidate.Sequence == 1:
		return true
	case newest.Source == q.Source.Name:
		return false // The sequence says whether it is the same agreement.
	}
	line := LineOf(p)
	theirs, ours := origins(line, promotions, agreement{newest.Source, newest.Sequence}, newest.Revision), ofCandidate(p, promotions, q)
	if slices.ContainsFunc(theirs, func(a agreement) bool { return slices.Contains(ours, a) }) {
		return true
	}
	return candidate.Sequence == 1 && !anyExists(p, theirs)
}

// ways returns the agreements through which a revision came to one of its source.
func ways(p *pipelinesv1.Pipeline, promotions []capstanv1.Promotion, source agreement, candidate string) []agreement {
	all := origins(LineOf(p), promotions, source, candidate)
	name := p.Spec.Environments[0].Name
	if first := p.Status.Environments[name]; first != nil && first.Agreed != nil && revision.Same(first.Agreed.Revision, candidate) {
		all = append(all, agreement{name, first.Agreed.Sequence})
	}
	return all
}

// ofCandidate returns those of the candidate.
func ofCandidate(p *pipelinesv1.Pipeline, promotions []capstanv1.Promotion, q Question) []agreement {
	return ways(p, promotions, agreement{q.Source.Name, q.Source.Agreed.Sequence}, q.Source.Agreed.Revision)
}

// anyExists returns whether a Pipeline still has an environment of an agreement.
func anyExists(p *pipelinesv1.Pipeline, all []agreement) bool {
	return slices.ContainsFunc(p.Spec.Environments, func(e pipelinesv1.Environment) bool {
		return slices.ContainsFunc(all, func(a agreement) bool { return a.environment == e.Name })
	})
}

// heldBefore returns whether the newest promotion into the environment keeps the candidate out, although it names
// another source: an environment was inserted, removed, renamed or moved since. The candidate came from an agreement
// that the promotion holds out, or from an earlier one.
//
// If no environment of the hold exists any more, it keeps the first agreement of the new source out: after a rollback
// only if that is for the revision that was rolled back.
func heldBefore(p *pipelinesv1.Pipeline, promotions []capstanv1.Promotion, q Question) bool {
	n, candidate := q.Into.Ledger.newestThatCounts(), q.Source.Agreed
	if n == nil || candidate == nil || n.Former || !n.Holds() || n.Source == q.Source.Name {
		return false
	}
	line, theirs := LineOf(p), []agreement{{n.Source, n.Hold}}
	replaced := q.Into.Ledger.numbered(n.Pipeline, n.RollbackOf)
	if replaced != nil {
		theirs = origins(line, promotions, theirs[0], replaced.Revision)
	}
	later, known := isLater(ofCandidate(p, promotions, q), theirs)
	if known {
		return !later
	}
	return candidate.Sequence == 1 && !anyExists(p, theirs) && (replaced == nil || revision.Same(replaced.Revision, candidate.Revision))
}

// isLater returns whether the first agreement of a, in an environment of which b has an agreement, too, is later than that one; known is
// false if there is none.
func isLater(a, b []agreement) (later, known bool) {
	for _, one := range a {
		if i := slices.IndexFunc(b, func(other agreement) bool { return other.environment == one.environment }); i >= 0 {
			return one.sequence > b[i].sequence, true
		}
	}
	return false, false
}

// ahead returns whether the environment got a later revision than the candidate, from an
// environment that is not its source any more: environments changed places. With the same source,
// the later one is the candidate, and what the first environment runs is never behind.
//
// If both revisions came from the same environment, its agreements say which is later. Else the
// creation of their promotions does, in seconds; within one second the candidate is not promoted.
func ahead(line Line, promotions []capstanv1.Promotion, q Question) bool {
	candidate, last := q.Source.Agreed, q.Into.Ledger.lastCarriedOut()
	if candidate == nil || last == nil || last.Source == q.Source.Name || revision.Same(last.Revision, candidate.Revision) || ofFirst(q) {
		return false
	}
	brought := q.Source.Ledger.LastBrought()
	if brought == nil {
		return false
	}
	if last.Pipeline == brought.Pipeline { // The agreements of a former Pipeline have other sequences.
		theirs := origins(line, promotions, agreement{last.Source, last.Sequence}, last.Revision)
		if later, known := isLater(theirs, origins(line, promotions, agreement{brought.Source, brought.Sequence}, brought.Revision)); known {
			return later
		}
	}
	return !last.Created.Before(brought.Created)
}

// agreement identifies one agreement of an environment.
type agreement struct {
	environment string
	sequence    int64
}

// origins returns the agreements through which a revision came to an agreement, that one
// first: the newest promotion of the revision into each environment names the agreement
// before it. Its phase does not matter: an environment may run what was sent before the
// record says so.
func origins(line Line, promotions []capstanv1.Promotion, last agreement, candidate string) []agreement {
	all := []agreement{last}
	for {
		promotion := LedgerOf(line, promotions, last.environment, 0).NewestFor(candidate)
		if promotion == nil {
			return all
		}
		last = agreement{promotion.Source, promotion.Sequence}
		if slices.Contains(all, last) {
			return all
		}
		all = append(all, last)
	}
}

// NewestOf returns the promotion of a Pipeline with the highest number into an environment;
// nil if there is none. Promotions of former Pipelines of the name do not count.
func NewestOf(uid types.UID, promotions []capstanv1.Promotion, environment string) *capstanv1.Promotion {
	var newest *capstanv1.Promotion
	for i := range promotions {
		p := &promotions[i]
		if p.Spec.Environment == environment && p.Spec.Pipeline.UID == uid && (newest == nil || p.Spec.Number > newest.Spec.Number) {
			newest = p
		}
	}
	return newest
}
