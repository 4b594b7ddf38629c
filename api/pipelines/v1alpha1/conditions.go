package v1alpha1

// Condition types of a Pipeline.
const (
	// ReadyCondition is True when every target can be read. It does not depend on the
	// health of the applications, nor on promotions; its message names promotions that
	// failed or are stalled.
	ReadyCondition = "Ready"
	// PromotionPendingCondition is True while the first environment does not
	// agree on one ready revision.
	PromotionPendingCondition = "PromotionPending"
	// StalledCondition is True while the pipeline cannot advance without a change by a
	// user (kstatus).
	StalledCondition = "Stalled"
	// StarvedCondition is True while the source of an environment changes so often that no
	// revision soaks as long as the gates require. It is absent otherwise.
	StarvedCondition = "Starved"
	// AppSharedCondition is True while another Pipeline promotes into an application into
	// which this one promotes.
	AppSharedCondition = "AppShared"
	// WavesDivergedCondition is True while waves of an environment run different revisions because
	// one of them was rolled back. It is absent otherwise.
	WavesDivergedCondition = "WavesDiverged"
)

// Reasons of the WavesDiverged condition.
const (
	// WaveRolledBackReason: a wave was rolled back, and an earlier one was not.
	WaveRolledBackReason = "WaveRolledBack"
)

// Reasons of the AppShared condition.
const (
	// PromotedByOtherPipelineReason: two Pipelines promote into the same application.
	PromotedByOtherPipelineReason = "PromotedByOtherPipeline"
)

// Reasons of the Starved condition.
const (
	// SoakNeverEndsReason: several revisions in sequence were replaced before they had soaked.
	SoakNeverEndsReason = "SoakNeverEnds"
)

// Reasons of the Ready condition.
const (
	// ReconciliationSucceededReason: every target was read.
	ReconciliationSucceededReason = "ReconciliationSucceeded"
	// TargetClusterNotFoundReason: a clusterRef names an object that does not exist.
	TargetClusterNotFoundReason = "TargetClusterNotFound"
	// TargetClusterNotReadyReason: a GitopsCluster has the condition Ready=False.
	TargetClusterNotReadyReason = "TargetClusterNotReady"
	// TargetNotReadableReason: an application could not be read, or its observation is
	// stale.
	TargetNotReadableReason = "TargetNotReadable"
	// ProgressingReason: some targets have not been observed yet (Unknown).
	ProgressingReason = "Progressing"
	// InvalidSpecReason: the spec cannot be executed. Also a reason of Stalled.
	InvalidSpecReason = "InvalidSpec"
)

// Reasons of the PromotionPending condition.
const (
	// EnvironmentNotReadyReason: the targets of the first environment run different
	// revisions, or are not ready.
	EnvironmentNotReadyReason = "EnvironmentNotReady"
)

// Reasons of the Stalled condition.
const (
	// PromotionStalledReason: a promotion is older than --stall-after.
	PromotionStalledReason = "PromotionStalled"
	// PromotionFailedReason: the newest promotion into an environment failed and
	// waits for a change of the pipeline, of a Secret, or for spec.retry.
	PromotionFailedReason = "PromotionFailed"
)
