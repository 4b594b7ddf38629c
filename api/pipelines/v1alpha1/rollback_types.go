package v1alpha1

// RollbackMode says what happens when a revision failed in an environment.
type RollbackMode string

// Modes of rollbacks.
const (
	// RollbackNever: nothing more.
	RollbackNever RollbackMode = "Never"
	// RollbackNotify: an Event says which revision a rollback would promote.
	RollbackNotify RollbackMode = "Notify"
	// RollbackPromote: the last revision that succeeded before is promoted again.
	RollbackPromote RollbackMode = "Promote"
)

// RollbackLimit says how far a rollback may go back.
type RollbackLimit string

// Limits of rollbacks, by semantic versions.
const (
	// RollbackPatch: only to a version with the same major and minor number.
	RollbackPatch RollbackLimit = "Patch"
	// RollbackMinor: only to a version with the same major number.
	RollbackMinor RollbackLimit = "Minor"
	// RollbackAny: to every revision, also to one that is no semantic version.
	RollbackAny RollbackLimit = "Any"
)

// Rollback says what happens when a revision failed in an environment after its roll-out (reasons
// VerificationFailed, Degraded and RolloutDeadline). A rollback is a promotion of the last revision that
// succeeded in the environment before, by the same strategy. It skips soak, windows and checks of the
// Pipeline, and needs an approval if the promotion is manual. It is made once: a rollback that fails too is
// not rolled back.
//
// The revision that failed is not promoted again until the source agrees on another one.
type Rollback struct {
	// Mode is Never (the default), Notify or Promote.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	Mode RollbackMode `json:"mode,omitempty"`

	// Within is Patch, Minor (the default) or Any. A rollback that would go further back is not
	// made; an Event says so, as with the mode Notify.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	Within RollbackLimit `json:"within,omitempty"`
}

// RollbackFor returns the rollback of an environment: its own, else that of the pipeline. It returns nil
// when neither is set.
func (p *Pipeline) RollbackFor(env *Environment) *Rollback {
	if env.Rollback != nil {
		return env.Rollback
	}
	return p.Spec.Rollback
}
