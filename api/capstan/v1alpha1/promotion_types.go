package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// PromotionKind is the kind of a Promotion.
const PromotionKind = "Promotion"

// Labels of a Promotion, by which the hub and people select them.
const (
	// PipelineUIDLabel holds the UID of the Pipeline: the ledger's key.
	PipelineUIDLabel = "capstan.dev/pipeline-uid"
	// PipelineLabel holds the Pipeline's name, as a slug.
	PipelineLabel = "capstan.dev/pipeline"
	// EnvironmentLabel holds the environment's name, as a slug.
	EnvironmentLabel = "capstan.dev/environment"
	// ApprovalSignatureLabel holds the digest of the signed call that approved the
	// Promotion, so that the same call approves no other.
	ApprovalSignatureLabel = "capstan.dev/approval-signature"
)

// PromotionSpec is the intent, written before any act and complete in itself:
// nothing of it can change but approval (once) and retry (upwards).
//
// +kubebuilder:validation:XValidation:rule="self.pipeline == oldSelf.pipeline && self.app == oldSelf.app && self.environment == oldSelf.environment && self.number == oldSelf.number && self.revision == oldSelf.revision && self.source == oldSelf.source && self.strategy == oldSelf.strategy && self.manual == oldSelf.manual && has(self.from) == has(oldSelf.from) && (!has(self.from) || self.from == oldSelf.from)",message="the intent of a promotion cannot be changed; edit the Pipeline instead"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.approval) || (has(self.approval) && self.approval == oldSelf.approval)",message="an approval cannot be changed or taken back; set spec.suspend on the Pipeline to hold the promotion"
// +kubebuilder:validation:XValidation:rule="self.retry >= oldSelf.retry",message="retry can only be raised"
type PromotionSpec struct {
	// Pipeline that asked for the promotion, in the same namespace.
	// +required
	Pipeline PipelineReference `json:"pipeline"`

	// App is the application whose revision is promoted.
	// +required
	App pipelinesv1.LocalAppReference `json:"app"`

	// Environment that the revision is promoted into.
	// +required
	Environment string `json:"environment"`

	// Number of this promotion among those into the environment. Only the one
	// with the highest number acts.
	// +required
	// +kubebuilder:validation:Minimum=1
	Number int64 `json:"number"`

	// Revision that is promoted.
	// +required
	// +kubebuilder:validation:MinLength=1
	Revision string `json:"revision"`

	// Source is where the revision was seen.
	// +required
	Source PromotionSource `json:"source"`

	// From is what the environment ran when the promotion was decided.
	// +optional
	From *PromotionBase `json:"from,omitempty"`

	// Strategy that carries the promotion out, as the Pipeline had it.
	// +required
	Strategy pipelinesv1.Strategy `json:"strategy"`

	// Manual makes the promotion wait for spec.approval.
	// +optional
	// +kubebuilder:default=false
	Manual bool `json:"manual"`

	// Approval lets a manual promotion go on.
	// +optional
	Approval *Approval `json:"approval,omitempty"`

	// Retry, raised by hand, starts a finished promotion again under a new
	// identity.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	Retry int64 `json:"retry"`
}

// PipelineReference names a Pipeline, and which one of that name.
type PipelineReference struct {
	// Name of the Pipeline.
	// +required
	Name string `json:"name"`

	// UID of the Pipeline.
	// +required
	UID types.UID `json:"uid"`
}

// PromotionSource is where the promoted revision was seen.
type PromotionSource struct {
	// Environment that agreed on the revision.
	// +required
	Environment string `json:"environment"`

	// Sequence of that agreement.
	// +required
	Sequence int64 `json:"sequence"`
}

// PromotionBase is what an environment ran when a promotion into it was decided.
type PromotionBase struct {
	// Revisions of the targets; an empty string stands for a target that ran none.
	// +optional
	// +listType=set
	Revisions []string `json:"revisions,omitempty"`

	// Sequence of the environment's agreement at that time; 0 for none.
	// +optional
	Sequence int64 `json:"sequence,omitempty"`

	// Targets of the environment at that time, for people: "web in namespace shop
	// of Cluster fleet/prod". The first twenty.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Targets []string `json:"targets,omitempty"`
}

