package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condition types of an EventingBackend, as the proposal spells them.
const (
	// BackendReadyCondition is True when the configuration is valid, its Secret can
	// be read and the backend answers.
	BackendReadyCondition = "Backend Ready"
	// PublisherProxyReadyCondition is True when the hub's publisher for the backend
	// runs and keeps up.
	PublisherProxyReadyCondition = "Publisher Proxy Ready"
	// SubscriptionControllerReadyCondition is True when what the hub reads from the
	// backend is being read.
	SubscriptionControllerReadyCondition = "Subscription Controller Ready"
	// ReadyCondition is True when the three others are: a name that tools can wait for.
	ReadyCondition = "Ready"
)

// Reasons of the conditions, as the proposal spells them; and, for what it has no
// words for, those that Kyma's own controllers used.
const (
	BackendReadyReason           = "Backend ready"
	BackendNotReadyReason        = "Backend not ready"
	InvalidConfigReason          = "The provided spec.config has validation errors"
	PublisherReadyReason         = "Publisher proxy deployment ready"
	PublisherNotReadyReason      = "Publisher proxy deployment not ready"
	SubscriptionsStartedReason   = "Subscription controller started"
	SubscriptionsNotReadyReason  = "Subscription controller not ready"
	SubscriptionsNotStartReason  = "Starting the controller failed"
	SubscriptionsNotStopReason   = "Stopping the controller failed"
	PublisherSecretNotSyncReason = "Publisher proxy secret sync failed"
)

// Messages of conditions that are True because there is nothing to be ready.
const (
	// SourceOnlyMessage is of Publisher Proxy Ready, where nothing is published.
	SourceOnlyMessage = "source-only backend"
	// PublishOnlyMessage is of Subscription Controller Ready, where nothing is read.
	PublishOnlyMessage = "publish-only backend"
)

// Condition is one thing that a backend depends on. It is not a metav1.Condition,
// whose type and reason may hold no spaces: the proposal's do.
type Condition struct {
	// Type of the condition.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Type string `json:"type"`

	// Status is True, False or Unknown.
	// +kubebuilder:validation:Enum="True";"False";Unknown
	Status metav1.ConditionStatus `json:"status"`

	// LastTransitionTime is when the status last changed.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`

	// Reason for the status, in a few words that stay the same.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`

	// Message for people: what is wrong and how to mend it.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	Message string `json:"message,omitempty"`
}
