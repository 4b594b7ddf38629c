package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// PromotionKind is the kind of a Promotion.
const PromotionKind = "Promotion"

// Labels of a Promotion, for selection by the hub and by users.
const (
	// PipelineUIDLabel contains the UID of the Pipeline. The hub selects by it.
	PipelineUIDLabel = "capstan.dev/pipeline-uid"
	// PipelineLabel contains the name of the Pipeline, as a slug.
	PipelineLabel = "capstan.dev/pipeline"
	// EnvironmentLabel contains the name of the environment, as a slug.
	EnvironmentLabel = "capstan.dev/environment"
	// ApprovalSignatureLabel contains the digest of the signed call that approved the
	// Promotion. It prevents the same call from approving another Promotion.
	ApprovalSignatureLabel = "capstan.dev/approval-signature"
	// FormerApprovalSignaturePrefix and a digest are the key of a label without a value:
	// the digest of a signed call that approved an earlier run of the Promotion.
	FormerApprovalSignaturePrefix = "former-approval-signature.capstan.dev/"
)

// Verbs on promotions.capstan.dev that only admission policies check. No request of the
// Kubernetes API has them.
const (
	// ApproveVerb is the right to approve a promotion.
	ApproveVerb = "approve"
	// RecordApprovalVerb is the hub's right to record an approval by a signed call.
	RecordApprovalVerb = "record-approval"
	// ManageVerb is the hub's right to create Promotions, and to change their labels and
	// their status. It must be granted for all namespaces.
	ManageVerb = "manage"
)

// AllowedHostsAnnotation of a Secret lists the hosts that may get its credentials from a
// promotion by pull request, separated by commas: "git.example.com", "git.example.com:8443"
// or "*.example.com" for every name below example.com. Without a port, only the default port
// of HTTPS is allowed. Without the annotation, every host is allowed, unless the hub runs
// with --require-secret-hosts.
const AllowedHostsAnnotation = "capstan.dev/allowed-hosts"

// PromotionSpec is the complete intent of a promotion. The hub writes it before any
// action. Only approval and rejection (one of them, once for each run), overrides (one more at a time) and
// retry (upwards) can be changed.
//
// +kubebuilder:validation:XValidation:rule="self.pipeline == oldSelf.pipeline && self.app == oldSelf.app && self.environment == oldSelf.environment && self.number == oldSelf.number && self.revision == oldSelf.revision && self.source == oldSelf.source && self.strategy == oldSelf.strategy && self.manual == oldSelf.manual && has(self.from) == has(oldSelf.from) && (!has(self.from) || self.from == oldSelf.from) && has(self.request) == has(oldSelf.request) && (!has(self.request) || self.request == oldSelf.request) && has(self.rollbackOf) == has(oldSelf.rollbackOf) && (!has(self.rollbackOf) || self.rollbackOf == oldSelf.rollbackOf) && has(self.hold) == has(oldSelf.hold) && (!has(self.hold) || self.hold == oldSelf.hold) && has(self.wave) == has(oldSelf.wave) && (!has(self.wave) || self.wave == oldSelf.wave)",message="the intent of a promotion cannot be changed; edit the Pipeline instead"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.approval) || (has(self.approval) && (self.approval == oldSelf.approval || self.approval.retry > oldSelf.approval.retry))",message="an approval cannot be changed or removed; set spec.suspend on the Pipeline to stop the promotion"
// +kubebuilder:validation:XValidation:rule="!has(self.approval) || self.approval.retry <= self.retry",message="approval.retry cannot be higher than retry"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.rejection) || (has(self.rejection) && (self.rejection == oldSelf.rejection || self.rejection.retry > oldSelf.rejection.retry))",message="a rejection cannot be changed or removed; raise spec.retry to start the promotion again"
// +kubebuilder:validation:XValidation:rule="!has(self.rejection) || self.rejection.retry <= self.retry",message="rejection.retry cannot be higher than retry"
// +kubebuilder:validation:XValidation:rule="!has(self.approval) || !has(self.rejection) || self.approval.retry != self.rejection.retry",message="a run is either approved or rejected: the other one was recorded first"
// +kubebuilder:validation:XValidation:rule="self.retry >= oldSelf.retry",message="retry can only be raised"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.overrides) || (has(self.overrides) && oldSelf.overrides.all(o, self.overrides.exists(n, n.gate == o.gate && n.retry == o.retry)))",message="an override cannot be removed; set spec.suspend on the Pipeline to stop the promotion"
type PromotionSpec struct {
	// Pipeline that the promotion belongs to, in the same namespace.
	// +required
	Pipeline PipelineReference `json:"pipeline"`

	// App is the application whose revision is promoted.
	// +required
	App pipelinesv1.LocalAppReference `json:"app"`

	// Environment that the revision is promoted into. If it has waves, it is followed by a slash
	// and the wave, such as prod/canary.
	// +required
	Environment string `json:"environment"`

	// Wave of the environment, with its clusters; absent if the environment has no waves. Only the hub
	// sets it.
	// +optional
	Wave *PromotionWave `json:"wave,omitempty"`

	// Number of this promotion among the promotions into the environment. Only the
	// promotion with the highest number is executed.
	// +required
	// +kubebuilder:validation:Minimum=1
	Number int64 `json:"number"`

	// Revision that is promoted.
	// +required
	// +kubebuilder:validation:MinLength=1
	Revision string `json:"revision"`

	// Source is where the revision was observed.
	// +required
	Source PromotionSource `json:"source"`

	// From describes what the environment ran when the promotion was created.
	// +optional
	From *PromotionBase `json:"from,omitempty"`

	// Request is the PromotionRequest that caused the promotion, if one did. Only the hub sets it.
	// +optional
	Request *RequestReference `json:"request,omitempty"`

	// RollbackOf is the promotion whose revision this one replaces by an earlier one, if this is a
	// rollback. Only the hub sets it.
	// +optional
	RollbackOf *RollbackReference `json:"rollbackOf,omitempty"`

	// Hold keeps other revisions out of the environment after this promotion: until the agreement
	// of the source has a higher sequence than untilSequence, no other revision is promoted into
	// the environment without a request. Only the hub sets it.
	// +optional
	Hold *Hold `json:"hold,omitempty"`

	// Strategy that executes the promotion: a copy of the Pipeline's.
	// +required
	Strategy pipelinesv1.Strategy `json:"strategy"`

	// Manual makes each run of the promotion wait for spec.approval.
	// +optional
	// +kubebuilder:default=false
	Manual bool `json:"manual"`

	// Approval allows a run of a manual promotion to continue. It is accepted only while
	// the promotion waits for it.
	// +optional
	Approval *Approval `json:"approval,omitempty"`

	// Rejection ends a run of the promotion that has not begun. It is accepted only while the
	// promotion waits for gates or for an approval, from a user who may approve it.
	// +optional
	Rejection *Rejection `json:"rejection,omitempty"`

	// Overrides open gates of this promotion, each for one run. One is added at a time, and none
	// can be changed or removed.
	// +optional
	// +listType=map
	// +listMapKey=gate
	// +listMapKey=retry
	// +kubebuilder:validation:MaxItems=8
	Overrides []Override `json:"overrides,omitempty"`

	// Retry starts a finished promotion again, under a new identity, when a user
	// increases it. A manual promotion then waits for a new approval. An increase before
	// the promotion has finished has no effect.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	Retry int64 `json:"retry"`
}

