package promotions

import capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"

// PhaseText returns the phase of a promotion for users. A promotion that the hub has not
// reconciled yet has no phase.
func PhaseText(p *capstanv1.Promotion) string {
	if p.Status.Phase == "" {
		return "Created"
	}
	return string(p.Status.Phase)
}

// PhaseWord returns a phase as words for users, such as "Awaiting approval".
func PhaseWord(phase capstanv1.PromotionPhase) string {
	switch phase {
	case capstanv1.PhaseAwaitingGates:
		return "Awaiting gates"
	case capstanv1.PhaseAwaitingApproval:
		return "Awaiting approval"
	case capstanv1.PhaseAwaitingMerge:
		return "Awaiting merge"
	case capstanv1.PhaseAwaitingRollout:
		return "Awaiting rollout"
	case "":
		return "Decided"
	case capstanv1.PhasePromoting, capstanv1.PhaseVerifying, capstanv1.PhaseSucceeded, capstanv1.PhaseFailed, capstanv1.PhaseRejected, capstanv1.PhaseSuperseded:
	}
	return string(phase)
}
