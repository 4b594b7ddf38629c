package decision

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/gate"
	"github.com/capstan-hub/capstan/internal/revision"
)

// Intent is the part of a Promotion that follows from the Pipeline's spec alone. If it
// changes while a promotion is not done, a promotion with the next number replaces that.
type Intent struct {
	App      pipelinesv1.LocalAppReference
	Strategy pipelinesv1.Strategy
	Manual   bool
}

// Equal returns whether two intents are semantically equal.
func (i Intent) Equal(j Intent) bool { return equality.Semantic.DeepEqual(i, j) }

// Entry is one Promotion, with the fields that the tables read.
type Entry struct {
	// Name of the Promotion.
	Name     string
	Number   int64
	Revision string
	// Sequence of the source environment's agreement.
	Sequence int64
	Source   string
	Intent   Intent
	Phase    capstanv1.PromotionPhase
	Reason   string
	// CarriedOut: the notification was accepted, or the pull request was merged.
	CarriedOut bool
	// Approved: a user approved it, in this run or an earlier one.
	Approved bool
	// Retried: this is not its first run. What an earlier one showed is not known any more.
	Retried bool
	// Former: the promotion is of a former Pipeline of the same name, which was deleted.
	Former bool
	// Created is when the promotion was created; it orders former Pipelines.
	Created time.Time
	// Pipeline is the UID of its Pipeline.
	Pipeline types.UID
	// Soaked is how long the revision soaked in the source, as the promotion has recorded it.
	Soaked time.Duration
	// BusyUntil is when the newest attempt ends at the latest, if it has no outcome yet.
	BusyUntil time.Time
	// Request is the UID of the PromotionRequest that caused it; empty if none did.
	Request types.UID
	// RollbackOf is the number of the promotion that it rolls back; 0 if it is no rollback.
	RollbackOf int64
	// Hold is the sequence of the source up to which it keeps other revisions out; 0 for none.
	Hold int64
	// Clusters of its wave, as namespace/name, in order; nil if its environment has no waves.
	Clusters []string
	// NothingNewer: there are newer promotions into the environment that ended because they brought nothing new,
	// and all others that are newer ended before they could bring anything. MarkNothingNewer sets it.
	NothingNewer bool
}

// Rollback returns whether the promotion puts an earlier revision back.
func (e Entry) Rollback() bool { return e.RollbackOf > 0 }

// OutOfTurn returns whether a request or a failure caused the promotion, and not a new revision of the source.
func (e Entry) OutOfTurn() bool { return e.Request != "" || e.Rollback() }

// Brought returns whether the promotion brought its revision into the environment: it
// succeeded, or it was carried out and the end of the roll-out was not observed, because
// the Pipeline was deleted or the environment was removed from it. One that was superseded
// by a newer revision does not count: its revision arrived too late to be promoted further.
// It does count if the newer revision brought nothing new, as when the first environment got
// the merge of the promotion itself: no other promotion brings what it brought.
// LastBrought also compares it with newer promotions.
func (e Entry) Brought() bool {
	unobserved := e.Reason == string(PipelineDeleted) || e.Reason == string(EnvironmentRemoved)
	return e.Phase == capstanv1.PhaseSucceeded || e.CarriedOut && e.Phase == capstanv1.PhaseSuperseded && unobserved || e.Replaced() && e.NothingNewer
}

// Replaced returns whether a newer revision superseded the promotion after it was carried out.
func (e Entry) Replaced() bool {
	return e.CarriedOut && e.Phase == capstanv1.PhaseSuperseded && (e.Reason == string(SourceMovedOn) || e.Reason == string(NewerPromotion))
}

// MarkNothingNewer sets NothingNewer of the promotions into one environment, the newest first.
func MarkNothingNewer(entries []Entry) {
	nothing, none := false, true // One brought nothing new, and none may have brought anything.
	for i := range entries {
		e := &entries[i]
		e.NothingNewer = nothing && none
		empty := e.Phase == capstanv1.PhaseSuperseded && e.Reason == string(NothingNew)
		nothing = nothing || empty
		none = none && (empty || e.leftNothing())
	}
}

// leftNothing returns whether the promotion ended before it could bring its revision: its pull request was not
// merged. A notification may have been received although its answer was lost.
func (e Entry) leftNothing() bool {
	return e.Phase.Finished() && e.Phase != capstanv1.PhaseSucceeded && !e.CarriedOut && e.Intent.Strategy.Notification == nil
}

