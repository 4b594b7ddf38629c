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
