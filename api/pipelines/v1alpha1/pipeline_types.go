package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PipelineKind is the kind of a Pipeline.
const PipelineKind = "Pipeline"

// RequestedAtAnnotation of a Pipeline holds when somebody last asked the hub to look
// at it. Any change of it has the hub look; the value decides nothing.
const RequestedAtAnnotation = "capstan.dev/requested-at"

// PipelineSpec says which application runs where, and how a revision travels.
type PipelineSpec struct {
	// AppRef names the application: one kind and one name for the whole pipeline.
	// +required
	AppRef LocalAppReference `json:"appRef"`

	// Environments in the order in which a revision travels through them.
	// +required
	Environments []Environment `json:"environments"`

	// Promotion says how a revision is carried into an environment that has no
	// promotion of its own. Absent: the pipeline only shows what runs where.
	// +optional
	Promotion *Promotion `json:"promotion,omitempty"`

	// Suspend stops new promotions and every outside step of those in flight;
	// observation and status go on.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// Environment is one stop on a revision's way: one or more targets that are
// expected to run the same revision.
type Environment struct {
	// Name of the environment, unique within the pipeline.
	// +required
	Name string `json:"name"`

	// Targets are the places where the application runs in this environment.
	// +required
	Targets []Target `json:"targets"`

	// Promotion replaces the pipeline's promotion, as a whole, for promotions
	// into this environment.
	// +optional
	Promotion *Promotion `json:"promotion,omitempty"`
}

// Target is a namespace of a cluster.
type Target struct {
	// Namespace of the application in the cluster.
	// +required
	Namespace string `json:"namespace"`

	// ClusterRef names the cluster. Absent: the management cluster itself.
	// +optional
	ClusterRef *CrossNamespaceClusterReference `json:"clusterRef,omitempty"`
}

// Promotion says how a revision is carried into an environment.
type Promotion struct {
	// Manual makes each promotion wait for an approval.
	// +optional
	Manual bool `json:"manual,omitempty"`

	// Strategy that carries the promotion out.
	// +required
	Strategy Strategy `json:"strategy"`
}

// Strategy is how a promotion is carried out. Exactly one of pull-request and
// notification has an effect; a pipeline with none or both is Stalled with the
// reason InvalidSpec.
type Strategy struct {
	// PullRequest edits the manifest in a Git repository and opens a pull request.
	// +optional
	PullRequest *PullRequestPromotion `json:"pull-request,omitempty"`

	// Notification emits an event that something else acts upon.
	// +optional
	Notification *NotificationPromotion `json:"notification,omitempty"`

	// SecretRef names a Secret in the pipeline's namespace whose key hmac-key
	// signs calls to the promotion and approval endpoints.
	// +optional
	SecretRef *LocalObjectReference `json:"secretRef,omitempty"`
}

// GitProviderType names a Git hosting service.
// +kubebuilder:validation:Enum=github;gitlab;bitbucket-server;gitea;azure-devops
type GitProviderType string

// Git hosting services.
const (
	GitHub          GitProviderType = "github"
	GitLab          GitProviderType = "gitlab"
	BitbucketServer GitProviderType = "bitbucket-server"
	Gitea           GitProviderType = "gitea"
	AzureDevOps     GitProviderType = "azure-devops"
)

// PullRequestPromotion carries a promotion out by a pull request.
type PullRequestPromotion struct {
	// Type of the Git hosting service.
	// +required
	Type GitProviderType `json:"type"`

	// URL of the repository, by HTTPS.
	// +required
	URL string `json:"url"`

	// BaseBranch that the pull request asks to be merged into.
	// +required
	BaseBranch string `json:"baseBranch"`

	// SecretRef names a Secret in the pipeline's namespace with the keys
	// username and password (Git), token (the service's API) and, optionally,
	// caFile; or githubAppID, githubAppInstallationID and githubAppPrivateKey.
	// +required
	SecretRef LocalObjectReference `json:"secretRef"`

	// APIURL of the service where it cannot be told from url: a GitLab under a
	// relative URL. It must be of the scheme and host of url.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	APIURL string `json:"apiURL,omitempty"`

	// AutoMerge merges the pull request as soon as the service lets it, and only
	// while nobody else has put commits on its branch.
	// +optional
	AutoMerge bool `json:"autoMerge,omitempty"`

	// Labels that the pull request is given when it is opened.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=100
	Labels []string `json:"labels,omitempty"`

	// Reviewers that are asked when the pull request is opened: user names; on
	// Azure DevOps identity ids.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=100
	Reviewers []string `json:"reviewers,omitempty"`
}

// NotificationPromotion carries a promotion out by an event.
type NotificationPromotion struct{}

// PipelineStatus is what was observed of a pipeline.
type PipelineStatus struct {
	// ObservedGeneration is the generation of the spec that this status is of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions are Ready, PromotionPending and Stalled.
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Environments by name.
	// +optional
	Environments map[string]*EnvironmentStatus `json:"environments,omitempty"`
}

// EnvironmentStatus is what was observed of one environment.
type EnvironmentStatus struct {
	// WaitingApproval is the revision that waits for an approval, if one does.
	// +optional
	WaitingApproval WaitingApproval `json:"waitingApproval,omitempty"`

	// Targets, in the order of the spec.
	// +optional
	Targets []TargetStatus `json:"targets,omitempty"`

	// Agreed is the last revision that all targets of the environment ran at
	// once, fresh and ready.
	// +optional
	Agreed *AgreedRevision `json:"agreed,omitempty"`

	// LastPromotion is the highest number that a promotion into this environment
	// has had. It keeps numbers from being used twice when Promotions are deleted.
	// +optional
	LastPromotion int64 `json:"lastPromotion,omitempty"`

	// Promotion is the newest promotion into this environment.
	// +optional
	Promotion *PromotionSummary `json:"promotion,omitempty"`
}

// AgreedRevision is a revision that all targets of an environment ran at once.
type AgreedRevision struct {
	// Revision of the application.
	// +required
	Revision string `json:"revision"`

	// Sequence rises by one whenever the agreed revision changes, so that going
	// back to an earlier revision is told from having stayed there.
	// +required
	Sequence int64 `json:"sequence"`
}

// PromotionSummary shows the newest Promotion (promotions.capstan.dev) into an
// environment.
type PromotionSummary struct {
	// Name of the Promotion object in the pipeline's namespace.
	// +required
	Name string `json:"name"`

	// Revision that is promoted.
	// +required
	Revision string `json:"revision"`

	// Phase of its life.
	// +optional
	Phase string `json:"phase,omitempty"`

	// Reason for the phase.
	// +optional
	Reason string `json:"reason,omitempty"`

	// Message for people.
	// +optional
	Message string `json:"message,omitempty"`

	// URL of the pull request, if there is one.
	// +optional
	URL string `json:"url,omitempty"`
}

// WaitingApproval holds the revision that waits for an approval.
type WaitingApproval struct {
	// Revision that waits; empty when nothing does.
	Revision string `json:"revision"`
}

// TargetStatus is what was observed at one target.
type TargetStatus struct {
	// ClusterAppRef names the application and its cluster.
	ClusterAppRef ClusterAppReference `json:"clusterAppRef"`

	// Ready is whether the application is ready at the revision shown.
	Ready bool `json:"ready"`

	// Revision that the application runs.
	// +optional
	Revision string `json:"revision,omitempty"`

	// Error says what kept the application from being read.
	// +optional
	Error string `json:"error,omitempty"`

	// Stale is set when the cluster has not been heard of for a while: revision
	// and ready are then what was last seen, and nothing is decided from them.
	// +optional
	Stale bool `json:"stale,omitempty"`

	// ObservedTime is when the values shown here last changed.
	// +optional
	ObservedTime *metav1.Time `json:"observedTime,omitempty"`

	// Deprecated: the former name of observedTime. It is read from objects that an
	// earlier version wrote, and never written.
	// +optional
	FormerObservedAt *metav1.Time `json:"observedAt,omitempty"`
}

// Pipeline carries the revision of one application from environment to
// environment.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories={capstan,all},shortName=pl
// +kubebuilder:printcolumn:name="App Kind",type=string,JSONPath=".spec.appRef.kind"
// +kubebuilder:printcolumn:name="App Name",type=string,JSONPath=".spec.appRef.name"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=".status.conditions[?(@.type==\"Ready\")].status"
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=".status.conditions[?(@.type==\"Ready\")].message"
// +kubebuilder:printcolumn:name="Pending",type=string,JSONPath=".status.conditions[?(@.type==\"PromotionPending\")].message",priority=1
// +kubebuilder:printcolumn:name="Stalled",type=string,JSONPath=".status.conditions[?(@.type==\"Stalled\")].message",priority=1
type Pipeline struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec PipelineSpec `json:"spec,omitempty"`
	// +kubebuilder:default={"observedGeneration":-1}
	Status PipelineStatus `json:"status,omitempty"`
}

// PipelineList is a list of Pipelines.
//
// +kubebuilder:object:root=true
type PipelineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Pipeline `json:"items"`
}

// PromotionFor is the promotion that applies to an environment: its own, else
// the pipeline's; nil when there is neither.
func (p *Pipeline) PromotionFor(env *Environment) *Promotion {
	if env.Promotion != nil {
		return env.Promotion
	}
	return p.Spec.Promotion
}