// EntryOf returns the Entry of a Promotion.
func EntryOf(p *capstanv1.Promotion) Entry {
	e := Entry{
		Name:     p.Name,
		Number:   p.Spec.Number,
		Revision: p.Spec.Revision,
		Sequence: p.Spec.Source.Sequence,
		Source:   p.Spec.Source.Environment,
		Intent:   Intent{App: p.Spec.App, Strategy: p.Spec.Strategy, Manual: p.Spec.Manual},
		Phase:    p.Status.Phase,
		Reason:   p.Status.Reason,

		CarriedOut: p.Status.CarriedOutTime != nil,
		Approved:   p.Status.Approval != nil || slices.ContainsFunc(p.Status.OtherApprovals, func(a capstanv1.ApprovalRecord) bool { return a.NoEffect == "" }),
		Retried:    p.Status.Retry > 0,
		Created:    p.CreationTimestamp.Time,
		Pipeline:   p.Spec.Pipeline.UID,
		Soaked:     time.Duration(p.Status.SoakedSeconds) * time.Second,
	}
	if p.Spec.Request != nil {
		e.Request = p.Spec.Request.UID
	}
	if p.Spec.RollbackOf != nil {
		e.RollbackOf = p.Spec.RollbackOf.Number
	}
	if p.Spec.Hold != nil {
		e.Hold = p.Spec.Hold.UntilSequence
	}
	if p.Spec.Wave != nil {
		e.Clusters = append([]string{}, p.Spec.Wave.Clusters...)
	}
	if a := p.Status.Attempt; a != nil && a.Error == "" {
		e.BusyUntil = a.NextAttemptTime.Time
	}
	return e
}

// Ledger holds the known promotions into one environment.
type Ledger struct {
	// entries, the newest first: those of the Pipeline in the order of their numbers, then
	// those of each former Pipeline.
	entries []Entry
	mark    int64
}

// NewLedger makes a ledger from the promotions into one environment and the mark: the
// highest number that Pipeline.status keeps.
func NewLedger(entries []Entry, mark int64) Ledger { return ledger(slices.Clone(entries), mark) }

// ledger is NewLedger, but sorts the given entries in place.
func ledger(entries []Entry, mark int64) Ledger {
	// Numbers order the promotions of one Pipeline. Former Pipelines are ordered by the
	// newest of their promotions.
	latest := map[types.UID]time.Time{}
	for _, e := range entries {
		if e.Former && e.Created.After(latest[e.Pipeline]) {
			latest[e.Pipeline] = e.Created
		}
	}
	slices.SortFunc(entries, func(a, b Entry) int {
		if a.Former != b.Former {
			if a.Former {
				return 1
			}
			return -1
		}
		return cmp.Or(
			latest[b.Pipeline].Compare(latest[a.Pipeline]),
			cmp.Compare(a.Pipeline, b.Pipeline),
			cmp.Compare(b.Number, a.Number),
		)
	})
	MarkNothingNewer(entries)
	return Ledger{entries: entries, mark: mark}
}

// Newest returns the promotion of the Pipeline with the highest number; if it has none, that
// of the latest former Pipeline; nil if there is none. Creation times do not order the
// promotions of one Pipeline: they can be equal, and a delayed create request may take
// effect after a newer one.
func (l Ledger) Newest() *Entry {
	if len(l.entries) == 0 {
		return nil
	}
	return &l.entries[0]
}

// newestThatCounts is Newest without requests that were withdrawn.
func (l Ledger) newestThatCounts() *Entry {
	i := slices.IndexFunc(l.entries, func(e Entry) bool { return !e.withdrawn() })
	if i < 0 {
		return nil
	}
	return &l.entries[i]
}

// Highest returns the highest number ever used: by the promotions that exist, and by
// those that were deleted since the mark was written. A Pipeline without promotions
// continues the numbers of the former ones.
func (l Ledger) Highest() int64 {
	highest := l.mark
	newest := l.Newest()
	for i := range l.entries {
		if e := &l.entries[i]; e.Former == newest.Former {
			highest = max(highest, e.Number)
		}
	}
	return highest
}

// Outranks returns whether a promotion with a higher number than that of e exists, or
// existed. A promotion of the Pipeline that was created after the one of e was deleted counts,
// too. The numbers of an earlier version of the hub began at 1 there.
func (l Ledger) Outranks(e Entry) bool {
	return l.mark > e.Number || slices.ContainsFunc(l.entries, func(other Entry) bool {
		return other.Number > e.Number && (other.Pipeline == e.Pipeline || !other.Created.Before(e.Created))
	})
}

// BusyUntil returns when the attempts of promotions other than e have ended at the latest.
// Two attempts at a time could arrive in the wrong order.
func (l Ledger) BusyUntil(e Entry) time.Time {
	var until time.Time
	for _, other := range l.entries {
		if (other.Number != e.Number || other.Pipeline != e.Pipeline) && other.BusyUntil.After(until) {
			until = other.BusyUntil
		}
	}
	return until
}

// Next returns the number of the next promotion.
func (l Ledger) Next() int64 { return l.Highest() + 1 }

// LastBrought returns the newest promotion that brought its revision into the environment;
// nil if there is none. One whose roll-out was not observed to its end does not count if a newer
// promotion was carried out: what a slow receiver does with it later is not promoted further.
func (l Ledger) LastBrought() *Entry {
	at := l.lastBrought()
	if at < 0 {
		return nil
	}
	return &l.entries[at]
}

// lastBrought returns the place of LastBrought; -1 if there is none.
func (l Ledger) lastBrought() int {
	newer := ""
	for i := range l.entries {
		e := &l.entries[i]
		switch {
		case !e.Brought():
		case e.Phase == capstanv1.PhaseSucceeded || newer == "" || revision.Same(newer, e.Revision):
			return i
		default:
			return -1
		}
		if e.CarriedOut && newer == "" {
			newer = e.Revision
		}
	}
	return -1
}

