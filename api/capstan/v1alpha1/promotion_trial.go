package v1alpha1

// TrialState is what was observed of the targets of an environment.
// +kubebuilder:validation:Enum=Ready;Progressing;Unready
type TrialState string

// States of a trial.
const (
	// TrialReady: every target was ready with the revision.
	TrialReady TrialState = "Ready"
	// TrialProgressing: a controller was at work on a target, and all others were ready.
	TrialProgressing TrialState = "Progressing"
	// TrialUnready: a target was not ready, or ran another revision.
	TrialUnready TrialState = "Unready"
)

// Trial sums what was observed since the roll-out began, or since the verification began. Time in which
// a target was not observed, or its controller was at work on it, is not in the sums. The
// sums are written when the state changes, when one of them decides, and at least every 15 minutes.
type Trial struct {
	// Phase whose time is summed: AwaitingRollout or Verifying.
	// +required
	Phase PromotionPhase `json:"phase"`

	// State that was observed last.
	// +required
	State TrialState `json:"state"`

	// ReadySeconds in which every target was ready with the revision, in total.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ReadySeconds int64 `json:"readySeconds,omitempty"`

	// UnreadySeconds in which a target was unready, or ran another revision, since every target
	// was ready last.
	// +optional
	// +kubebuilder:validation:Minimum=0
	UnreadySeconds int64 `json:"unreadySeconds,omitempty"`

	// ObservedSeconds are all of these in total. They count to the deadline.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedSeconds int64 `json:"observedSeconds,omitempty"`
}
