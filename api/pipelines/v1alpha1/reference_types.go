package v1alpha1

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
)

// GitopsClusterGroup is the API group of GitopsCluster.
const GitopsClusterGroup = "gitops.weave.works"

// CrossNamespaceClusterReference names a cluster.
type CrossNamespaceClusterReference struct {
	// APIVersion of the cluster object.
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`

	// Kind of the cluster object.
	// +kubebuilder:validation:Enum=GitopsCluster;Cluster
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