// lastCarriedOut returns the newest promotion that was carried out, had arrived before, or may have sent a
// notification; nil if there is none. An attempt to open a pull request changes nothing in the environment.
func (l Ledger) lastCarriedOut() *Entry {
	i := slices.IndexFunc(l.entries, func(e Entry) bool {
		return e.CarriedOut || e.Phase == capstanv1.PhaseSucceeded ||
			e.Phase == capstanv1.PhasePromoting && !e.BusyUntil.IsZero() && e.Intent.Strategy.Notification != nil
	})
	if i < 0 {
		return nil
	}
	return &l.entries[i]
}

// NewestFor returns the newest promotion of a revision, in any phase; nil if there is none.
func (l Ledger) NewestFor(candidate string) *Entry {
	for i := range l.entries {
		if revision.Same(l.entries[i].Revision, candidate) {
			return &l.entries[i]
		}
	}
	return nil
}

// verified returns whether the last promotion of an application that arrived in the environment was for a
// revision and was verified, and none for that revision is in flight. Promotions that ended before they
// were carried out do not count.
func (l Ledger) verified(app pipelinesv1.LocalAppReference, candidate string) bool {
	for i := range l.entries {
		e := &l.entries[i]
		same := e.Intent.App == app && revision.Same(e.Revision, candidate)
		switch {
		case !e.Phase.Finished() && (same || e.Phase == capstanv1.PhaseVerifying):
			return false
		case e.Phase == capstanv1.PhaseSucceeded, FailedInEnvironment(e.Phase, e.Reason), e.Phase.Finished() && e.CarriedOut:
			return same && e.Phase == capstanv1.PhaseSucceeded && e.Reason == string(Verified)
		}
	}
	return false
}

// rollsBack returns the rollback of the environment that is in flight, or that failed before it was carried
// out; nil if there is none.
func (l Ledger) rollsBack() *Entry {
	n := l.Newest()
	if n == nil || n.Former || !n.Rollback() || n.Phase.Finished() && !failedBefore(n) {
		return nil
	}
	return n
}

// Failed returns whether the last verdict about a revision of an application in the environment is a bad one.
func (l Ledger) Failed(app pipelinesv1.LocalAppReference, candidate string) bool {
	for i := range l.entries {
		e := &l.entries[i]
		if e.Intent.App != app || !revision.Same(e.Revision, candidate) {
			continue
		}
		if e.Phase == capstanv1.PhaseSucceeded || FailedInEnvironment(e.Phase, e.Reason) {
			return Judged(e.Phase, e.Reason)
		}
	}
	return false
}

// RollsBack returns whether a revision is being taken out of the environment.
func (l Ledger) RollsBack(candidate string) bool {
	n := l.rollsBack()
	if n == nil || revision.Same(n.Revision, candidate) {
		return false
	}
	of := l.numbered(n.Pipeline, n.RollbackOf)
	return of == nil || revision.Same(of.Revision, candidate)
}

// RolledBack returns the promotion that a rollback replaced; nil if it was deleted.
func (l Ledger) RolledBack(e Entry) *Entry { return l.numbered(e.Pipeline, e.RollbackOf) }

// numbered returns a promotion of a Pipeline by its number; nil if it was deleted.
func (l Ledger) numbered(pipeline types.UID, number int64) *Entry {
	i := slices.IndexFunc(l.entries, func(e Entry) bool { return e.Pipeline == pipeline && e.Number == number })
	if i < 0 {
		return nil
	}
	return &l.entries[i]
}

// HasEarlier returns whether a promotion with a lower number than n is for the revision.
func (l Ledger) HasEarlier(candidate string, n int64) bool {
	return slices.ContainsFunc(l.entries, func(e Entry) bool { return e.Number < n && revision.Same(e.Revision, candidate) })
}

// Qualified returns whether a promotion continues although its source agreed on another revision: its
// own has soaked as long as the gates require, and the source did not go back, to an older version or
// to one that was promoted before. Without a required soak no promotion continues.
func (l Ledger) Qualified(e Entry, soak *gate.Soak, agreed string) bool {
	return soak != nil && e.Soaked >= soak.For && !revision.Older(agreed, e.Revision) && !l.HasEarlier(agreed, e.Number)
}

// SupersededSoaking returns how many promotions in sequence, the newest that ended first, were
// replaced because the source agreed on another revision before theirs had soaked. It is 0 if the
// one in flight has soaked.
func (l Ledger) SupersededSoaking() int {
	n := 0
	for i, e := range l.entries {
		if i == 0 && !e.Phase.Finished() && e.Soaked == 0 {
			continue
		}
		if e.OutOfTurn() {
			break
		}
		replaced := e.Reason == string(SourceMovedOn) || e.Reason == string(NewerPromotion) && i > 0 && !revision.Same(l.entries[i-1].Revision, e.Revision)
		if e.Phase != capstanv1.PhaseSuperseded || !replaced || e.CarriedOut || e.Soaked > 0 {
			break
		}
		n++
	}
	return n
}
