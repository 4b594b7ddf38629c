package decision

import (
	"slices"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/internal/revision"
)

// Environment is the state of one environment at the time of the decision.
type Environment struct {
	// Name of the environment.
	Name string
	// Fleet are its targets as last observed.
	Fleet
	// Agreed is the recorded agreement (Record).
	Agreed *pipelinesv1.AgreedRevision
	// Intent of a promotion into the environment; nil if the Pipeline configures none.
	Intent *Intent
	// Verified is whether a revision must be verified in the environment before it is promoted further.
	Verified bool
	// Rollback says what happens when a revision failed in the environment.
	Rollback RollbackRules
	// ApprovedBefore is set for the later waves of an environment whose first wave needs an approval: they need none of
	// their own, and get only what was promoted into the wave before.
	ApprovedBefore bool
	// Wave is whether the environment is a wave of another one.
	Wave bool
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
	// SameOrigin is whether the newest promotion into the environment, which names another
	// agreement, is for the same roll-out as the candidate. The line was edited since, or the
	// Pipeline was created again.
	SameOrigin bool
	// HeldBefore is whether a rollback or a request keeps the candidate out that names another source: the
	// line was edited since.
	HeldBefore bool
	// WaveChanged is whether the newest promotion can still be carried out, is a rollback or by request or failed, and a cluster of
	// its wave belongs to another wave of the environment now or, if it failed, to none.
	WaveChanged bool
	// FailedInWave is the environment, a wave of the same environment as Into, in which the candidate failed or from which it was
	// taken out (FailedInWave); empty if there is none.
	FailedInWave string
	// ApprovedInWave is whether the first wave got the candidate with the approval that is for all waves.
	ApprovedInWave bool
	// Ahead is whether the environment got a later revision than the candidate, from an
	// environment that is not its source any more.
	Ahead bool
	// Rejected is whether spec.reject of the Pipeline contains the candidate.
	Rejected bool
	// Soaking is whether the candidate has not soaked in the source yet as long as the gates of the
	// environment require.
	Soaking bool
	// Qualified is whether the newest promotion is in flight and its revision has soaked, and the
	// source did not go back since.
	Qualified bool
	// Request is the PromotionRequest for the environment that is due; nil if none is.
	Request *Request
	// RollbackTo is the promotion that succeeded before the newest one, with another revision that is not
	// rejected; nil if there is none.
	RollbackTo *Entry
}

// Verdict is the answer to a Question.
type Verdict struct {
	// Create is whether a Promotion is due.
	Create bool
	// Reason is the name of the row that decided.
	Reason Reason
	// Revision to promote, and Sequence of the candidate, if Create is set. Sequence is 0 for a request
	// and a rollback.
	Revision string
	Sequence int64
	// Hold is the sequence of the source up to which the promotion keeps other revisions out; 0 for none.
	Hold int64
	// RollbackOf is the promotion that is rolled back; nil if the promotion is no rollback.
	RollbackOf *Entry
	// Replaces is the rollback or the promotion by request that is created again with the present intent; nil
	// if none is.
	Replaces *Entry
}

// IsRollback returns whether a rollback is due, or one that is created again.
func (v Verdict) IsRollback() bool {
	return v.Create && (v.RollbackOf != nil || v.Replaces != nil && v.Replaces.Rollback())
}

// Reason names a row of the decision table.
type Reason string

