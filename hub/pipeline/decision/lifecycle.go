package decision

import (
	"slices"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/verify"
)

// Outcome is the known result of carrying out a promotion.
type Outcome string

// Outcomes.
const (
	// OutcomeNone: not tried, under way, or failed temporarily.
	OutcomeNone Outcome = ""
	// OutcomeDone: the strategy is done; the roll-out follows.
	OutcomeDone Outcome = "Done"
	// OutcomeUnchanged: the revision brings nothing new; nothing was done.
	OutcomeUnchanged Outcome = "Unchanged"
	// OutcomeOpen: a pull request is open.
	OutcomeOpen Outcome = "Open"
	// OutcomeMerged: the pull request was merged.
	OutcomeMerged Outcome = "Merged"
	// OutcomeClosed: a person closed the pull request unmerged.
	OutcomeClosed Outcome = "Closed"
	// OutcomeImpossible: it cannot be carried out until a user changes something.
	OutcomeImpossible Outcome = "Impossible"
)

// Facts are what is observed about one Promotion.
type Facts struct {
	// PipelineDeleted: no Pipeline of that name and UID exists.
	PipelineDeleted bool
	// EnvironmentRemoved: the Pipeline has no such environment.
	EnvironmentRemoved bool
	// PromotionRemoved: the environment has no promotion.
	PromotionRemoved bool
	// SourceFailed: the last verdict about the revision in its source is a bad one, or it is being rolled back
	// there.
	SourceFailed bool
	// SourceChanged: the environment before this one in the Pipeline is not the source of
	// the promotion, because an environment was inserted, removed, renamed or moved.
	SourceChanged bool
	// WaveChanged: a cluster of its wave belongs to another wave of the environment now or, if it failed, to none. False for a rollback and a
	// promotion by request, which Decide replaces (Reissued).
	WaveChanged bool
	// RequestDeleted: the PromotionRequest that caused it was deleted.
	RequestDeleted bool
	// Rejected: spec.reject of the Pipeline contains the revision.
	Rejected bool
	// RunRejected: a user rejected this run.
	RunRejected bool
	// Newer: a promotion with a higher number exists, or existed.
	Newer bool
	// Runs: every target of the environment, or its quorum, runs the revision, fresh and ready. Before the promotion
	// was carried out, a quorum is not enough for a wave: every cluster that it is for must run it.
	Runs bool
	// SourceMovedOn: the source agreed on another revision, and this one has not soaked there, or
	// the source went back. Without a soak, each has.
	SourceMovedOn bool
	// EnvironmentMovedOn: the environment agreed on a revision that no promotion is for.
	EnvironmentMovedOn bool
	// GateClosed: a gate of the environment is closed.
	GateClosed bool
	// Begun: an attempt was made, or there is a pull request. Its steps wait for the gates one
	// by one.
	Begun bool
	// Opened: there is a pull request.
	Opened bool
	// Manual: an approval is required.
	Manual bool
	// Approved: the approval of this run was given.
	Approved bool
	// Retry: spec.retry was raised after the end of the run that the status is about.
	Retry bool
	// Tried: at least one attempt was started.
	Tried bool
	// SecretChanged: the Secret with which it failed has another version now.
	SecretChanged bool
	// MaybeSent: an attempt that cannot be undone was started, and its outcome is not known,
	// because the process ended. The same attempt is repeated before the promotion may end,
	// so that its record says whether it was carried out.
	MaybeSent bool
	// Verification: the environment has a verification.
	Verification bool
	// Judged: it failed because of what was observed in the environment, and not before.
	Judged bool
	// Verdict about the roll-out or the verification.
	Verdict verify.Verdict
	// Outcome of carrying it out.
	Outcome Outcome
}

// waits returns whether a promotion that has done nothing yet waits for its gates.
func (f Facts) waits() bool { return f.GateClosed && !f.Begun }

// PhaseReason is the reason of a phase, except those that a strategy gives to Failed.
type PhaseReason string

