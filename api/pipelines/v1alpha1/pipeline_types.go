package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PipelineKind is the kind of a Pipeline.
const PipelineKind = "Pipeline"

// RequestedAtAnnotation of a Pipeline contains the time at which a user last requested a
// reconciliation. Any change of the annotation triggers one; the value has no meaning.
const RequestedAtAnnotation = "capstan.dev/requested-at"

// PipelineSpec defines the application, its environments, and how a revision is
// promoted from one environment to the next.
type PipelineSpec struct {
	// AppRef names the application. Its kind and name are the same in all environments.
	// +required
	AppRef LocalAppReference `json:"appRef"`

	// Environments in the order in which a revision is promoted through them.
	// +required
	Environments []Environment `json:"environments"`

	// Promotion defines how a revision is promoted into an environment that has no
	// promotion of its own. When it is not set, the pipeline only shows which revision
	// runs in each target.
	// +optional
	Promotion *Promotion `json:"promotion,omitempty"`

	// Gates are the conditions under which a revision is promoted into an environment that
	// has no gates of its own.
	// +optional
	Gates *Gates `json:"gates,omitempty"`

	// Verification is what a revision must prove in an environment that it was promoted into. It
	// applies to the environments that have no verification of their own.
	// +optional
	Verification *Verification `json:"verification,omitempty"`

	// Rollback says what happens when a revision failed in an environment after its roll-out. It
	// applies to the environments that have no rollback of their own.
	// +optional
	Rollback *Rollback `json:"rollback,omitempty"`

	// Reject lists revisions that are not promoted: single ones, such as 1.4.2, and ranges of
	// semantic versions, such as ">=2.0.0 <2.0.3", which include prereleases. A promotion of
	// such a revision that was not merged or sent yet is superseded. When a revision is taken
	// off the list, it is promoted again where it is due.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	Reject []string `json:"reject,omitempty"`

	// Suspend stops new promotions and every external action of the current ones.
	// Capstan continues to observe the targets and to update the status.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// Environment is one stage of the pipeline: one or more targets that are expected to
// run the same revision.
type Environment struct {
	// Name of the environment, unique within the pipeline.
	// +required
	Name string `json:"name"`

	// Targets are the places where the application runs in this environment.
	// +required
	Targets []Target `json:"targets"`

	// Quorum says which targets may be left out when it is judged whether the environment runs a
	// revision. Without it, every target must run the revision, ready; one that its selector has
	// just added has 30 minutes for that.
	// +optional
	Quorum *Quorum `json:"quorum,omitempty"`

	// Waves are the parts in which the targets get a revision, one after the other. Each has promotions
	// of its own, whose source is the wave before. An environment named prod with a wave canary
	// has the stage prod/canary in the status and in Promotions.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=20
	Waves []Wave `json:"waves,omitempty"`

	// Stage is set if it is a part of an environment with waves: in memory only, see WithStages.
	Stage *Stage `json:"-"`

	// Promotion replaces the whole promotion of the pipeline for promotions into this
	// environment.
	// +optional
	Promotion *Promotion `json:"promotion,omitempty"`

	// Gates replace all gates of the pipeline for promotions into this environment.
	// +optional
	Gates *Gates `json:"gates,omitempty"`

	// Verification replaces the whole verification of the pipeline for this environment.
	// +optional
	Verification *Verification `json:"verification,omitempty"`

	// Rollback replaces the whole rollback of the pipeline for this environment.
	// +optional
	Rollback *Rollback `json:"rollback,omitempty"`
}

// Target is a namespace in a cluster, or in each of several clusters. Without clusterRef and
// clusters it is in the management cluster.
type Target struct {
	// Namespace of the application in the cluster.
	// +required
	Namespace string `json:"namespace"`

	// ClusterRef names the cluster.
	// +optional
	ClusterRef *CrossNamespaceClusterReference `json:"clusterRef,omitempty"`

	// Clusters selects clusters by their labels. Each of them is a target. An environment that selects
	// clusters may have up to 500 targets. Set at most one of clusterRef and clusters.
	// +optional
	Clusters *ClusterSelector `json:"clusters,omitempty"`
}

// Promotion defines how a revision is promoted into an environment.
type Promotion struct {
	// Manual makes each promotion wait for an approval.
	// +optional
	Manual bool `json:"manual,omitempty"`

	// Strategy that executes the promotion.
	// +required
	Strategy Strategy `json:"strategy"`
}

// Strategy defines how a promotion is executed. Set exactly one of pull-request and
// notification. A pipeline with none or both is Stalled with the reason InvalidSpec.
type Strategy struct {
	// PullRequest edits the manifest in a Git repository and opens a pull request.
	// +optional
	PullRequest *PullRequestPromotion `json:"pull-request,omitempty"`

	// Notification publishes an event. Another system executes the promotion.
	// +optional
	Notification *NotificationPromotion `json:"notification,omitempty"`

	// SecretRef names a Secret in the pipeline's namespace. Its key hmac-key
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

// PullRequestPromotion executes a promotion through a pull request.
type PullRequestPromotion struct {
	// Type of the Git hosting service.
	// +required
	Type GitProviderType `json:"type"`

	// URL of the repository. It must be an HTTPS URL.
	// +required
	URL string `json:"url"`

	// BaseBranch is the branch that the pull request is merged into.
	// +required
	BaseBranch string `json:"baseBranch"`

	// SecretRef names a Secret in the pipeline's namespace with the keys
	// username and password (Git), token (the service's API) and, optionally,
	// caFile; or githubAppID, githubAppInstallationID and githubAppPrivateKey.
	// +required
	SecretRef LocalObjectReference `json:"secretRef"`

	// APIURL is the address of the service's API. Set it only when it cannot be derived
	// from url, as for a GitLab under a relative URL. It must have the scheme and host of
	// url.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	APIURL string `json:"apiURL,omitempty"`

	// AutoMerge merges the pull request as soon as the service allows it. A pull request
	// whose branch contains commits of others is not merged.
	// +optional
	AutoMerge bool `json:"autoMerge,omitempty"`

	// KeepBranch keeps the branch of a finished promotion. By default the hub deletes it,
	// unless it contains commits of others, belongs to another promotion or has an open
	// pull request.
	// +optional
	KeepBranch bool `json:"keepBranch,omitempty"`

	// Labels to add to the pull request when it is opened.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=100
	Labels []string `json:"labels,omitempty"`

	// Reviewers to request when the pull request is opened: user names, or identity IDs
	// on Azure DevOps.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=100
	Reviewers []string `json:"reviewers,omitempty"`
}

// NotificationPromotion executes a promotion by publishing an event.
type NotificationPromotion struct{}

// PipelineStatus is the observed state of a pipeline.
type PipelineStatus struct {
	// ObservedGeneration is the generation of the spec that this status belongs to.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Schema is set by the CRD itself. It is absent if the Pipeline is served by a CRD that
	// does not keep gates; the hub then promotes nothing and writes nothing.
	// +optional
	// +kubebuilder:default=gates1
	// +kubebuilder:validation:MaxLength=32
	Schema string `json:"schema,omitempty"`

	// SchemaFleets is set by the CRD itself, as schema is, if the CRD also keeps checks, rollbacks,
	// quorums, selectors of clusters and waves.
	// +optional
	// +kubebuilder:default=fleets1
	// +kubebuilder:validation:MaxLength=32
	SchemaFleets string `json:"schemaFleets,omitempty"`

	// Conditions are Ready, PromotionPending, Stalled, Starved, AppShared and WavesDiverged.
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// InFlight lists the promotions under way, such as "prod 1.1.0 AwaitingMerge". It
	// names at most three.
	// +optional
	InFlight string `json:"inFlight,omitempty"`

	// Environments by name. An environment with waves has one entry for each wave or batch that has
	// clusters, such as prod/canary, and one that counts the targets of all of them.
	// +optional
	Environments map[string]*EnvironmentStatus `json:"environments,omitempty"`

	// DryRun is what a hub in dry run (--dry-run) would promote. It is absent if the hub promotes, or has not
	// observed the pipeline yet.
	// +optional
	DryRun *DryRunStatus `json:"dryRun,omitempty"`
}

// EnvironmentStatus is the observed state of one environment.
type EnvironmentStatus struct {
	// WaitingApproval is the revision that waits for an approval, if there is one.
	// +optional
	WaitingApproval WaitingApproval `json:"waitingApproval,omitempty"`

	// Targets, in the order of the spec. Those of an environment with fleet are ordered by their
	// clusters; if there are more than 100, those are listed first that do not run the revision
	// of the fleet, and fleet.members names all.
	// +optional
	Targets []TargetStatus `json:"targets,omitempty"`

	// Fleet counts the targets, if the environment selects clusters or has a quorum.
	// +optional
	Fleet *FleetStatus `json:"fleet,omitempty"`

	// Agreed is the last revision that all targets of the environment, or those of its quorum, ran
	// at the same time. They were ready and their observations current.
	// +optional
	Agreed *AgreedRevision `json:"agreed,omitempty"`

	// LastPromotion is the highest number of all promotions into this environment. It
	// prevents a number from being used again after Promotions are deleted.
	// +optional
	LastPromotion int64 `json:"lastPromotion,omitempty"`

	// Promotion is the newest promotion into this environment.
	// +optional
	Promotion *PromotionSummary `json:"promotion,omitempty"`

	// RollbackAdvice says to which revision the environment can be rolled back after its newest
	// promotion failed, and why the hub does not do so. It is set if rollbacks are configured.
	// +optional
	RollbackAdvice string `json:"rollbackAdvice,omitempty"`
}

// AgreedRevision is a revision that all targets of an environment, or those of its quorum, ran at the same time.
type AgreedRevision struct {
	// Revision of the application.
	// +required
	Revision string `json:"revision"`

	// Sequence increases by one whenever the agreed revision changes. It distinguishes a
	// return to an earlier revision from no change.
	// +required
	Sequence int64 `json:"sequence"`

	// Soak is how long the environment has been healthy with the revision. It is absent
	// unless the gates of the next environment have a soak.
	// +optional
	Soak *SoakStatus `json:"soak,omitempty"`
}

// PromotionSummary is a summary of the newest Promotion (promotions.capstan.dev) into an
// environment.
type PromotionSummary struct {
	// Name of the Promotion object in the pipeline's namespace.
	// +required
	Name string `json:"name"`

	// Revision that is promoted.
	// +required
	Revision string `json:"revision"`

	// Phase of the promotion.
	// +optional
	Phase string `json:"phase,omitempty"`

	// Reason for the phase.
	// +optional
	Reason string `json:"reason,omitempty"`

	// Message for users.
	// +optional
	Message string `json:"message,omitempty"`

	// URL of the pull request, if there is one.
	// +optional
	URL string `json:"url,omitempty"`
}

// WaitingApproval contains the revision that waits for an approval.
type WaitingApproval struct {
	// Revision that waits; empty when no revision waits.
	Revision string `json:"revision"`
}

// TargetStatus is the observed state of one target.
type TargetStatus struct {
	// ClusterAppRef names the application and its cluster.
	ClusterAppRef ClusterAppReference `json:"clusterAppRef"`

	// Namespace of the application, in an environment with fleet.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// Standing is Lost or Joining if the target is left out, and Late if it counts again although it
	// does not run the revision of the environment. Other targets have none.
	// +optional
	Standing TargetStanding `json:"standing,omitempty"`

	// StandingTime is when the target got its standing.
	// +optional
	StandingTime *metav1.Time `json:"standingTime,omitempty"`

	// Ready is true when the application is ready at the revision shown.
	Ready bool `json:"ready"`

	// Revision that the application runs.
	// +optional
	Revision string `json:"revision,omitempty"`

	// Error says why the application, or its revision, could not be read.
	// +optional
	Error string `json:"error,omitempty"`

	// Reason says in one word why the target is not ready: the reason of the
	// application's own condition Ready, or, when the target could not be read, why not,
	// such as Unreachable or AuthFailed.
	// +optional
	Reason string `json:"reason,omitempty"`

	// Message says why the application is not ready: the message of its own condition
	// Ready. It is shortened to 256 bytes.
	// +optional
	Message string `json:"message,omitempty"`

	// Stale is true when the hub has had no contact with the cluster recently. Revision
	// and ready are then the last observed values, and no decision uses them.
	// +optional
	Stale bool `json:"stale,omitempty"`

	// Progressing is true while the application is not ready because its controller is at work
	// on it and has not judged it yet.
	// +optional
	Progressing bool `json:"progressing,omitempty"`

	// ObservedTime is when the values shown here last changed.
	// +optional
	ObservedTime *metav1.Time `json:"observedTime,omitempty"`

	// Deprecated: the former name of observedTime. It is read from objects that an
	// earlier version wrote, and never written.
	// +optional
	FormerObservedAt *metav1.Time `json:"observedAt,omitempty"`
}

// Fresh returns whether the other fields are current: the target was observed, is not stale, and was read
// without an error. An error about a target that was observed and is not stale means that the application
// does not exist. This is a known state, so the target is fresh and runs nothing.
func (s *TargetStatus) Fresh() bool {
	absent := s.Observed() != nil && s.Revision == "" && !s.Ready
	return !s.Stale && (s.Error == "" || absent)
}

// Pipeline promotes the revision of one application from environment to environment.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories={capstan,all},shortName=pl
// +kubebuilder:printcolumn:name="App Kind",type=string,JSONPath=".spec.appRef.kind"
// +kubebuilder:printcolumn:name="App Name",type=string,JSONPath=".spec.appRef.name"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=".status.conditions[?(@.type==\"Ready\")].status"
// +kubebuilder:printcolumn:name="Stalled",type=string,JSONPath=".status.conditions[?(@.type==\"Stalled\")].status"
// +kubebuilder:printcolumn:name="Suspended",type=boolean,JSONPath=".spec.suspend"
// +kubebuilder:printcolumn:name="In Flight",type=string,JSONPath=".status.inFlight"
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=".status.conditions[?(@.type==\"Ready\")].message"
// +kubebuilder:printcolumn:name="Pending",type=string,JSONPath=".status.conditions[?(@.type==\"PromotionPending\")].message",priority=1
// +kubebuilder:printcolumn:name="Stalled Message",type=string,JSONPath=".status.conditions[?(@.type==\"Stalled\")].message",priority=1
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

// PromotionFor returns the promotion that applies to an environment: its own, else that
// of the pipeline. It returns nil when neither is set.
func (p *Pipeline) PromotionFor(env *Environment) *Promotion {
	if env.Promotion != nil {
		return env.Promotion
	}
	return p.Spec.Promotion
}