// Rows of the decision table.
const (
	Suspended           Reason = "Suspended"
	NoPromotion         Reason = "NoPromotion"
	SourceNotAgreed     Reason = "SourceNotAgreed"
	SourceMadeByHand    Reason = "SourceMadeByHand"
	SourceNotVerified   Reason = "SourceNotVerified"
	SourceHeld          Reason = "SourceHeld"
	FailedInAWave       Reason = "FailedInWave"
	ClustersNotKnown    Reason = "ClustersNotKnown"
	Requested           Reason = "Requested"
	RolledBack          Reason = "RolledBack"
	Reissued            Reason = "Reissued"
	Busy                Reason = "Busy"
	Held                Reason = "Held"
	NoTargets           Reason = "NoTargets"
	EnvironmentNotFresh Reason = "EnvironmentNotFresh"
	TargetsJoined       Reason = "TargetsJoined"
	UpToDate            Reason = "UpToDate"
	CandidateRejected   Reason = "RevisionRejected"
	NotVerified         Reason = "NotVerified"
	IntentChanged       Reason = "IntentChanged"
	PromotionRestored   Reason = "PromotionRestored"
	AlreadyDecided      Reason = "AlreadyDecided"
	EnvironmentAhead    Reason = "EnvironmentAhead"
	KeepsQualified      Reason = "KeepsQualified"
	EnvironmentAtWork   Reason = "EnvironmentAtWork"
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
	{ClustersNotKnown, "the environment is a wave, and it is not known which clusters are selected", false,
		"A promotion into a wave changes the manifests of its clusters: of all of them, or none.",
		func(q Question) bool { return q.Into.Wave && q.Into.Unknown }},
	{Requested, "a PromotionRequest for the environment is due, and the environment has targets", true,
		"A user requested the promotion. What the source runs does not matter.",
		func(q Question) bool { return q.Request != nil && len(q.Into.Targets) > 0 }},
	{RolledBack, "the newest promotion failed in the environment, is no rollback, and spec.rollback permits one", true,
		"The last revision that succeeded before is promoted again, once.",
		func(q Question) bool { to, why := Rollback(q); return to != nil && why == "" }},
	{Reissued, "the newest promotion is a rollback or by request, was not carried out, is in flight or failed before it arrived, and the Pipeline's strategy or manual was edited, or a cluster of its wave belongs to another wave now or, if it failed, to none", true,
		"The edit takes effect with the next number. The revision, the request and the hold stay.",
		func(q Question) bool {
			n := q.Into.Ledger.Newest()
			return n != nil && !n.Former && n.OutOfTurn() && n.Intent.App == q.Into.Intent.App && len(q.Into.Targets) > 0 && (isEdited(n, q) || q.WaveChanged)
		}},
	{Busy, "the newest promotion is Verifying, or is a rollback or by request and in flight, for the application that the Pipeline names", false,
		"A verification ends with a verdict, and a rollback or a request is carried out: another revision of the source does not replace it.",
		func(q Question) bool {
			n := q.Into.Ledger.Newest()
			return n != nil && !n.Former && n.Intent.App == q.Into.Intent.App &&
				(n.Phase == capstanv1.PhaseVerifying || n.OutOfTurn() && !n.Phase.Finished())
		}},
	{Held, "a rollback or a request holds the environment, and the source did not agree on another revision since", false,
		"What the source runs was replaced on purpose.",
		held},
	{SourceNotAgreed, "the source's targets, or those of its quorum, are not fresh, ready and equal", false,
		"Mixed, unready and stale states are never promoted.",
		func(q Question) bool { _, ok := q.Source.Agree(); return !ok || q.Source.Agreed == nil }},
	{SourceMadeByHand, "the source's revision is neither that of the first environment nor that of the last promotion that was carried out into it; for the later waves of an environment that needs approvals, instead of the former: nor that of the last ones into the first wave, of which one had its approval", false,
		"A revision that was changed outside the pipeline is not promoted, nor does it pass an approval.",
		func(q Question) bool { return !promotable(q) }},
	{SourceHeld, "the source is being rolled back, or its revision came there by a rollback or by request, and the first environment does not run it", false,
		"What is taken out of one environment, and an exception in it, is not promoted to the next one.",
		func(q Question) bool {
			brought := q.Source.Ledger.LastBrought()
			return q.Source.Ledger.rollsBack() != nil || !ofFirst(q) && brought != nil && brought.OutOfTurn()
		}},
	{SourceNotVerified, "the source has a verification, and the last promotion that arrived there is not for its revision or was not verified", false,
		"A revision that was not verified, or that failed, is not promoted further.",
		func(q Question) bool {
			return q.Source.Verified && !q.Source.Ledger.verified(q.Into.Intent.App, q.Source.Agreed.Revision)
		}},
	{FailedInAWave, "the candidate failed in another wave of the environment, or was taken out of it, or the clusters of that wave left before they had verified it, and that wave is before this one, or has no clusters or does not exist any more", false,
		"A wave that fails stops those behind it, also when its clusters leave it or the waves are edited.",
		func(q Question) bool { return q.FailedInWave != "" }},
	{NoTargets, "the environment has no targets", false,
		"There is no target to promote to.",
		func(q Question) bool { return len(q.Into.Targets) == 0 }},
	{EnvironmentNotFresh, "a target of the environment is stale, or more of them than its quorum permits", false,
		"It is unknown whether the environment already runs the candidate.",
		func(q Question) bool { return !q.Into.Fresh() }},
	{TargetsJoined, "the environment is a wave, a cluster joined it after the newest promotion for this roll-out was created, is not Joining any more, and does not show the candidate, ready or at work, which that promotion brought to the others, or did not bring only because of the cluster, or because the others left", true,
		"The promotion did not change the manifests of that cluster. The new one changes them.",
		func(q Question) bool { return !q.Rejected && joined(q) }},
	{UpToDate, "every target of the environment, or its quorum, runs the candidate, and the environment has no verification, has verified it, or has a promotion for this roll-out that is in flight or failed; except a wave whose newest promotion is for this roll-out and was not carried out, with a cluster that does not run the candidate", false,
		"There is nothing to do, or to verify.",
		func(q Question) bool { return runsCandidate(q) && !unverified(q) && !owed(q) }},
	{CandidateRejected, "spec.reject of the Pipeline contains the candidate", false,
		"A user rejected the revision.",
		func(q Question) bool { return q.Rejected }},
	{NotVerified, "every target of the environment, or its quorum, runs the candidate, and the environment has a verification", true,
		"The candidate came there by hand or before the verification was set, or its promotion was superseded before the verification ended. The new one only verifies it.",
		func(q Question) bool { return runsCandidate(q) && unverified(q) }},
	{IntentChanged, "the newest promotion is for this roll-out, was not carried out, is in flight or failed before it arrived, and the Pipeline's strategy or manual was edited", true,
		"The edit takes effect with the next number.",
		func(q Question) bool {
			n := newestForCandidate(q)
			return n != nil && isEdited(n, q)
		}},
	{PromotionRestored, "the newest promotion is for this roll-out and was not carried out, because the promotion, the environment or its source was removed from the line, the Pipeline was deleted, or the revision was rejected and is not any more, or the clusters of the wave changed; or it failed before it arrived, and a cluster of its wave belongs to another wave now or to none", true,
		"The environment is in the line again, or still, and does not have the revision.",
		func(q Question) bool {
			n := newestForCandidate(q)
			return n != nil && !n.CarriedOut && (endedByEdit(n) || (n.Former || q.WaveChanged) && failedBefore(n))
		}},
	{AlreadyDecided, "the newest promotion is for this roll-out", false,
		"It is in flight, or it ended. A candidate is promoted once; spec.retry repeats it.",
		func(q Question) bool { return newestForCandidate(q) != nil }},
	{EnvironmentAhead, "a later revision was carried out into the environment, from an environment that is not its source any more", false,
		"The line was edited, and what the source runs is older. Its next revision is promoted.",
		func(q Question) bool { return q.Ahead }},
	{KeepsQualified, "the candidate soaks, and the newest promotion is in flight with a revision that has soaked", false,
		"A source that changes often would otherwise starve the environment. The candidate replaces it when it has soaked.",
		func(q Question) bool { return q.Soaking && q.Qualified }},
	{EnvironmentAtWork, "every target of the environment, or its quorum, shows the candidate, and those of them that are not ready are at work; and the last promotion that was carried out into it, if there is one, was for the candidate", false,
		"The environment has the candidate: a controller also is at work when it only compares what is there. There is nothing to bring.",
		func(q Question) bool {
			last := q.Into.Ledger.lastCarriedOut()
			return q.Into.Shown(q.Source.Agreed.Revision) && (last == nil || revision.Same(last.Revision, q.Source.Agreed.Revision))
		}},
	{NewRevision, "otherwise", true,
		"The environment does not run the candidate, and no promotion exists for it yet.",
		func(Question) bool { return true }},
}

