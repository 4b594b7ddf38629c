package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Attempt is one attempt to execute a promotion.
type Attempt struct {
	// Number of the attempt, from 1.
	Number int64 `json:"number"`

	// StartTime is when the attempt began.
	// +optional
	StartTime metav1.MicroTime `json:"startTime,omitzero"`

	// Holder is the process that makes the attempt.
	Holder string `json:"holder"`

	// NextAttemptTime is the earliest time of the next attempt. While this attempt
	// may still run, it is the deadline of this attempt. After this attempt has failed,
	// it is the end of the backoff.
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

	// Failures is the number of consecutive failed attempts, including this one. The
	// backoff depends on it.
	// +optional
	Failures int64 `json:"failures,omitempty"`
}

// PromotionFailure describes failures in sequence.
type PromotionFailure struct {
	// Reason of the newest failure. It becomes the reason of the phase Failed.
	Reason string `json:"reason"`

	// Count of the failures in sequence.
	Count int64 `json:"count"`

	// FirstTime is the time of the first failure of the sequence.
	// +optional
	FirstTime metav1.MicroTime `json:"firstTime,omitzero"`

	// RetryTime is when the hub tries a failed promotion again. It is absent if only a
	// change of the spec or of the Secret can fix the failure.
	// +optional
	RetryTime *metav1.MicroTime `json:"retryTime,omitempty"`
}