// ApprovalMethod is how an approval was given.
// +kubebuilder:validation:Enum=Kubernetes;HTTP
type ApprovalMethod string

// Ways to approve.
const (
	// ApprovalByKubernetes is an approval written to spec.approval.
	ApprovalByKubernetes ApprovalMethod = "Kubernetes"
	// ApprovalByHTTP is an approval that came by a signed call.
	ApprovalByHTTP ApprovalMethod = "HTTP"
)

// Approval says who let a promotion go on.
type Approval struct {
	// By is the user name of who approves: the caller's own.
	// +required
	// +kubebuilder:validation:MinLength=1
	By string `json:"by"`

	// Method of the approval; Kubernetes when empty.
	// +optional
	Method ApprovalMethod `json:"method,omitempty"`
}

// PromotionPhase is a phase of a promotion's life.
// +kubebuilder:validation:Enum=AwaitingApproval;Promoting;AwaitingMerge;AwaitingRollout;Succeeded;Failed;Rejected;Superseded
type PromotionPhase string

// Phases of a promotion's life. The table of how one leads to another is
// hub/pipeline/decision's.
const (
	// PhaseAwaitingApproval waits for spec.approval.
	PhaseAwaitingApproval PromotionPhase = "AwaitingApproval"
	// PhasePromoting is being carried out.
	PhasePromoting PromotionPhase = "Promoting"
	// PhaseAwaitingMerge waits for the pull request to be merged or closed.
	PhaseAwaitingMerge PromotionPhase = "AwaitingMerge"
	// PhaseAwaitingRollout waits for every target to run the revision.
	PhaseAwaitingRollout PromotionPhase = "AwaitingRollout"
	// PhaseSucceeded: every target runs the revision.
	PhaseSucceeded PromotionPhase = "Succeeded"
	// PhaseFailed: it cannot be carried out until somebody changes something.
	PhaseFailed PromotionPhase = "Failed"
	// PhaseRejected: a person closed the pull request.
	PhaseRejected PromotionPhase = "Rejected"
	// PhaseSuperseded: something newer took its place.
	PhaseSuperseded PromotionPhase = "Superseded"
)

// Finished tells whether the phase ends a promotion's life (spec.retry starts
// it again).
func (p PromotionPhase) Finished() bool {
	switch p {
	case PhaseSucceeded, PhaseFailed, PhaseRejected, PhaseSuperseded:
		return true
	case "", PhaseAwaitingApproval, PhasePromoting, PhaseAwaitingMerge, PhaseAwaitingRollout:
		return false
	}
	return false
}

// PromotionStatus is how far a promotion has come.
type PromotionStatus struct {
	// Phase of its life.
	// +optional
	Phase PromotionPhase `json:"phase,omitempty"`

	// Reason for the phase, in one word.
	// +optional
	Reason string `json:"reason,omitempty"`

	// Message for people.
	// +optional
	Message string `json:"message,omitempty"`

	// Conditions are Ready and Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Retry is the spec.retry that the rest of the status is of.
	// +optional
	Retry int64 `json:"retry,omitempty"`

	// ObservedGeneration is the generation of the spec that the status was last
	// worked out from.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// StartTime is when this run of the promotion (see retry) began.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// FinishTime is when this run of the promotion ended.
	// +optional
	FinishTime *metav1.Time `json:"finishTime,omitempty"`

	// Deprecated: the former name of startTime. It is read from objects that an
	// earlier version wrote, and never written.
	// +optional
	FormerStartedAt *metav1.Time `json:"startedAt,omitempty"`

	// Deprecated: the former name of finishTime. It is read from objects that an
	// earlier version wrote, and never written.
	// +optional
	FormerFinishedAt *metav1.Time `json:"finishedAt,omitempty"`

	// Approval as it was found.
	// +optional
	Approval *ApprovalRecord `json:"approval,omitempty"`

	// Attempt is the newest attempt to carry the promotion out, written before it
	// is made.
	// +optional
	Attempt *Attempt `json:"attempt,omitempty"`

	// URL of the pull request, if there is one.
	// +optional
	URL string `json:"url,omitempty"`

	// PullRequest that carries the promotion out, if one does.
	// +optional
	PullRequest *PullRequestStatus `json:"pullRequest,omitempty"`

	// Secret that the promotion failed with, if another version of it may heal the
	// failure: it begins again by itself then.
	// +optional
	Secret *SecretVersion `json:"secret,omitempty"`

	// Withdrawn is set when a promotion that was superseded, succeeded before its pull
	// request was seen to be merged, or failed and is wanted no more, has nothing open
	// any more: its pull request is closed, merged, or another promotion's by now.
	// +optional
	Withdrawn bool `json:"withdrawn,omitempty"`
}

