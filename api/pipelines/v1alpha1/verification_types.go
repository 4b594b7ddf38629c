package v1alpha1

// Verification is what a revision must prove in an environment after it was rolled out there. Until
// then the promotion is in the phase Verifying, and the revision is not promoted further. A revision
// that fails is not promoted further at all.
//
// It is read when it is needed, as gates are, and the durations are texts as in gates. Time in which a
// target could not be observed, or its controller was at work on it, counts to none of them.
type Verification struct {
	// For is how long, in total, every target of the environment must be ready with the
	// revision: from 0s to 744h, in whole seconds. With 0s, the default, it is enough that every
	// target runs it once.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	For string `json:"for,omitempty"`

	// Tolerate is how long a target may be unready, or run another revision, without a break;
	// 5m if it is not set. The promotion fails when it lasts longer (Degraded).
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Tolerate string `json:"tolerate,omitempty"`

	// Deadline is how long the verification may take; if it is not set, one hour and twice the value of for,
	// or, if that is longer, of the interval and passes of a check. The promotion then fails without a verdict about the revision (Inconclusive).
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Deadline string `json:"deadline,omitempty"`

	// RolloutDeadline is how long the roll-out may take before the verification, from the merge
	// or the notification on. The promotion fails when it takes longer, and is verified if the
	// revision arrives later. Without it, only --stall-after reports a slow roll-out.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	RolloutDeadline string `json:"rolloutDeadline,omitempty"`

	// Checks must pass after the roll-out, in addition to the time of for. The promotion fails
	// when one of them fails several times in sequence (VerificationFailed).
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Checks []Check `json:"checks,omitempty"`
}

// VerificationFor returns the verification of an environment: its own, else that of the pipeline. It
// returns nil when neither is set.
func (p *Pipeline) VerificationFor(env *Environment) *Verification {
	if env.Verification != nil {
		return env.Verification
	}
	return p.Spec.Verification
}
