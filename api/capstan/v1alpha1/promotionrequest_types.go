package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PromotionRequestKind is the kind of a PromotionRequest.
const PromotionRequestKind = "PromotionRequest"

// PromotionRequestSpec says what to promote, and who requests it. It is never changed.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a request cannot be changed; create another one"
// +kubebuilder:validation:XValidation:rule="has(self.revision) != has(self.rollback)",message="set exactly one of revision and rollback"
type PromotionRequestSpec struct {
	// Pipeline is the name of the Pipeline, in the same namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Pipeline string `json:"pipeline"`

	// Environment of the Pipeline to promote into.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Environment string `json:"environment"`

	// Revision to promote. The Pipeline must know it: it runs in an environment of the Pipeline, or
	// a Promotion of the Pipeline was for it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Revision string `json:"revision,omitempty"`

	// Rollback promotes the revision that succeeded in the environment before the one that runs
	// there.
	// +optional
	Rollback *RollbackRequest `json:"rollback,omitempty"`

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
}

// RollbackRequest has no fields: the hub chooses the revision.
type RollbackRequest struct{}

// RequestPhase is the outcome of a request. It is absent until the hub has handled the request, and
// never changes afterwards.
// +kubebuilder:validation:Enum=Promoted;Refused;Superseded;Expired
type RequestPhase string

// Outcomes of a request.
const (
	// RequestPromoted: the Promotion was created.
	RequestPromoted RequestPhase = "Promoted"
	// RequestRefused: the request cannot be carried out. The message says why.
	RequestRefused RequestPhase = "Refused"
	// RequestSuperseded: a newer request for the environment was created before this one was
	// carried out.
	RequestSuperseded RequestPhase = "Superseded"
	// RequestExpired: the request was not carried out within an hour of its creation.
	RequestExpired RequestPhase = "Expired"
)

// PromotionRequestStatus is the outcome of a request.
type PromotionRequestStatus struct {
	// Phase is the outcome. It is absent until the hub has handled the request.
	// +optional
	Phase RequestPhase `json:"phase,omitempty"`

	// Message for users.
	// +optional
	Message string `json:"message,omitempty"`

	// Promotion is the name of the Promotion that was created.
	// +optional
	Promotion string `json:"promotion,omitempty"`

	// Revision that is promoted. For a rollback, the hub chose it.
	// +optional
	Revision string `json:"revision,omitempty"`

	// ObservedGeneration is the generation of the spec that the status was computed from.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// FinishTime is when the hub set the phase.
	// +optional
	FinishTime *metav1.Time `json:"finishTime,omitempty"`
}

// PromotionRequest requests one promotion into one environment: of a revision that the Pipeline knows,
// or back to an earlier revision. The gates of the environment and its approval apply. The newest
// request for an environment is carried out.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=capstan,shortName=preq
// +kubebuilder:printcolumn:name="Pipeline",type=string,JSONPath=".spec.pipeline"
// +kubebuilder:printcolumn:name="Environment",type=string,JSONPath=".spec.environment"
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=".spec.revision"
// +kubebuilder:printcolumn:name="By",type=string,JSONPath=".spec.by"
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=".status.phase"
// +kubebuilder:printcolumn:name="Promotion",type=string,JSONPath=".status.promotion"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Chosen",type=string,JSONPath=".status.revision",priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=".spec.reason",priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=".status.message",priority=1
type PromotionRequest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec   PromotionRequestSpec   `json:"spec"`
	Status PromotionRequestStatus `json:"status,omitempty"`
}

// PromotionRequestList is a list of PromotionRequests.
//
// +kubebuilder:object:root=true
type PromotionRequestList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PromotionRequest `json:"items"`
}

// RequestReference identifies a PromotionRequest by its name and UID, and says who created it: the Promotion is
// kept for longer.
type RequestReference struct {
	// Name of the PromotionRequest.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// UID of the PromotionRequest.
	// +required
	UID types.UID `json:"uid"`

	// By is the user who created it.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	By string `json:"by,omitempty"`

	// Reason that the user gave.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
}

// RollbackReference identifies a Promotion by its name and its number.
type RollbackReference struct {
	// Name of the Promotion.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Number of the Promotion among the promotions into the environment.
	// +required
	// +kubebuilder:validation:Minimum=1
	Number int64 `json:"number"`
}

// Hold keeps other revisions out of an environment.
type Hold struct {
	// UntilSequence ends the hold: until the agreement of the source has a higher sequence than
	// this, no other revision is promoted into the environment without a request.
	// +required
	// +kubebuilder:validation:Minimum=0
	UntilSequence int64 `json:"untilSequence"`
}