// PipelineReference identifies a Pipeline by its name and UID.
type PipelineReference struct {
	// Name of the Pipeline.
	// +required
	Name string `json:"name"`

	// UID of the Pipeline.
	// +required
	UID types.UID `json:"uid"`
}

// PromotionSource is where the promoted revision was observed.
type PromotionSource struct {
	// Environment that agreed on the revision.
	// +required
	Environment string `json:"environment"`

	// Sequence of that agreement; 0 for a promotion by request or a rollback.
	// +required
	Sequence int64 `json:"sequence"`
}

// PromotionBase describes what an environment ran when a promotion into it was created.
type PromotionBase struct {
	// Revisions of the targets. An empty string represents a target without a revision.
	// +optional
	// +listType=set
	Revisions []string `json:"revisions,omitempty"`

	// Sequence of the environment's agreement at that time; 0 for none.
	// +optional
	Sequence int64 `json:"sequence,omitempty"`

	// Targets of the environment at that time, for users: "web in namespace shop
	// of Cluster fleet/prod". At most the first 20.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Targets []string `json:"targets,omitempty"`
}

// PromotionPhase is a phase in the lifecycle of a promotion.
// +kubebuilder:validation:Enum=AwaitingGates;AwaitingApproval;Promoting;AwaitingMerge;AwaitingRollout;Verifying;Succeeded;Failed;Rejected;Superseded
type PromotionPhase string

