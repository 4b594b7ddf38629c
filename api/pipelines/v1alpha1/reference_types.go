package v1alpha1

import "slices"

// LocalAppReference names an application in a namespace that is defined by the context.
type LocalAppReference struct {
	// APIVersion of the application. Only the group is used: Capstan finds the version
	// that the cluster serves by discovery.
	// +required
	APIVersion string `json:"apiVersion"`

	// Kind of the application, such as HelmRelease.
	// +required
	Kind string `json:"kind"`

	// Name of the application.
	// +required
	Name string `json:"name"`
}

// Kinds that a cluster reference may have.
const (
	// ClusterKindGitopsCluster is gitops.weave.works GitopsCluster.
	ClusterKindGitopsCluster = "GitopsCluster"
	// ClusterKindCluster is cluster.x-k8s.io Cluster.
	ClusterKindCluster = "Cluster"
	// ClusterKindClusterProfile is multicluster.x-k8s.io ClusterProfile, of the SIG Multicluster's cluster inventory API.
	ClusterKindClusterProfile = "ClusterProfile"
	// ClusterKindSecret is a Secret with a kubeconfig and ClusterSecretLabel.
	ClusterKindSecret = "Secret"
)

// ClusterSecretLabel on a Secret, with the value "true", permits that the Secret names a cluster. A Secret without it
// is not used, whatever it contains.
const ClusterSecretLabel = "capstan.dev/cluster"

// ClusterProfileSecretLabel on a Secret, with the value "true", permits that its token is sent to the cluster of the
// ClusterProfile with the same namespace and name.
const ClusterProfileSecretLabel = "capstan.dev/cluster-profile"

// ClusterKind is a kind of objects that name clusters.
// +kubebuilder:object:generate=false
type ClusterKind struct{ Group, Kind, Resource string }

// ClusterKinds returns every kind that a cluster reference may have, in the order of their names.
func ClusterKinds() []ClusterKind {
	return []ClusterKind{
		{"cluster.x-k8s.io", ClusterKindCluster, "clusters"},
		{"multicluster.x-k8s.io", ClusterKindClusterProfile, "clusterprofiles"},
		{GitopsClusterGroup, ClusterKindGitopsCluster, "gitopsclusters"},
		{"", ClusterKindSecret, "secrets"},
	}
}

// IsClusterKind returns whether a cluster reference may have a kind.
func IsClusterKind(kind string) bool {
	return slices.ContainsFunc(ClusterKinds(), func(k ClusterKind) bool { return k.Kind == kind })
}

// ClusterKindNames returns the kinds that a cluster reference may have, as text: "A, B or C".
func ClusterKindNames() string {
	text := ""
	kinds := ClusterKinds()
	for i, k := range kinds {
		switch i {
		case 0:
		case len(kinds) - 1:
			text += " or "
		default:
			text += ", "
		}
		text += k.Kind
	}
	return text
}

// GitopsClusterGroup is the API group of GitopsCluster.
const GitopsClusterGroup = "gitops.weave.works"

// CrossNamespaceClusterReference names a cluster.
type CrossNamespaceClusterReference struct {
	// APIVersion of the cluster object.
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`

	// Kind of the cluster object. A Secret must have the label capstan.dev/cluster: "true".
	// +kubebuilder:validation:Enum=GitopsCluster;Cluster;Secret;ClusterProfile
	// +required
	Kind string `json:"kind"`

	// Name of the cluster object.
	// +required
	Name string `json:"name"`

	// Namespace of the cluster object. The default is the namespace of the pipeline.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// ClusterAppReference names an application in a cluster.
type ClusterAppReference struct {
	LocalAppReference `json:",inline"`

	// ClusterRef names the cluster. It is not set for the management cluster.
	// +optional
	ClusterRef *CrossNamespaceClusterReference `json:"clusterRef,omitempty"`
}

// LocalObjectReference names an object in the same namespace.
type LocalObjectReference struct {
	// Name of the object.
	// +required
	Name string `json:"name"`
}
