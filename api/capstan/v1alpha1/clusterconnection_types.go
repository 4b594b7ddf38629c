package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// ClusterConnectionKind is the kind of a ClusterConnection.
const ClusterConnectionKind = "ClusterConnection"

// ConnectionState is the state of the connection to one workload cluster.
// +kubebuilder:validation:Enum=Unused;Connecting;Ready;Degraded;Unreachable;AuthFailed;Removed
type ConnectionState string

// States of a connection. These seven are the only ones; what is finer is a
// reason. The table of how one leads to another is clusters'.
const (
	// ConnectionUnused: nothing demands the cluster.
	ConnectionUnused ConnectionState = "Unused"
	// ConnectionConnecting: demanded, and not yet heard of.
	ConnectionConnecting ConnectionState = "Connecting"
	// ConnectionReady: answers, and every demanded kind is synced.
	ConnectionReady ConnectionState = "Ready"
	// ConnectionDegraded: answers, with something amiss.
	ConnectionDegraded ConnectionState = "Degraded"
	// ConnectionUnreachable: does not answer.
	ConnectionUnreachable ConnectionState = "Unreachable"
	// ConnectionAuthFailed: the credentials are missing, refused or rejected.
	ConnectionAuthFailed ConnectionState = "AuthFailed"
	// ConnectionRemoved: the cluster object is gone or going.
	ConnectionRemoved ConnectionState = "Removed"
)

// ClusterConnectionSpec names the cluster.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a ClusterConnection belongs to one cluster for good"
type ClusterConnectionSpec struct {
	// ClusterRef names the object that the credentials belong to.
	// +required
	ClusterRef pipelinesv1.CrossNamespaceClusterReference `json:"clusterRef"`
}

// ClusterConnectionStatus is what the hub knows of the connection, written only
// when it changes.
type ClusterConnectionStatus struct {
	// State of the connection.
	// +optional
	State ConnectionState `json:"state,omitempty"`

	// Reason for the state, in one word.
	// +optional
	Reason string `json:"reason,omitempty"`

	// Message for people: what is wrong and how to mend it.
	// +optional
	Message string `json:"message,omitempty"`

	// ObservedGeneration is the generation of the spec that the status was last
	// worked out from.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// LastTransitionTime is when the state last changed.
	// +optional
	LastTransitionTime *metav1.Time `json:"lastTransitionTime,omitempty"`

	// KubernetesVersion that the cluster's API server reports.
	// +optional
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`

	// Server is the address of the API server.
	// +optional
	Server string `json:"server,omitempty"`

	// CredentialExpiryTime is when the client certificate or token expires. It is
	// not set where the credentials do not contain that time.
	// +optional
	CredentialExpiryTime *metav1.Time `json:"credentialExpiryTime,omitempty"`

	// Kinds that are watched in the cluster.
	// +optional
	// +listType=map
	// +listMapKey=kind
	Kinds []WatchedKind `json:"kinds,omitempty"`

	// Apps is how many applications are followed in the cluster.
	// +optional
	Apps int32 `json:"apps,omitempty"`

	// Conditions hold Ready, for tools that wait for it.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Deprecated: the former name of lastTransitionTime. It is read from objects that
	// an earlier version wrote, and never written.
	// +optional
	FormerSince *metav1.Time `json:"since,omitempty"`

	// Deprecated: the former name of credentialExpiryTime. It is read from objects
	// that an earlier version wrote, and never written.
	// +optional
	FormerCredentialExpiry *metav1.Time `json:"credentialExpiry,omitempty"`
}

// WatchedKind is a kind that is watched in a cluster.
type WatchedKind struct {
	// Kind and group, such as HelmRelease.helm.toolkit.fluxcd.io.
	Kind string `json:"kind"`

	// Version that the cluster serves and the hub reads.
	// +optional
	Version string `json:"version,omitempty"`

	// Synced is whether the initial list is done.
	Synced bool `json:"synced"`

	// Reason why it is not synced, in one word.
	// +optional
	Reason string `json:"reason,omitempty"`

	// Message for people.
	// +optional
	Message string `json:"message,omitempty"`
}

// ClusterConnection is what the hub knows of one workload cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=capstan,shortName=ccn
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=".status.state"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=".status.reason"
// +kubebuilder:printcolumn:name="Since",type=date,JSONPath=".status.lastTransitionTime"
// +kubebuilder:printcolumn:name="Apps",type=integer,JSONPath=".status.apps"
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=".status.kubernetesVersion"
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=".status.credentialExpiryTime"
// +kubebuilder:printcolumn:name="Server",type=string,JSONPath=".status.server",priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=".status.message",priority=1
type ClusterConnection struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ClusterConnectionSpec   `json:"spec"`
	Status ClusterConnectionStatus `json:"status,omitempty"`
}

// ClusterConnectionList is a list of ClusterConnections.
//
// +kubebuilder:object:root=true
type ClusterConnectionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterConnection `json:"items"`
}
