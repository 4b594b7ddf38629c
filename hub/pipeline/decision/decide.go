package decision

import (
	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// Environment is what is known of one environment when it is decided upon.
type Environment struct {
	// Name of the environment.
	Name string
	// Targets as they were last seen.
	Targets []Target
	// Agreed is the recorded agreement (Record).
	Agreed *pipelinesv1.AgreedRevision
	// Intent of a promotion into the environment; nil when the Pipeline has none.
	Intent *Intent
	// Ledger of the promotions into the environment.
	Ledger Ledger
}

// Question is everything that Decide looks at.
type Question struct {
	// Suspended is spec.suspend of the Pipeline.
	Suspended bool
	// First environment of the Pipeline, where revisions come from.
	First Environment
	// Source is the environment before Into; it may be First.
	Source Environment
	// Into is the environment that is decided upon.
	Into Environment
}

// Verdict is the answer to a Question.
type Verdict struct {
	// Create is whether a Promotion is due.
	Create bool
	// Reason in one word: the name of the row that decided.
	Reason Reason
	// Revision and Sequence of the candidate, when Create is set.
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

// decisionRow is one row of the table: the first whose test holds decides.
type decisionRow struct {
	reason Reason
	when   string
	create bool
	why    string
	test   func(Question) bool
}

var decisionTable = []decisionRow{
	{Suspended, "the Pipeline is suspended", false,
		"A person stopped the line.",
		func(q Question) bool { return q.Suspended }},
	{NoPromotion, "the environment has no promotion", false,
		"The Pipeline only shows what runs where.",
		func(q Question) bool { return q.Into.Intent == nil }},
	{SourceNotAgreed, "the source's targets are not all fresh, ready and equal", false,
		"Mixed, unready and stale states never travel.",
		func(q Question) bool { _, ok := Agree(q.Source.Targets); return !ok || q.Source.Agreed == nil }},
	{SourceMadeByHand, "the source's revision is neither the first environment's nor what its newest succeeded promotion brought", false,
		"A state made by hand in the middle of the line does not travel.",
		func(q Question) bool { return !travels(q) }},
	{NoTargets, "the environment has no targets", false,
		"There is nowhere to promote to.",
		func(q Question) bool { return len(q.Into.Targets) == 0 }},
	{EnvironmentNotFresh, "a target of the environment is stale", false,
		"Whether it runs the candidate already is not known.",
		func(q Question) bool { return !Fresh(q.Into.Targets) }},
	{UpToDate, "every target of the environment runs the candidate", false,
		"There is nothing to do.",
		func(q Question) bool { r, ok := Agree(q.Into.Targets); return ok && r == q.Source.Agreed.Revision }},
	{IntentChanged, "the newest promotion is for this (revision, sequence), is not done, and the Pipeline's app, strategy or manual was edited", true,
		"The edit takes effect under the next number.",
		func(q Question) bool {
			n := newestForCandidate(q)
			return n != nil && (!n.Phase.Finished() || n.Phase == capstanv1.PhaseFailed) && !n.Intent.Equal(*q.Into.Intent)
		}},
	{PromotionRestored, "the newest promotion is for this (revision, sequence) and ended because the promotion or the environment was taken out of the Pipeline", true,
		"It is in the Pipeline again.",
		func(q Question) bool {
			n := newestForCandidate(q)
			return n != nil && n.Phase == capstanv1.PhaseSuperseded &&
				(n.Reason == string(PromotionRemoved) || n.Reason == string(EnvironmentRemoved))
		}},
	{AlreadyDecided, "the newest promotion is for this (revision, sequence)", false,
		"It is in flight, or it ended: once is once. spec.retry starts it again.",
		func(q Question) bool { return newestForCandidate(q) != nil }},
	{NewRevision, "otherwise", true,
		"The environment does not run the candidate and nothing was decided about it yet.",
		func(Question) bool { return true }},
}

// travels tells whether the source's agreed revision may be carried on: a fast
// first environment does not starve the last one, and what a person put into the
// middle stays there.
func travels(q Question) bool {
	if q.Source.Name == q.First.Name {
		return true
	}
	revision := q.Source.Agreed.Revision
	if q.First.Agreed != nil && q.First.Agreed.Revision == revision {
		return true
	}
	brought := q.Source.Ledger.NewestSucceeded()
	return brought != nil && brought.Revision == revision
}

// newestForCandidate is the newest promotion if it is for the candidate's
// (revision, sequence), else nil.
func newestForCandidate(q Question) *Entry {
	n := q.Into.Ledger.Newest()
	if n == nil || n.Revision != q.Source.Agreed.Revision || n.Sequence != q.Source.Agreed.Sequence || n.Source != q.Source.Name {
		return nil
	}
	return n
}

// Decide tells whether a Promotion into an environment is due.
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
	panic("decision: the last row of the table always holds")
}
