package v1alpha1

// Names of gates in status.gates and in overrides.
const (
	// GateSoak is the soak of the source environment.
	GateSoak = "soak"
	// GateWindows are the windows of the Pipeline.
	GateWindows = "windows"
	// GateReject is spec.reject of the Pipeline. It is a gate only while it is invalid, and cannot be
	// overridden.
	GateReject = "reject"
	// GatePromotionWindows are the PromotionWindows that select the promotion.
	GatePromotionWindows = "promotion-windows"
	// GateChecks are the checks of the Pipeline.
	GateChecks = "checks"
)

// GateOverridden is the reason in status.gates of a gate that is open because of an override.
const GateOverridden = "Overridden"

// Override opens one gate of one run of a promotion.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="an override cannot be changed"
type Override struct {
	// Gate that is open: soak, windows, promotion-windows or checks.
	// +required
	// +kubebuilder:validation:Enum=soak;windows;promotion-windows;checks
	Gate string `json:"gate"`

	// By is the user name of the caller. It must be the caller's own name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	By string `json:"by"`

	// Reason for the record, such as "hotfix for incident 4711".
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason"`

	// Retry is the run to which the override applies: the value of status.retry.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	Retry int64 `json:"retry"`
}

// OverrideOf returns the override of a gate for the present run; nil if there is none.
func (p *Promotion) OverrideOf(gate string) *Override {
	for i := range p.Spec.Overrides {
		if o := &p.Spec.Overrides[i]; o.Gate == gate && o.Retry == p.Run() {
			return o
		}
	}
	return nil
}
