package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EventingBackendKind is the kind of an EventingBackend.
const EventingBackendKind = "EventingBackend"

// BackendFinalizer is on EventingBackends that the hub publishes to. It delays the
// deletion of the object until the queued events are sent.
const BackendFinalizer = "capstan.dev/eventing-backend"

// The label of EventingBackends. It informs users; Capstan does not select by it.
const (
	BackendLabel      = "kyma-project.io/eventing"
	BackendLabelValue = "backend"
)

// ConfigEntry is one item of spec.config: a key and its value, such as
// `maxInFlightMessages: 10`. An item with several keys has the same effect as several
// items.
//
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:MaxProperties=64
type ConfigEntry map[string]ConfigValue

// EventingBackendSpec contains the type and the configuration of the backend.
type EventingBackendSpec struct {
	// Type of the backend: nats, beb, sqs or http. GET /backend lists them.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Type string `json:"type"`

	// Config of the backend: its keys and values. GET /backend/{type} lists the keys.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	Config []ConfigEntry `json:"config,omitempty"`
}

// The key of a backend that the hub can read from, and its value for one that it reads.
const (
	RoleKey    = "role"
	RoleSource = "source"
)

// IsSource reports whether the configuration says that the hub reads from the backend. It does
// not check the configuration.
func (s *EventingBackendSpec) IsSource() bool {
	for _, entry := range s.Config {
		if value, set := entry[RoleKey]; set && string(value.Raw) == `"`+RoleSource+`"` {
			return true
		}
	}
	return false
}

// ValidationErrorType is the kind of a validation error.
// +kubebuilder:validation:Enum=invalid-data-type-error;invalid-value-error;unsupported-config-error
type ValidationErrorType string

// Kinds of validation errors. The proposal has these three.
const (
	// InvalidDataType: the value does not have the data type of the key.
	InvalidDataType ValidationErrorType = "invalid-data-type-error"
	// InvalidValue: the value has the right data type but is not allowed. Also used for a
	// required key that is missing, and for a key that is set more than once.
	InvalidValue ValidationErrorType = "invalid-value-error"
	// UnsupportedConfig: the backend type has no such key.
	UnsupportedConfig ValidationErrorType = "unsupported-config-error"
)

// ValidationError describes an error in one key of spec.config, or in spec.type.
type ValidationError struct {
	// Type of the error.
	Type ValidationErrorType `json:"type"`

	// Config is the key; "type" for spec.type.
	Config string `json:"config"`

	// Value that was found, as text. A long value is shortened. A value that may
	// contain a credential is omitted.
	Value string `json:"value"`

	// Error describes what is wrong.
	Error string `json:"error"`
}

// Delivery is the state of the events of a backend on the replica that leads: of the queue that a
// source reads, or of the events that wait to be published. It is written when it has changed, at
// most once a minute, but for a test.
type Delivery struct {
	// Waiting is the number of events that wait: in the queue of a source, as SQS last counted
	// them, or in the hub.
	// +optional
	Waiting int64 `json:"waiting"`

	// InFlight is the number of messages of a source that a reader has received and not settled.
	// +optional
	InFlight int64 `json:"inFlight,omitempty"`

	// OldestWaiting is since when the oldest event waits that the hub knows of.
	// +optional
	OldestWaiting *metav1.Time `json:"oldestWaiting,omitempty"`

	// LastSuccess is when the queue was last read, or an event was last accepted. While nothing
	// else changes, it is up to five minutes old.
	// +optional
	LastSuccess *metav1.Time `json:"lastSuccess,omitempty"`

	// RefusedInARow is the number of events that the receiver refused since it last accepted one.
	// +optional
	RefusedInARow int64 `json:"refusedInARow,omitempty"`

	// DeadLetters is the number of messages in the dead-letter queue of a source.
	// +optional
	DeadLetters int64 `json:"deadLetters,omitempty"`

	// GivenUp is the number of events that were given up for a permanent reason and stored
	// nowhere.
	// +optional
	GivenUp int64 `json:"givenUp,omitempty"`

	// LastGivenUp is the last one of them.
	// +optional
	LastGivenUp *GivenUp `json:"lastGivenUp,omitempty"`

	// LastTest is the last test event of capstan aws-eventing check that a source received. It is
	// written at once.
	// +optional
	LastTest *ReceivedTest `json:"lastTest,omitempty"`
}