// Reasons of phases.
const (
	PipelineDeleted    PhaseReason = "PipelineDeleted"
	EnvironmentRemoved PhaseReason = "EnvironmentRemoved"
	PromotionRemoved   PhaseReason = "PromotionRemoved"
	NewerPromotion     PhaseReason = "NewerPromotion"
	AlreadyThere       PhaseReason = "AlreadyThere"
	RolledOut          PhaseReason = "RolledOut"
	SourceMovedOn      PhaseReason = "SourceMovedOn"
	SourceChanged      PhaseReason = "SourceChanged"
	SourceFailed       PhaseReason = "SourceFailed"
	WaveChanged        PhaseReason = "WaveChanged"
	RequestDeleted     PhaseReason = "RequestDeleted"
	EnvironmentMovedOn PhaseReason = "EnvironmentMovedOn"
	RevisionRejected   PhaseReason = "RevisionRejected"
	RejectedByUser     PhaseReason = "RejectedByUser"
	GateClosed         PhaseReason = "GateClosed"
	ApprovalRequired   PhaseReason = "ApprovalRequired"
	Approved           PhaseReason = "Approved"
	Automatic          PhaseReason = "Automatic"
	PullRequestOpened  PhaseReason = "PullRequestOpened"
	PullRequestMerged  PhaseReason = "PullRequestMerged"
	MergedWhileClosed  PhaseReason = "MergedWhileClosed"
	PullRequestClosed  PhaseReason = "PullRequestClosed"
	CarriedOut         PhaseReason = "CarriedOut"
	NothingNew         PhaseReason = "NothingNew"
	Impossible         PhaseReason = "Impossible"
	Retried            PhaseReason = "Retried"
	SecretChanged      PhaseReason = "SecretChanged"
	RolloutDeadline    PhaseReason = "RolloutDeadline"
	Verified           PhaseReason = "Verified"
	Degraded           PhaseReason = "Degraded"
	VerificationFailed PhaseReason = "VerificationFailed"
	Inconclusive       PhaseReason = "Inconclusive"
)

// FailedInEnvironment returns whether a promotion in a phase and its reason failed because of what was
// observed in the environment. Nothing is left to carry out then: another attempt changes nothing.
func FailedInEnvironment(phase capstanv1.PromotionPhase, reason string) bool {
	return phase == capstanv1.PhaseFailed && (reason == string(RolloutDeadline) || judged(reason))
}

// judged returns whether a reason is that of a verification that failed.
func judged(reason string) bool {
	return reason == string(Degraded) || reason == string(VerificationFailed) || reason == string(Inconclusive)
}

// Judged returns whether a promotion in a phase and its reason was verified without success.
func Judged(phase capstanv1.PromotionPhase, reason string) bool {
	return phase == capstanv1.PhaseFailed && judged(reason)
}

// lifecycleRow is one row of the lifecycle table. A promotion in one of the phases of
// from enters the phase to if the test is true. The first matching row decides; if none
// matches, the phase stays.
type lifecycleRow struct {
	from   []capstanv1.PromotionPhase
	when   string
	to     capstanv1.PromotionPhase
	reason PhaseReason
	test   func(Facts) bool
}

// created is the phase of a Promotion that has entered no phase yet.
const created capstanv1.PromotionPhase = ""

var (
	inFlight = []capstanv1.PromotionPhase{
		created, capstanv1.PhaseAwaitingGates, capstanv1.PhaseAwaitingApproval, capstanv1.PhasePromoting,
		capstanv1.PhaseAwaitingMerge, capstanv1.PhaseAwaitingRollout, capstanv1.PhaseVerifying,
	}
	beforeVerifying = inFlight[:6]
	beforeRollout   = inFlight[:5]
	beforeAct       = inFlight[:3]
	finished        = []capstanv1.PromotionPhase{
		capstanv1.PhaseSucceeded, capstanv1.PhaseFailed, capstanv1.PhaseRejected, capstanv1.PhaseSuperseded,
	}
)

func in(phases ...capstanv1.PromotionPhase) []capstanv1.PromotionPhase { return phases }

