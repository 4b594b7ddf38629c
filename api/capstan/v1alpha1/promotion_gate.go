package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// GateType names a kind of gate.
// +kubebuilder:validation:Enum=Soak;Window;PromotionWindow;Check;Reject
type GateType string

// Types of gates.
const (
	// SoakGate is the soak of the source environment.
	SoakGate GateType = "Soak"
	// WindowGate are the windows of the Pipeline.
	WindowGate GateType = "Window"
	// PromotionWindowGate are the PromotionWindows that select the promotion.
	PromotionWindowGate GateType = "PromotionWindow"
	// CheckGate are the checks of the gates.
	CheckGate GateType = "Check"
	// RejectGate is spec.reject of the Pipeline, if it is invalid.
	RejectGate GateType = "Reject"
)

// GateState is the state of a gate.
// +kubebuilder:validation:Enum=Open;Closed;Invalid
type GateState string

// States of a gate. One that is invalid is closed until its spec is corrected.
const (
	GateOpen    GateState = "Open"
	GateClosed  GateState = "Closed"
	GateInvalid GateState = "Invalid"
)

// GateStatus is the state of one gate.
type GateStatus struct {
	// Name of the gate.
	// +required
	Name string `json:"name"`

	// Type of the gate.
	// +required
	Type GateType `json:"type"`

	// State of the gate.
	// +required
	State GateState `json:"state"`

	// Reason for the state, in one word.
	// +optional
	Reason string `json:"reason,omitempty"`

	// Message for users: what it waits for.
	// +optional
	Message string `json:"message,omitempty"`

	// LastTransitionTime is when the state changed last.
	// +optional
	LastTransitionTime *metav1.Time `json:"lastTransitionTime,omitempty"`

	// NextChangeTime is when the state changes next if nothing else changes; absent if that is
	// not known.
	// +optional
	NextChangeTime *metav1.Time `json:"nextChangeTime,omitempty"`
}

// GatesShown is a commit status that the hub has set.
type GatesShown struct {
	// SHA of the commit.
	// +required
	SHA string `json:"sha"`

	// Open is whether all gates were open: the status was success. Else it was pending.
	// +optional
	Open bool `json:"open,omitempty"`
}
