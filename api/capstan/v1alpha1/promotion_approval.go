package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ApprovalMethod is how an approval was given.
// +kubebuilder:validation:Enum=Kubernetes;HTTP
type ApprovalMethod string

// Ways to approve.
const (
	// ApprovalByKubernetes is an approval written to spec.approval.
	ApprovalByKubernetes ApprovalMethod = "Kubernetes"
	// ApprovalByHTTP is an approval through a signed call.
	ApprovalByHTTP ApprovalMethod = "HTTP"
)

// Approval records who approved a promotion.
type Approval struct {
	// By is the user name of the approver. It must be the caller's own name.
	// +required
	// +kubebuilder:validation:MinLength=1
	By string `json:"by"`

	// Method of the approval. The default is Kubernetes.
	// +optional
	Method ApprovalMethod `json:"method,omitempty"`

	// Retry is the run that is approved: the value of status.retry. The approval has no
	// effect on other runs.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	Retry int64 `json:"retry,omitempty"`

	// Comment of the approver, for the record.
	// +optional
	// +kubebuilder:validation:MaxLength=500
	Comment string `json:"comment,omitempty"`
}

// Rejection ends a run of a promotion before it begins.
type Rejection struct {
	// By is the user name of the caller. It must be the caller's own name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	By string `json:"by"`

	// Comment for the record, such as "not before the release notes are ready".
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=500
	Comment string `json:"comment"`

	// Retry is the run that is rejected: the value of status.retry. The rejection has no
	// effect on other runs.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	Retry int64 `json:"retry"`
}

// ApprovalRecord is an approval as the hub observed it.
type ApprovalRecord struct {
	// By is the user name of the approver.
	By string `json:"by"`
	// ApprovalTime is when the hub first observed the approval.
	// +optional
	ApprovalTime metav1.Time `json:"approvalTime,omitzero"`
	// Deprecated: the former name of approvalTime. It is read from objects that an
	// earlier version wrote, and never written.
	// +optional
	FormerAt *metav1.Time `json:"at,omitempty"`
	// Method of the approval.
	Method ApprovalMethod `json:"method"`
	// Retry is the run that was approved.
	// +optional
	Retry int64 `json:"retry,omitempty"`
	// NoEffect is the reason why the approval had no effect on any run: ApprovalTooLate or
	// ApprovalNotRequired. It is empty for an approval that had an effect.
	// +optional
	NoEffect string `json:"noEffect,omitempty"`
	// Comment of the approver.
	// +optional
	Comment string `json:"comment,omitempty"`
}

// Reasons why an approval had no effect.
const (
	// ApprovalTooLateReason: the run did not wait for an approval any more.
	ApprovalTooLateReason = "ApprovalTooLate"
	// ApprovalNotRequiredReason: the promotion is not manual.
	ApprovalNotRequiredReason = "ApprovalNotRequired"
)

// Run returns the run of the promotion that an approval must name: status.retry, or
// spec.retry before the hub has reconciled the promotion for the first time.
func (p *Promotion) Run() int64 {
	if p.Status.Phase == "" {
		return p.Spec.Retry
	}
	return p.Status.Retry
}

// Approved returns whether the promotion is manual and spec.approval is for its present run.
func (p *Promotion) Approved() bool {
	return p.Spec.Manual && p.Spec.Approval != nil && p.Spec.Approval.Retry == p.Run()
}

// Rejected returns whether spec.rejection is for the present run.
func (p *Promotion) Rejected() bool {
	return p.Spec.Rejection != nil && p.Spec.Rejection.Retry == p.Run()
}

// WaitsForApproval returns whether the present run needs an approval that was not given: the
// promotion is manual, was not rejected, and was not carried out yet. It may also wait for gates; the
// approval then has its effect when they open.
func (p *Promotion) WaitsForApproval() bool {
	return p.Spec.Manual && !p.Approved() && !p.Rejected() && p.Waits()
}

// Waits returns whether the present run has not begun: it waits for gates or for an approval, and can
// be rejected.
func (p *Promotion) Waits() bool {
	switch p.Status.Phase { //nolint:exhaustive // In the others it has begun, or has ended.
	case "", PhaseAwaitingGates, PhaseAwaitingApproval:
		return true
	}
	return false
}