var lifecycleTable = []lifecycleRow{
	{inFlight, "no Pipeline of that name and UID exists, and no attempt may have been delivered unnoticed", capstanv1.PhaseSuperseded, PipelineDeleted,
		func(f Facts) bool { return f.PipelineDeleted && !f.MaybeSent }},
	{inFlight, "a promotion with a higher number exists, or existed", capstanv1.PhaseSuperseded, NewerPromotion,
		func(f Facts) bool { return f.Newer }},
	{inFlight, "the environment was removed from the Pipeline, and no attempt may have been delivered unnoticed", capstanv1.PhaseSuperseded, EnvironmentRemoved,
		func(f Facts) bool { return f.EnvironmentRemoved && !f.MaybeSent }},
	{beforeVerifying, "every target runs the revision, and the environment has a verification", capstanv1.PhaseVerifying, RolledOut,
		func(f Facts) bool { return f.Runs && f.Verification }},
	{beforeVerifying, "every target runs the revision, and no attempt was made", capstanv1.PhaseSucceeded, AlreadyThere,
		func(f Facts) bool { return f.Runs && !f.Tried }},
	{beforeVerifying, "every target runs the revision", capstanv1.PhaseSucceeded, RolledOut,
		func(f Facts) bool { return f.Runs }},
	{beforeVerifying, "the source agreed on another revision, and the revision has not soaked there or the source went back", capstanv1.PhaseSuperseded, SourceMovedOn,
		func(f Facts) bool { return f.SourceMovedOn }},
	{beforeVerifying, "the environment agreed on a revision that no promotion is for", capstanv1.PhaseSuperseded, EnvironmentMovedOn,
		func(f Facts) bool { return f.EnvironmentMovedOn }},
	{beforeRollout, "the promotion was removed from the Pipeline, and no attempt may have been delivered unnoticed", capstanv1.PhaseSuperseded, PromotionRemoved,
		func(f Facts) bool { return f.PromotionRemoved && !f.MaybeSent }},
	{beforeRollout, "another environment is the source now, and no attempt may have been delivered unnoticed", capstanv1.PhaseSuperseded, SourceChanged,
		func(f Facts) bool { return f.SourceChanged && !f.MaybeSent }},
	{beforeRollout, "the revision failed in the verification of the source or is being rolled back there, and no attempt may have been delivered unnoticed", capstanv1.PhaseSuperseded, SourceFailed,
		func(f Facts) bool { return f.SourceFailed && !f.MaybeSent }},
	{beforeRollout, "a cluster of its wave belongs to another wave of the environment now", capstanv1.PhaseSuperseded, WaveChanged,
		func(f Facts) bool { return f.WaveChanged }},
	{beforeRollout, "the PromotionRequest that caused it was deleted, and no attempt may have been delivered unnoticed", capstanv1.PhaseSuperseded, RequestDeleted,
		func(f Facts) bool { return f.RequestDeleted && !f.MaybeSent }},
	{beforeRollout, "spec.reject of the Pipeline contains the revision, and no attempt may have been delivered unnoticed", capstanv1.PhaseSuperseded, RevisionRejected,
		func(f Facts) bool { return f.Rejected && !f.MaybeSent }},
	{beforeAct, "a user rejected this run, and nothing was done outside", capstanv1.PhaseRejected, RejectedByUser,
		func(f Facts) bool { return f.RunRejected && !f.Begun }},
	{in(created, capstanv1.PhaseAwaitingApproval, capstanv1.PhasePromoting), "a gate is closed, and nothing was done outside", capstanv1.PhaseAwaitingGates, GateClosed,
		Facts.waits},
	{in(created, capstanv1.PhaseAwaitingGates), "all gates are open, manual, and this run is not approved", capstanv1.PhaseAwaitingApproval, ApprovalRequired,
		func(f Facts) bool { return f.Manual && !f.Approved && !f.waits() }},
	{beforeAct, "all gates are open, manual, and this run is approved", capstanv1.PhasePromoting, Approved,
		func(f Facts) bool { return f.Manual && f.Approved && !f.waits() }},
	{beforeAct, "all gates are open, and not manual", capstanv1.PhasePromoting, Automatic,
		func(f Facts) bool { return !f.Manual && !f.waits() }},
	{in(capstanv1.PhasePromoting, capstanv1.PhaseAwaitingMerge), "the strategy reports that it cannot be carried out", capstanv1.PhaseFailed, Impossible,
		func(f Facts) bool { return f.Outcome == OutcomeImpossible }},
	{in(capstanv1.PhasePromoting), "a pull request is open", capstanv1.PhaseAwaitingMerge, PullRequestOpened,
		func(f Facts) bool { return f.Outcome == OutcomeOpen }},
	{in(capstanv1.PhaseAwaitingMerge), "the pull request was merged while a gate was closed", capstanv1.PhaseAwaitingRollout, MergedWhileClosed,
		func(f Facts) bool { return f.Outcome == OutcomeMerged && f.GateClosed }},
	{in(capstanv1.PhasePromoting, capstanv1.PhaseAwaitingMerge), "the pull request was merged", capstanv1.PhaseAwaitingRollout, PullRequestMerged,
		func(f Facts) bool { return f.Outcome == OutcomeMerged }},
	{in(capstanv1.PhasePromoting, capstanv1.PhaseAwaitingMerge), "a user closed the pull request", capstanv1.PhaseRejected, PullRequestClosed,
		func(f Facts) bool { return f.Outcome == OutcomeClosed }},
	{in(capstanv1.PhasePromoting, capstanv1.PhaseAwaitingMerge, capstanv1.PhaseFailed), "the revision differs from what Git has only in what promotions wrote", capstanv1.PhaseSuperseded, NothingNew,
		func(f Facts) bool { return f.Outcome == OutcomeUnchanged }},
	{in(capstanv1.PhasePromoting), "it was carried out", capstanv1.PhaseAwaitingRollout, CarriedOut,
		func(f Facts) bool { return f.Outcome == OutcomeDone }},
	{in(capstanv1.PhasePromoting), "a gate is closed, and a pull request is open since before the Secret was changed", capstanv1.PhaseAwaitingMerge, PullRequestOpened,
		func(f Facts) bool { return f.Outcome == OutcomeNone && f.GateClosed && f.Opened }},
	{in(capstanv1.PhaseAwaitingRollout), "the roll-out took longer than its deadline", capstanv1.PhaseFailed, RolloutDeadline,
		func(f Facts) bool { return f.Verdict == verify.Late }},
	{in(capstanv1.PhaseVerifying), "the environment has no verification any more", capstanv1.PhaseSucceeded, RolledOut,
		func(f Facts) bool { return !f.Verification }},
	{in(capstanv1.PhaseVerifying), "a check failed as often in sequence as it may not", capstanv1.PhaseFailed, VerificationFailed,
		func(f Facts) bool { return f.Verdict == verify.ChecksFailed }},
	{in(capstanv1.PhaseVerifying), "the environment was healthy for long enough, and all checks have passed", capstanv1.PhaseSucceeded, Verified,
		func(f Facts) bool { return f.Verdict == verify.Verified }},
	{in(capstanv1.PhaseVerifying), "a target was not ready, or ran another revision, for longer than tolerated", capstanv1.PhaseFailed, Degraded,
		func(f Facts) bool { return f.Verdict == verify.Degraded }},
	{in(capstanv1.PhaseVerifying), "the deadline passed without another verdict", capstanv1.PhaseFailed, Inconclusive,
		func(f Facts) bool { return f.Verdict == verify.Inconclusive }},
	{finished, "spec.retry was raised since it ended, and it is still the newest", created, Retried,
		func(f Facts) bool { return f.Retry && !f.Newer && !f.PipelineDeleted }},
	{in(capstanv1.PhaseFailed), "every target runs the revision, the environment has a verification in which it did not fail, and it is still the newest", capstanv1.PhaseVerifying, RolledOut,
		func(f Facts) bool {
			return f.Runs && f.Verification && !f.Judged && !f.Newer && !f.PipelineDeleted
		}},
	{in(capstanv1.PhaseFailed), "every target runs the revision, the environment has no verification, and it is still the newest", capstanv1.PhaseSucceeded, RolledOut,
		func(f Facts) bool { return f.Runs && !f.Verification && !f.Newer && !f.PipelineDeleted }},
	{in(capstanv1.PhaseFailed), "another try found or opened a pull request", capstanv1.PhaseAwaitingMerge, PullRequestOpened,
		func(f Facts) bool { return f.Outcome == OutcomeOpen }},
	{in(capstanv1.PhaseFailed), "the pull request was merged", capstanv1.PhaseAwaitingRollout, PullRequestMerged,
		func(f Facts) bool { return f.Outcome == OutcomeMerged }},
	{in(capstanv1.PhaseFailed), "a user closed the pull request", capstanv1.PhaseRejected, PullRequestClosed,
		func(f Facts) bool { return f.Outcome == OutcomeClosed }},
	{in(capstanv1.PhaseFailed), "another try carried it out", capstanv1.PhaseAwaitingRollout, CarriedOut,
		func(f Facts) bool { return f.Outcome == OutcomeDone }},
	{in(capstanv1.PhaseFailed), "the Secret with which it failed was changed, and it is still the newest", created, SecretChanged,
		func(f Facts) bool { return f.SecretChanged && !f.Newer && !f.PipelineDeleted }},
}

// Next returns the next phase with its reason, and true; false if the promotion stays in
// its phase. A raised spec.retry and a changed Secret lead to the empty phase, from which
// the lifecycle starts again.
func Next(phase capstanv1.PromotionPhase, f Facts) (capstanv1.PromotionPhase, PhaseReason, bool) {
	for _, row := range lifecycleTable {
		if slices.Contains(row.from, phase) && row.test(f) {
			return row.to, row.reason, true
		}
	}
	return phase, "", false
}