// joined returns whether a cluster joined a wave too late for the newest promotion. If that ended because the environment agreed on
// another revision, only clusters that joined may run another one: else a user changed the others.
func joined(q Question) bool {
	n := newestForCandidate(q)
	if n == nil || n.Clusters == nil {
		return false
	}
	superseded := func(why PhaseReason) bool { return n.Phase == capstanv1.PhaseSuperseded && n.Reason == string(why) }
	movedOn, othersLeft := superseded(EnvironmentMovedOn), n.CarriedOut && superseded(EnvironmentRemoved)
	if n.Phase != capstanv1.PhaseSucceeded && n.Phase != capstanv1.PhaseAwaitingRollout && !movedOn && !othersLeft {
		return false
	}
	found := false
	for _, t := range q.Into.Targets {
		if t.Standing.LeftOut() || !t.Fresh || t.Cluster == "" || t.Shows(q.Source.Agreed.Revision) {
			continue
		}
		_, member := slices.BinarySearch(n.Clusters, t.Cluster)
		if member && movedOn {
			return false
		}
		found = found || !member
	}
	return found
}

// owed returns whether the newest promotion into a wave was to bring the candidate to a cluster that does not run it, and
// was not carried out. The quorum may run the candidate without that cluster.
func owed(q Question) bool {
	n := newestForCandidate(q)
	return n != nil && n.Clusters != nil && !n.CarriedOut && q.Into.Elsewhere(q.Source.Agreed.Revision, nil)
}

// promotable returns whether the source's agreed revision may be promoted further. A fast
// first environment does not starve the last one. A revision that a user put into a
// middle environment stays there. In the later waves of an environment that needs approvals, the revision must have had one.
func promotable(q Question) bool {
	if !q.Into.ApprovedBefore && ofFirst(q) || q.Into.ApprovedBefore && q.ApprovedInWave {
		return true
	}
	if q.Into.ApprovedBefore {
		return q.Source.Ledger.hasPermitted(q.Into.Intent.App, q.Source.Agreed.Revision)
	}
	brought := q.Source.Ledger.LastBrought()
	return brought != nil && revision.Same(brought.Revision, q.Source.Agreed.Revision)
}

