package decision

import (
	"slices"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// Outcome is what carrying a promotion out has led to, as far as is known.
type Outcome string

// Outcomes.
const (
	// OutcomeNone: not tried, under way, or failed in a way that heals.
	OutcomeNone Outcome = ""
	// OutcomeDone: there is nothing more to do but to see it rolled out.
	OutcomeDone Outcome = "Done"
	// OutcomeOpen: a pull request is open.
	OutcomeOpen Outcome = "Open"
	// OutcomeMerged: the pull request was merged.
	OutcomeMerged Outcome = "Merged"
	// OutcomeClosed: a person closed the pull request unmerged.
	OutcomeClosed Outcome = "Closed"
	// OutcomeImpossible: it cannot be carried out until somebody changes something.
	OutcomeImpossible Outcome = "Impossible"
)

// Facts are what is observed about one Promotion.
type Facts struct {
	// PipelineGone: no Pipeline of that name and UID exists.
	PipelineGone bool
	// EnvironmentGone: the Pipeline has no such environment.
	EnvironmentGone bool
	// PromotionGone: the environment has no promotion.
	PromotionGone bool
	// Newer: a promotion with a higher number exists, or existed.
	Newer bool
	// Runs: every target of the environment runs the revision, fresh and ready.
	Runs bool
	// SourceMovedOn: the source agreed on another revision.
	SourceMovedOn bool
	// EnvironmentMovedOn: the environment agreed on a revision that no promotion
	// was to bring.
	EnvironmentMovedOn bool
	// Manual: an approval is asked for.
	Manual bool
	// Approved: and given.
	Approved bool
	// Retry: spec.retry is above the one that the status is of.
	Retry bool
	// Tried: at least one attempt was begun.
	Tried bool
	// SecretChanged: the Secret that it failed with is another version by now.
	SecretChanged bool
	// Outcome of carrying it out.
	Outcome Outcome
}

// LifeReason is the reason of a phase, except those that a strategy gives to Failed.
type LifeReason string

// Reasons of phases.
const (
	PipelineDeleted    LifeReason = "PipelineDeleted"
	EnvironmentRemoved LifeReason = "EnvironmentRemoved"
	PromotionRemoved   LifeReason = "PromotionRemoved"
	NewerPromotion     LifeReason = "NewerPromotion"
	AlreadyThere       LifeReason = "AlreadyThere"
	RolledOut          LifeReason = "RolledOut"
	SourceMovedOn      LifeReason = "SourceMovedOn"
	EnvironmentMovedOn LifeReason = "EnvironmentMovedOn"
	ApprovalRequired   LifeReason = "ApprovalRequired"
	Approved           LifeReason = "Approved"
	Automatic          LifeReason = "Automatic"
	PullRequestOpened  LifeReason = "PullRequestOpened"
	PullRequestMerged  LifeReason = "PullRequestMerged"
	PullRequestClosed  LifeReason = "PullRequestClosed"
	CarriedOut         LifeReason = "CarriedOut"
	Impossible         LifeReason = "Impossible"
	Retried            LifeReason = "Retried"
	SecretChanged      LifeReason = "SecretChanged"
)

// lifeRow is one row of the life table: in one of the phases, when the test
// holds, the promotion goes to the next phase. The first row that fits wins;
// none means that it stays.
type lifeRow struct {
	from   []capstanv1.PromotionPhase
	when   string
	to     capstanv1.PromotionPhase
	reason LifeReason
	test   func(Facts) bool
}

// created is the phase of a Promotion whose life has not begun.
const created capstanv1.PromotionPhase = ""

var (
	inFlight = []capstanv1.PromotionPhase{
		created, capstanv1.PhaseAwaitingApproval, capstanv1.PhasePromoting, capstanv1.PhaseAwaitingMerge, capstanv1.PhaseAwaitingRollout,
	}
	beforeRollout = inFlight[:4]
	beforeAct     = inFlight[:2]
	finished      = []capstanv1.PromotionPhase{
		capstanv1.PhaseSucceeded, capstanv1.PhaseFailed, capstanv1.PhaseRejected, capstanv1.PhaseSuperseded,
	}
)

func in(phases ...capstanv1.PromotionPhase) []capstanv1.PromotionPhase { return phases }

var lifeTable = []lifeRow{
	{inFlight, "no Pipeline of that name and UID exists", capstanv1.PhaseSuperseded, PipelineDeleted,
		func(f Facts) bool { return f.PipelineGone }},
	{inFlight, "a promotion with a higher number exists, or existed", capstanv1.PhaseSuperseded, NewerPromotion,
		func(f Facts) bool { return f.Newer }},
	{inFlight, "the environment was taken out of the Pipeline", capstanv1.PhaseSuperseded, EnvironmentRemoved,
		func(f Facts) bool { return f.EnvironmentGone }},
	{inFlight, "every target runs the revision, and no attempt was made", capstanv1.PhaseSucceeded, AlreadyThere,
		func(f Facts) bool { return f.Runs && !f.Tried }},
	{inFlight, "every target runs the revision", capstanv1.PhaseSucceeded, RolledOut,
		func(f Facts) bool { return f.Runs }},
	{inFlight, "the source agreed on another revision", capstanv1.PhaseSuperseded, SourceMovedOn,
		func(f Facts) bool { return f.SourceMovedOn }},
	{inFlight, "the environment agreed on a revision that no promotion was to bring", capstanv1.PhaseSuperseded, EnvironmentMovedOn,
		func(f Facts) bool { return f.EnvironmentMovedOn }},
	{beforeRollout, "the promotion was taken out of the Pipeline", capstanv1.PhaseSuperseded, PromotionRemoved,
		func(f Facts) bool { return f.PromotionGone }},
	{in(created), "manual, and not approved", capstanv1.PhaseAwaitingApproval, ApprovalRequired,
		func(f Facts) bool { return f.Manual && !f.Approved }},
	{beforeAct, "manual, and approved", capstanv1.PhasePromoting, Approved,
		func(f Facts) bool { return f.Manual && f.Approved }},
	{beforeAct, "not manual", capstanv1.PhasePromoting, Automatic,
		func(f Facts) bool { return !f.Manual }},
	{in(capstanv1.PhasePromoting, capstanv1.PhaseAwaitingMerge), "the strategy says that it cannot be carried out", capstanv1.PhaseFailed, Impossible,
		func(f Facts) bool { return f.Outcome == OutcomeImpossible }},
	{in(capstanv1.PhasePromoting), "a pull request is open", capstanv1.PhaseAwaitingMerge, PullRequestOpened,
		func(f Facts) bool { return f.Outcome == OutcomeOpen }},
	{in(capstanv1.PhasePromoting, capstanv1.PhaseAwaitingMerge), "the pull request was merged", capstanv1.PhaseAwaitingRollout, PullRequestMerged,
		func(f Facts) bool { return f.Outcome == OutcomeMerged }},
	{in(capstanv1.PhasePromoting, capstanv1.PhaseAwaitingMerge), "a person closed the pull request", capstanv1.PhaseRejected, PullRequestClosed,
		func(f Facts) bool { return f.Outcome == OutcomeClosed }},
	{in(capstanv1.PhasePromoting), "it was carried out", capstanv1.PhaseAwaitingRollout, CarriedOut,
		func(f Facts) bool { return f.Outcome == OutcomeDone }},
	{finished, "spec.retry was raised, and it is still the newest", created, Retried,
		func(f Facts) bool { return f.Retry && !f.Newer && !f.PipelineGone }},
	{in(capstanv1.PhaseFailed), "the Secret that it failed with was changed, and it is still the newest", created, SecretChanged,
		func(f Facts) bool { return f.SecretChanged && !f.Newer && !f.PipelineGone }},
}

// Next returns the phase that follows, with its reason; false when the promotion
// stays where it is. Raised retries and changed Secrets lead to the empty phase, from
// which a life begins anew.
func Next(phase capstanv1.PromotionPhase, f Facts) (capstanv1.PromotionPhase, LifeReason, bool) {
	for _, row := range lifeTable {
		if slices.Contains(row.from, phase) && row.test(f) {
			return row.to, row.reason, true
		}
	}
	return phase, "", false
}