// Phases in the lifecycle of a promotion. Package hub/pipeline/decision contains the
// table of transitions.
const (
	// PhaseAwaitingGates: the promotion waits until all gates of the environment are open.
	PhaseAwaitingGates PromotionPhase = "AwaitingGates"
	// PhaseAwaitingApproval: the promotion waits for spec.approval.
	PhaseAwaitingApproval PromotionPhase = "AwaitingApproval"
	// PhasePromoting: the strategy executes the promotion.
	PhasePromoting PromotionPhase = "Promoting"
	// PhaseAwaitingMerge: the promotion waits until the pull request is merged or closed.
	PhaseAwaitingMerge PromotionPhase = "AwaitingMerge"
	// PhaseAwaitingRollout: the promotion waits until every target runs the revision.
	PhaseAwaitingRollout PromotionPhase = "AwaitingRollout"
	// PhaseVerifying: every target ran the revision, and spec.verification of the Pipeline is not
	// fulfilled yet.
	PhaseVerifying PromotionPhase = "Verifying"
	// PhaseSucceeded: every target runs the revision.
	PhaseSucceeded PromotionPhase = "Succeeded"
	// PhaseFailed: the promotion cannot be executed until a user fixes the cause. The hub
	// tries it again from time to time if the cause may be fixed outside of its view.
	PhaseFailed PromotionPhase = "Failed"
	// PhaseRejected: a user rejected the promotion, or closed its pull request.
	PhaseRejected PromotionPhase = "Rejected"
	// PhaseSuperseded: a newer revision or promotion replaced it.
	PhaseSuperseded PromotionPhase = "Superseded"
)

// Finished reports whether the promotion has ended in this phase. An increase of
// spec.retry starts it again.
func (p PromotionPhase) Finished() bool {
	switch p {
	case PhaseSucceeded, PhaseFailed, PhaseRejected, PhaseSuperseded:
		return true
	case "", PhaseAwaitingGates, PhaseAwaitingApproval, PhasePromoting, PhaseAwaitingMerge, PhaseAwaitingRollout, PhaseVerifying:
		return false
	}
	return false
}

// PromotionStatus is the observed state of a promotion.
type PromotionStatus struct {
	// Phase in the lifecycle of the promotion.
	// +optional
	Phase PromotionPhase `json:"phase,omitempty"`

	// Reason for the phase, in one word.
	// +optional
	Reason string `json:"reason,omitempty"`

	// Message for users.
	// +optional
	Message string `json:"message,omitempty"`

	// Conditions are Ready, Stalled, NotInGit, GatesNotShown and RetryIgnored.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Retry identifies the run that the other fields of the status belong to: it is the
	// value of spec.retry that started the run.
	// +optional
	Retry int64 `json:"retry,omitempty"`

	// IgnoredRetry is the highest value of spec.retry that was set while the promotion had
	// not finished. It starts no run: spec.retry must be increased again.
	// +optional
	IgnoredRetry int64 `json:"ignoredRetry,omitempty"`

	// ObservedGeneration is the generation of the spec that the status was last
	// computed from.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// StartTime is when this run of the promotion (see retry) began.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// FinishTime is when this run of the promotion ended.
	// +optional
	FinishTime *metav1.Time `json:"finishTime,omitempty"`

	// CarriedOutTime is when this run of the promotion was carried out: the notification
	// was accepted, or the pull request was merged. It stays when the promotion is
	// superseded during the roll-out.
	// +optional
	CarriedOutTime *metav1.Time `json:"carriedOutTime,omitempty"`

	// Deprecated: the former name of startTime. It is read from objects that an
	// earlier version wrote, and never written.
	// +optional
	FormerStartedAt *metav1.Time `json:"startedAt,omitempty"`

	// Deprecated: the former name of finishTime. It is read from objects that an
	// earlier version wrote, and never written.
	// +optional
	FormerFinishedAt *metav1.Time `json:"finishedAt,omitempty"`

	// Approval with which this run of the promotion (see retry) continued.
	// +optional
	Approval *ApprovalRecord `json:"approval,omitempty"`

	// OtherApprovals are those that have no effect on this run: of earlier runs, and those
	// that were given too late or were not required. At most the newest 20.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	OtherApprovals []ApprovalRecord `json:"otherApprovals,omitempty"`

	// Gates of the environment as they were judged last. They are not judged any more when the
	// promotion was carried out.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Gates []GateStatus `json:"gates,omitempty"`

	// GatesCloseTime is when a gate closed, and all had been open before.
	// +optional
	GatesCloseTime *metav1.Time `json:"gatesCloseTime,omitempty"`

	// GatesOpenTime is when all gates opened that were closed before. A promotion is as old as
	// this for the condition Stalled.
	// +optional
	GatesOpenTime *metav1.Time `json:"gatesOpenTime,omitempty"`

	// ExpectedTime is when all gates will be open if nothing changes; absent if that is not
	// known, or if they are open.
	// +optional
	ExpectedTime *metav1.Time `json:"expectedTime,omitempty"`

	// SoakedSeconds is how long the revision soaked in the source environment, when that left it.
	// +optional
	SoakedSeconds int64 `json:"soakedSeconds,omitempty"`

	// GatesShown is the commit status capstan/gates that the hub set last at the pull request.
	// +optional
	GatesShown *GatesShown `json:"gatesShown,omitempty"`

	// VerifyTime is when this run of the promotion entered the phase Verifying last.
	// +optional
	VerifyTime *metav1.Time `json:"verifyTime,omitempty"`

	// Trial is what was observed of the roll-out and the verification.
	// +optional
	Trial *Trial `json:"trial,omitempty"`

	// Checks of the gates as they were measured last or, from Verifying on, those of the
	// verification.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Checks []CheckStatus `json:"checks,omitempty"`

	// Attempt is the newest attempt to execute the promotion. The hub writes it before
	// the attempt begins.
	// +optional
	Attempt *Attempt `json:"attempt,omitempty"`

	// Failure describes the newest failures in sequence that end the promotion, or will
	// end it if they continue. It is absent after a success.
	// +optional
	Failure *PromotionFailure `json:"failure,omitempty"`

	// URL of the pull request, if there is one.
	// +optional
	URL string `json:"url,omitempty"`

	// PullRequest of the promotion, if there is one.
	// +optional
	PullRequest *PullRequestStatus `json:"pullRequest,omitempty"`

	// Secret that the promotion, or its last attempt, failed with, if a change of the
	// Secret may fix the failure. The hub then tries again when the Secret changes.
	// +optional
	Secret *SecretVersion `json:"secret,omitempty"`

	// Withdrawn is true when an ended promotion has no open pull request any more: the
	// pull request is closed or merged, or belongs to another promotion now. It is set
	// for a promotion that was superseded, that succeeded before the hub observed the
	// merge of its pull request, or that failed and is not needed any more. Unless the
	// strategy keeps branches, it is also set for one that succeeded or was rejected, and
	// the hub has then deleted the branch, or found that it must be kept. It stays false
	// while the environment runs the revision and Git does not have it (condition NotInGit).
	// +optional
	Withdrawn bool `json:"withdrawn,omitempty"`
}