// runsCandidate returns whether the environment runs the candidate.
func runsCandidate(q Question) bool {
	r, ok := q.Into.Agree()
	return ok && revision.Same(r, q.Source.Agreed.Revision)
}

// unverified returns whether the environment has a verification, has not verified the candidate, and no
// promotion for this roll-out will verify it or has failed to.
func unverified(q Question) bool {
	if !q.Into.Verified || q.Into.Ledger.verified(q.Into.Intent.App, q.Source.Agreed.Revision) {
		return false
	}
	n := newestForCandidate(q)
	return n == nil || n.Former || n.Phase.Finished() && n.Phase != capstanv1.PhaseFailed
}

// failedBefore returns whether a promotion failed before it was carried out.
func failedBefore(n *Entry) bool {
	return n.Phase == capstanv1.PhaseFailed && !FailedInEnvironment(n.Phase, n.Reason)
}

// isEdited returns whether a promotion can still be carried out, and its strategy, or whether it needs an
// approval, was edited since it was created.
func isEdited(n *Entry, q Question) bool {
	return actsLater(n) && !n.Intent.Equal(*q.Into.Intent)
}

// actsLater returns whether a promotion was not carried out, and still can be.
func actsLater(n *Entry) bool {
	return !n.CarriedOut && (!n.Phase.Finished() || failedBefore(n))
}

// ofFirst returns whether the candidate is what the first environment runs.
func ofFirst(q Question) bool {
	return q.Source.Name == q.First.Name || q.First.Agreed != nil && revision.Same(q.First.Agreed.Revision, q.Source.Agreed.Revision)
}

// newestForCandidate returns the newest promotion if it is for the candidate's roll-out,
// else nil. That is one for the same application, revision, source and sequence, or, if the
// line was edited since, one that has its origin in the same agreement.
//
// A request that was withdrawn does not hide what was decided before it. If it was for the candidate, and a
// user closed its pull request, that is a decision about the candidate.
func newestForCandidate(q Question) *Entry {
	if n := q.Into.Ledger.Newest(); n != nil && !n.Former && n.Request != "" && n.Phase == capstanv1.PhaseRejected && n.Intent.App == q.Into.Intent.App &&
		n.Source == q.Source.Name && n.Hold >= q.Source.Agreed.Sequence && revision.Same(n.Revision, q.Source.Agreed.Revision) {
		return n
	}
	n := q.Into.Ledger.newestThatCounts()
	if n == nil || n.Intent.App != q.Into.Intent.App || !revision.Same(n.Revision, q.Source.Agreed.Revision) {
		return nil
	}
	if q.SameOrigin || n.Source == q.Source.Name && n.Sequence == q.Source.Agreed.Sequence {
		return n
	}
	return nil
}

// endedByEdit returns whether a promotion ended because the line or the Pipeline changed, and
// not because of its revision. SourceMovedOn counts: the source at that time was another
// environment, or the status of the Pipeline was lost since.
func endedByEdit(n *Entry) bool {
	if n.Phase != capstanv1.PhaseSuperseded {
		return false
	}
	switch PhaseReason(n.Reason) { //nolint:exhaustive // The others are not edits.
	case PromotionRemoved, EnvironmentRemoved, PipelineDeleted, SourceChanged, SourceMovedOn, SourceFailed, WaveChanged, RevisionRejected:
		return true
	default:
		return false
	}
}

// Decide returns whether a Promotion into an environment is due.
func Decide(q Question) Verdict {
	for _, row := range decisionTable {
		if !row.test(q) {
			continue
		}
		v := Verdict{Create: row.create, Reason: row.reason}
		switch {
		case !row.create:
		case row.reason == Requested:
			v.Revision, v.RollbackOf, v.Hold = q.Request.Revision, q.Request.RollbackOf, q.Into.Ledger.Hold(q.Source.Name)
			if q.Source.Agreed != nil {
				v.Hold = max(v.Hold, q.Source.Agreed.Sequence)
			}
		case row.reason == Reissued:
			n := q.Into.Ledger.Newest()
			v.Revision, v.Hold, v.Replaces = n.Revision, n.Hold, n
		case row.reason == RolledBack:
			n := q.Into.Ledger.Newest()
			v.Revision, v.RollbackOf, v.Hold = q.RollbackTo.Revision, n, max(q.Into.Ledger.Hold(q.Source.Name), n.Sequence)
		default:
			v.Revision, v.Sequence = q.Source.Agreed.Revision, q.Source.Agreed.Sequence
		}
		return v
	}
	panic("decision: the last row of the table always matches")
}