// ReceivedTest is a test event that arrived in the queue of a source.
type ReceivedTest struct {
	// ID is the random id that the sender chose.
	ID string `json:"id"`

	// Account and region from which it was sent.
	Account string `json:"account"`
	Region  string `json:"region"`

	// Received is when the hub received it.
	Received metav1.Time `json:"received"`

	// Note says that the source does not accept other events of this account.
	// +optional
	Note string `json:"note,omitempty"`
}

// GivenUp says when and why an event was given up.
type GivenUp struct {
	// Time when it was given up.
	Time metav1.Time `json:"time"`

	// Reason, as in the metrics: the code of an error, or such as foreign or full.
	Reason string `json:"reason"`
}

// EventingBackendStatus is the observed state of the backend.
type EventingBackendStatus struct {
	// BackendType is the type of the backend that is in use.
	// +optional
	BackendType string `json:"backendType,omitempty"`

	// ValidationErrors of the spec. While there are any, the hub continues to use the
	// last valid configuration, if there was one.
	// +optional
	// +listType=atomic
	ValidationErrors []ValidationError `json:"validationErrors,omitempty"`

	// Conditions report the state of the parts that the backend depends on.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`

	// EventingReady is true when all conditions are True.
	// +optional
	EventingReady *bool `json:"eventingReady,omitempty"`

	// FixedConfig contains the keys that cannot be changed, and their values. It is set
	// when the backend is first connected with this type.
	// +optional
	FixedConfig map[string]string `json:"fixedConfig,omitempty"`

	// Delivery is the state of the events.
	// +optional
	Delivery *Delivery `json:"delivery,omitempty"`

	// ObservedGeneration is the generation of the spec that the status belongs to.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// Condition returns the condition of a type; nil when there is none.
func (s *EventingBackendStatus) Condition(kind string) *Condition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == kind {
			return &s.Conditions[i]
		}
	}
	return nil
}

// DeliveryTime returns a time for Delivery, with a precision of one second; nil for the zero time.
func DeliveryTime(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t.Truncate(time.Second)}
}

// EventingBackend is an event backend: a broker, bus, queue or endpoint.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=capstan,shortName=ebe
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=".spec.type"
// +kubebuilder:printcolumn:name="Eventing Ready",type=boolean,JSONPath=".status.eventingReady"
// +kubebuilder:printcolumn:name="Backend",type=string,JSONPath=".status.conditions[?(@.type==\"Backend Ready\")].status"
// +kubebuilder:printcolumn:name="Publisher",type=string,JSONPath=".status.conditions[?(@.type==\"Publisher Proxy Ready\")].status"
// +kubebuilder:printcolumn:name="Subscriptions",type=string,JSONPath=".status.conditions[?(@.type==\"Subscription Controller Ready\")].status"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Waiting",type=integer,JSONPath=".status.delivery.waiting",priority=1
// +kubebuilder:printcolumn:name="Oldest",type=date,JSONPath=".status.delivery.oldestWaiting",priority=1
// +kubebuilder:printcolumn:name="Last Success",type=date,JSONPath=".status.delivery.lastSuccess",priority=1
// +kubebuilder:printcolumn:name="Refused",type=integer,JSONPath=".status.delivery.refusedInARow",priority=1
// +kubebuilder:printcolumn:name="Given Up",type=integer,JSONPath=".status.delivery.givenUp",priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=".status.conditions[?(@.type==\"Ready\")].message",priority=1
type EventingBackend struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   EventingBackendSpec   `json:"spec"`
	Status EventingBackendStatus `json:"status,omitempty"`
}

// EventingBackendList is a list of EventingBackends.
//
// +kubebuilder:object:root=true
type EventingBackendList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []EventingBackend `json:"items"`
}