// PullRequestStatus is the observed state of a pull request.
type PullRequestStatus struct {
	// Number of the pull request at the service.
	Number int64 `json:"number"`

	// Branch that the pull request merges.
	Branch string `json:"branch"`

	// HeadSHA is the commit that the hub pushed to the head of the branch.
	// +optional
	HeadSHA string `json:"headSHA,omitempty"`

	// BaseSHA is the commit of the base branch that the pull request was last compared
	// with and did not need to be rebuilt for.
	// +optional
	BaseSHA string `json:"baseSHA,omitempty"`

	// ForeignSHA is the commit at the head of the branch when the hub did not push it.
	// The hub does not change such a branch. It waits until the pull request is merged or
	// closed.
	// +optional
	ForeignSHA string `json:"foreignSHA,omitempty"`
}

// SecretVersion identifies a version of a Secret.
type SecretVersion struct {
	// Name of the Secret in the promotion's namespace.
	Name string `json:"name"`

	// ResourceVersion of the Secret; empty when the Secret did not exist.
	// +optional
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// Promotion is one promotion of one revision into one environment: its intent,
// approval, attempts and outcome. Promotions are the audit trail; the hub deletes old
// ones.
//
// Other products use the same plural name: use promotions.capstan.dev with kubectl.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=capstan,shortName=cpromo
// +kubebuilder:printcolumn:name="Pipeline",type=string,JSONPath=".spec.pipeline.name"
// +kubebuilder:printcolumn:name="Environment",type=string,JSONPath=".spec.environment"
// +kubebuilder:printcolumn:name="No",type=integer,JSONPath=".spec.number"
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=".spec.revision"
// +kubebuilder:printcolumn:name="Rollback Of",type=integer,JSONPath=".spec.rollbackOf.number"
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=".status.phase"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=".status.reason"
// +kubebuilder:printcolumn:name="Expected",type=string,JSONPath=".status.expectedTime"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Requested By",type=string,JSONPath=".spec.request.by",priority=1
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
	// ReadyCondition of a Promotion is True when it has succeeded, False when it has ended
	// otherwise, and Unknown until it ends.
	ReadyCondition = "Ready"
	// StalledCondition of a Promotion is True when the promotion is older than
	// --stall-after or has failed.
	StalledCondition = "Stalled"
	// GatesNotShownCondition of a Promotion is True while the commit status capstan/gates
	// cannot be set at its open pull request. It is absent otherwise.
	GatesNotShownCondition = "GatesNotShown"
	// RetryIgnoredCondition of a Promotion is True while spec.retry was raised after another
	// promotion had replaced it. It is absent otherwise.
	RetryIgnoredCondition = "RetryIgnored"
	// NotInGitCondition of a Promotion that succeeded is True while its pull request stays
	// open because the base branch does not have the revision. It is absent otherwise.
	NotInGitCondition = "NotInGit"
)
