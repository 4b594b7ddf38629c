package v1alpha1

// Condition types of a Pipeline.
const (
	// ReadyCondition is True when every target could be read; the applications
	// need not be healthy.
	ReadyCondition = "Ready"
	// PromotionPendingCondition is True while the first environment does not
	// agree on one ready revision.
	PromotionPendingCondition = "PromotionPending"
	// StalledCondition is True while something keeps the pipeline from going on
	// that it cannot mend by itself (kstatus).
	StalledCondition = "Stalled"
)

// Reasons of the Ready condition.
const (
	// ReconciliationSucceededReason: every target was read.
	ReconciliationSucceededReason = "ReconciliationSucceeded"
	// TargetClusterNotFoundReason: a clusterRef names an object that does not exist.
	TargetClusterNotFoundReason = "TargetClusterNotFound"
	// TargetClusterNotReadyReason: a GitopsCluster says that it is not ready.
	TargetClusterNotReadyReason = "TargetClusterNotReady"
	// TargetNotReadableReason: an application could not be read, or is not fresh.
	TargetNotReadableReason = "TargetNotReadable"
	// ProgressingReason: some targets have not been looked at yet (Unknown).
	ProgressingReason = "Progressing"
	// InvalidSpecReason: the spec cannot be carried out. Also of Stalled.
	InvalidSpecReason = "InvalidSpec"
)

// Reasons of the PromotionPending condition.
const (
	// EnvironmentNotReadyReason: the first environment's targets differ, or are
	// not ready.
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
