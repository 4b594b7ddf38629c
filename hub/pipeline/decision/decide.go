package decision

import (
	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// Environment is the state of one environment at the time of the decision.
type Environment struct {
	// Name of the environment.
	Name string
	// Targets as last observed.
	Targets []Target
	// Agreed is the recorded agreement (Record).
	Agreed *pipelinesv1.AgreedRevision
	// Intent of a promotion into the environment; nil if the Pipeline configures none.
	Intent *Intent
	// Ledger of the promotions into the environment.
	Ledger Ledger
}

// Question holds all that Decide reads.
type Question struct {
	// Suspended is spec.suspend of the Pipeline.
	Suspended bool
	// First environment of the Pipeline, where new revisions appear.
	First Environment
	// Source is the environment before Into; it may be First.
	Source Environment
	// Into is the environment for which Decide decides.
	Into Environment
}

// Verdict is the answer to a Question.
type Verdict struct {
	// Create is whether a Promotion is due.
	Create bool
	// Reason is the name of the row that decided.
	Reason Reason
	// Revision and Sequence of the candidate, if Create is set.
	Revision string
	Sequence int64
}

// Reason names a row of the decision table.
type Reason string

// Rows of the decision table.
const (
	Suspended           Reason = "Suspended"
	NoPromotion         Reason = "NoPromotion"
	SourceNotAgreed     Reason = "SourceNotAgreed"
	SourceMadeByHand    Reason = "SourceMadeByHand"
	NoTargets           Reason = "NoTargets"
	EnvironmentNotFresh Reason = "EnvironmentNotFresh"
	UpToDate            Reason = "UpToDate"
	IntentChanged       Reason = "IntentChanged"
	PromotionRestored   Reason = "PromotionRestored"
	AlreadyDecided      Reason = "AlreadyDecided"
	NewRevision         Reason = "NewRevision"
)

// decisionRow is one row of the table. The first row whose test is true decides.
type decisionRow struct {
	reason Reason
	when   string
	create bool
	why    string
	test   func(Question) bool
}

var decisionTable = []decisionRow{
	{Suspended, "the Pipeline is suspended", false,
		"A user suspended the Pipeline.",
		func(q Question) bool { return q.Suspended }},
	{NoPromotion, "the environment has no promotion", false,
		"The Pipeline only shows which revisions run in the environment.",
		func(q Question) bool { return q.Into.Intent == nil }},
	{SourceNotAgreed, "the source's targets are not all fresh, ready and equal", false,
		"Mixed, unready and stale states are never promoted.",
		func(q Question) bool { _, ok := Agree(q.Source.Targets); return !ok || q.Source.Agreed == nil }},
	{SourceMadeByHand, "the source's revision is neither that of the first environment nor that of its newest succeeded promotion", false,
		"A revision that was changed outside the pipeline is not promoted.",
		func(q Question) bool { return !promotable(q) }},
	{NoTargets, "the environment has no targets", false,
		"There is no target to promote to.",
		func(q Question) bool { return len(q.Into.Targets) == 0 }},
	{EnvironmentNotFresh, "a target of the environment is stale", false,
		"It is unknown whether the target already runs the candidate.",
		func(q Question) bool { return !Fresh(q.Into.Targets) }},
	{UpToDate, "every target of the environment runs the candidate", false,
		"There is nothing to do.",
		func(q Question) bool { r, ok := Agree(q.Into.Targets); return ok && r == q.Source.Agreed.Revision }},
	{IntentChanged, "the newest promotion is for this (revision, sequence), is not done, and the Pipeline's app, strategy or manual was edited", true,
		"The edit takes effect with the next number.",
		func(q Question) bool {
			n := newestForCandidate(q)
			return n != nil && (!n.Phase.Finished() || n.Phase == capstanv1.PhaseFailed) && !n.Intent.Equal(*q.Into.Intent)
		}},
	{PromotionRestored, "the newest promotion is for this (revision, sequence) and ended because the promotion or the environment was removed from the Pipeline", true,
		"It was added to the Pipeline again.",
		func(q Question) bool {
			n := newestForCandidate(q)
			return n != nil && n.Phase == capstanv1.PhaseSuperseded &&
				(n.Reason == string(PromotionRemoved) || n.Reason == string(EnvironmentRemoved))
		}},
	{AlreadyDecided, "the newest promotion is for this (revision, sequence)", false,
		"It is in flight, or it ended. A candidate is promoted once; spec.retry repeats it.",
		func(q Question) bool { return newestForCandidate(q) != nil }},
	{NewRevision, "otherwise", true,
		"The environment does not run the candidate, and no promotion exists for it yet.",
		func(Question) bool { return true }},
}

// promotable returns whether the source's agreed revision may be promoted further. A fast
// first environment does not starve the last one. A revision that a user put into a
// middle environment stays there.
func promotable(q Question) bool {
	if q.Source.Name == q.First.Name {
		return true
	}
	revision := q.Source.Agreed.Revision
	if q.First.Agreed != nil && q.First.Agreed.Revision == revision {
		return true
	}
	succeeded := q.Source.Ledger.NewestSucceeded()
	return succeeded != nil && succeeded.Revision == revision
}

// newestForCandidate returns the newest promotion if it is for the candidate's
// (revision, sequence), else nil.
func newestForCandidate(q Question) *Entry {
	n := q.Into.Ledger.Newest()
	if n == nil || n.Revision != q.Source.Agreed.Revision || n.Sequence != q.Source.Agreed.Sequence || n.Source != q.Source.Name {
		return nil
	}
	return n
}

// Decide returns whether a Promotion into an environment is due.
func Decide(q Question) Verdict {
	for _, row := range decisionTable {
		if !row.test(q) {
			continue
		}
		v := Verdict{Create: row.create, Reason: row.reason}
		if row.create {
			v.Revision, v.Sequence = q.Source.Agreed.Revision, q.Source.Agreed.Sequence
		}
		return v
	}
	panic("decision: the last row of the table always matches")
}
