package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condition types of an EventingBackend, as the proposal spells them.
const (
	// BackendReadyCondition is True when the configuration is valid, its Secret can
	// be read and the backend responds.
	BackendReadyCondition = "Backend Ready"
	// PublisherProxyReadyCondition is True when the hub's publisher for the backend
	// sends events and its queue is not full.
	PublisherProxyReadyCondition = "Publisher Proxy Ready"
	// SubscriptionControllerReadyCondition is True when the hub reads from the
	// backend without errors.
	SubscriptionControllerReadyCondition = "Subscription Controller Ready"
	// ReadyCondition is True when the three others are True. Tools can wait for this name,
	// because it contains no spaces.
	ReadyCondition = "Ready"
)

// Reasons of the conditions, as the proposal spells them. For cases that the proposal
// does not cover, the reasons are those of Kyma's own controllers.
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

// Messages of conditions that are True because the backend does not have that part.
const (
	// SourceOnlyMessage is the message of Publisher Proxy Ready when the hub does not
	// publish to the backend.
	SourceOnlyMessage = "source-only backend"
	// PublishOnlyMessage is the message of Subscription Controller Ready when the hub does
	// not read from the backend.
	PublishOnlyMessage = "publish-only backend"
)

// Condition is the state of one part that a backend depends on. It is not a
// metav1.Condition: the types and reasons of the proposal contain spaces, which
// metav1.Condition does not allow.
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

	// Reason for the status: a short constant text for programs.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`

	// Message for users: what is wrong and how to fix it.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	Message string `json:"message,omitempty"`
}
