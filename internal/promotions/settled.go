package promotions

import (
	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// HasFormerNames returns whether an earlier version of the hub wrote the times of a promotion.
func HasFormerNames(p *capstanv1.Promotion) bool {
	return p.Status.FormerStartedAt != nil || p.Status.FormerFinishedAt != nil //nolint:staticcheck // Only to drop them.
}

// Settled returns whether a promotion has ended and nothing is left to do for it: nothing
// that is observed changes it any more, and only a change of its spec does. A promotion
// that failed or was rejected is never settled, because it may start again or turn out to
// have arrived. Its cached object may be stripped (Strip): nothing that was read of it is written.
func Settled(p *capstanv1.Promotion) bool {
	s := &p.Status
	switch {
	case s.Phase != capstanv1.PhaseSucceeded && s.Phase != capstanv1.PhaseSuperseded,
		s.ObservedGeneration != p.Generation, // A retry or an approval, which the hub has not read yet.
		s.FinishTime == nil,
		HasFormerNames(p), // It is written once more, under the present names.
		!p.DeletionTimestamp.IsZero():
		return false
	case p.Spec.Strategy.PullRequest == nil, s.Withdrawn:
		return true
	default: // A pull request of an attempt may be open.
		return s.Attempt == nil && s.PullRequest == nil && s.Retry == 0
	}
}