// PullRequestStatus is what the hub knows of a pull request.
type PullRequestStatus struct {
	// Number by which the service names it.
	Number int64 `json:"number"`

	// Branch that it asks to merge.
	Branch string `json:"branch"`

	// HeadSHA is the commit that the hub put at the branch's head.
	// +optional
	HeadSHA string `json:"headSHA,omitempty"`

	// BaseSHA is the commit of the base branch that the pull request was last found
	// to fit.
	// +optional
	BaseSHA string `json:"baseSHA,omitempty"`

	// ForeignSHA is the commit at the branch's head when it is not the hub's. The
	// hub leaves such a branch alone, and waits for the pull request to be merged
	// or closed.
	// +optional
	ForeignSHA string `json:"foreignSHA,omitempty"`
}

// SecretVersion is a Secret as it was at a time.
type SecretVersion struct {
	// Name of the Secret in the promotion's namespace.
	Name string `json:"name"`

	// ResourceVersion that it had; empty when it did not exist.
	// +optional
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// ApprovalRecord is an approval as the hub found it.
type ApprovalRecord struct {
	// By is who approved.
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
}

// Attempt is one attempt to carry a promotion out.
type Attempt struct {
	// Number of the attempt, from 1.
	Number int64 `json:"number"`

	// StartTime is when the attempt began.
	// +optional
	StartTime metav1.MicroTime `json:"startTime,omitzero"`

	// Holder is the process that makes it.
	Holder string `json:"holder"`

	// NextAttemptTime is the earliest time of the next attempt. While this attempt
	// may still run, it is the end of its deadline; after it failed, the end of the
	// backoff.
	// +optional
	NextAttemptTime metav1.MicroTime `json:"nextAttemptTime,omitzero"`

	// Deprecated: the former name of startTime. It is read from objects that an
	// earlier version wrote, and never written.
	// +optional
	FormerAt *metav1.MicroTime `json:"at,omitempty"`

	// Deprecated: the former name of nextAttemptTime. It is read from objects that an
	// earlier version wrote, and never written.
	// +optional
	FormerNotBefore *metav1.MicroTime `json:"notBefore,omitempty"`

	// Error of the attempt, if it failed.
	// +optional
	Error string `json:"error,omitempty"`

	// Failures are how many attempts in sequence have failed, this one included. The
	// backoff is by them.
	// +optional
	Failures int64 `json:"failures,omitempty"`
}

// Promotion is one promotion of one revision into one environment: intent,
// approval, attempts and outcome. It is the audit trail; the hub deletes old ones.
//
// Other products have a plural of the same name: use promotions.capstan.dev.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=capstan,shortName=cpromo
// +kubebuilder:printcolumn:name="Pipeline",type=string,JSONPath=".spec.pipeline.name"
// +kubebuilder:printcolumn:name="Environment",type=string,JSONPath=".spec.environment"
// +kubebuilder:printcolumn:name="No",type=integer,JSONPath=".spec.number"
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=".spec.revision"
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=".status.phase"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=".status.reason"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Approved By",type=string,JSONPath=".status.approval.by",priority=1
// +kubebuilder:printcolumn:name="Attempts",type=integer,JSONPath=".status.attempt.number",priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=".status.message",priority=1
type Promotion struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   PromotionSpec   `json:"spec"`
	Status PromotionStatus `json:"status,omitempty"`
}

// PromotionList is a list of Promotions.
//
// +kubebuilder:object:root=true
type PromotionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Promotion `json:"items"`
}

// Condition types of a Promotion and of a ClusterConnection.
const (
	// ReadyCondition of a Promotion is True when it succeeded, False when it ended
	// otherwise, Unknown while it is under way.
	ReadyCondition = "Ready"
	// StalledCondition of a Promotion is True when it is older than --stall-after
	// or failed.
	StalledCondition = "Stalled"
)
