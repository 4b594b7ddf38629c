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

// States of a connection. The reason gives the details. Package clusters contains the
// table of transitions.
const (
	// ConnectionUnused: no Pipeline uses the cluster.
	ConnectionUnused ConnectionState = "Unused"
	// ConnectionConnecting: the hub connects to the cluster, which has not responded yet.
	ConnectionConnecting ConnectionState = "Connecting"
	// ConnectionReady: the cluster responds, and every watched kind is synced.
	ConnectionReady ConnectionState = "Ready"
	// ConnectionDegraded: the cluster responds, but with a problem that the reason names.
	ConnectionDegraded ConnectionState = "Degraded"
	// ConnectionUnreachable: the cluster does not respond.
	ConnectionUnreachable ConnectionState = "Unreachable"
	// ConnectionAuthFailed: the credentials are missing, or the hub or the cluster rejects
	// them.
	ConnectionAuthFailed ConnectionState = "AuthFailed"
	// ConnectionRemoved: the cluster object does not exist or is being deleted.
	ConnectionRemoved ConnectionState = "Removed"
)

// ClusterConnectionSpec names the cluster.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec cannot be changed: each cluster has a ClusterConnection of its own"
type ClusterConnectionSpec struct {
	// ClusterRef names the object that the credentials belong to.
	// +required
	ClusterRef pipelinesv1.CrossNamespaceClusterReference `json:"clusterRef"`
}

// ClusterConnectionStatus is the observed state of the connection. The hub writes it
// only when it changes.
type ClusterConnectionStatus struct {
	// State of the connection.
	// +optional
	State ConnectionState `json:"state,omitempty"`

	// Reason for the state, in one word.
	// +optional
	Reason string `json:"reason,omitempty"`

	// Message for users: what is wrong and how to fix it.
	// +optional
	Message string `json:"message,omitempty"`

	// ObservedGeneration is the generation of the spec that the status was last
	// computed from.
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

	// CredentialIssuedTime is when the client certificate or token that expires at
	// credentialExpiryTime was issued. It is not set where the credentials do not contain that time.
	// +optional
	CredentialIssuedTime *metav1.Time `json:"credentialIssuedTime,omitempty"`

	// Kinds that are watched in the cluster.
	// +optional
	// +listType=map
	// +listMapKey=kind
	Kinds []WatchedKind `json:"kinds,omitempty"`

	// Apps is the number of applications that the hub watches in the cluster.
	// +optional
	Apps int32 `json:"apps,omitempty"`

	// Conditions contain Ready, for tools that wait for it.
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

	// Synced is true when the initial list is complete.
	Synced bool `json:"synced"`

	// Reason why the kind is not synced, in one word.
	// +optional
	Reason string `json:"reason,omitempty"`

	// Message for users.
	// +optional
	Message string `json:"message,omitempty"`
}

// ClusterConnection shows the state of the hub's connection to one workload cluster.
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
