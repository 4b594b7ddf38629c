package capa

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// API groups.
const (
	// GroupInfrastructure is the group of CAPA's infrastructure kinds.
	GroupInfrastructure = "infrastructure.cluster.x-k8s.io"
	// GroupControlPlane is the group of CAPA's control planes for EKS and ROSA.
	GroupControlPlane = "controlplane.cluster.x-k8s.io"
)

// API versions. Readers of watchers ignore the version and return the served one. A client
// of the API server needs a version.
const (
	// Version is the version that CAPA serves for all kinds below.
	Version = "v1beta2"
)

// CoreVersion is the newest version of Cluster API's core kinds.
var CoreVersion = clusterv1.GroupVersion.Version

// Kinds of Cluster API. Its API package has a constant for the kind Cluster only.
var (
	Cluster           = core(clusterv1.ClusterKind)
	Machine           = core("Machine")
	MachineDeployment = core("MachineDeployment")
	MachineSet        = core("MachineSet")
	MachinePool       = core("MachinePool")
)

// Kinds of CAPA.
var (
	AWSCluster             = infrastructure("AWSCluster")
	AWSClusterRoleIdentity = infrastructure("AWSClusterRoleIdentity")
	// AWSClusterControllerIdentity is the identity of CAPA itself, and AWSClusterStaticIdentity one with keys in a Secret.
	AWSClusterControllerIdentity = infrastructure("AWSClusterControllerIdentity")
	AWSClusterStaticIdentity     = infrastructure("AWSClusterStaticIdentity")
	AWSMachine                   = infrastructure("AWSMachine")
	AWSMachinePool               = infrastructure("AWSMachinePool")
	AWSMachineTemplate           = infrastructure("AWSMachineTemplate")
	AWSManagedMachinePool        = infrastructure("AWSManagedMachinePool")
	ROSAMachinePool              = infrastructure("ROSAMachinePool")
	AWSManagedControlPlane       = schema.GroupKind{Group: GroupControlPlane, Kind: "AWSManagedControlPlane"}
	ROSAControlPlane             = schema.GroupKind{Group: GroupControlPlane, Kind: "ROSAControlPlane"}
)

func core(kind string) schema.GroupKind {
	return schema.GroupKind{Group: clusterv1.GroupVersion.Group, Kind: kind}
}

func infrastructure(kind string) schema.GroupKind {
	return schema.GroupKind{Group: GroupInfrastructure, Kind: kind}
}

// Resource returns the resource of a kind in this package, such as awsmachinepools.
func Resource(kind schema.GroupKind) schema.GroupResource {
	plural, _ := meta.UnsafeGuessKindToResource(kind.WithVersion(Version))
	return plural.GroupResource()
}

// placeFields are the fields that PlaceOf, RoleOf and ClusterPaused read.
var placeFields = map[schema.GroupKind][]string{
	Cluster:                      {"spec.paused", "spec.infrastructureRef", "spec.controlPlaneRef"},
	AWSCluster:                   {"spec.region", "spec.identityRef"},
	AWSManagedControlPlane:       {"spec.region", "spec.identityRef"},
	ROSAControlPlane:             {"spec.region", "spec.identityRef"},
	AWSClusterRoleIdentity:       {"spec.roleARN", "spec.externalID", "spec.sessionName", "spec.allowedNamespaces", "spec.sourceIdentityRef"},
	AWSClusterControllerIdentity: {"spec.allowedNamespaces"},
	AWSClusterStaticIdentity:     {"spec.allowedNamespaces"},
}

// PlaceKinds returns the kinds that PlaceOf, RoleOf and ClusterPaused read.
func PlaceKinds() []schema.GroupKind {
	return append([]schema.GroupKind{Cluster, AWSCluster, AWSManagedControlPlane, ROSAControlPlane}, identityKinds...)
}

// PlaceFields returns the fields of a kind of PlaceKinds that must be kept in memory, as
// paths such as "spec.region". It returns nil for other kinds.
func PlaceFields(kind schema.GroupKind) []string { return placeFields[kind] }

// PlaceAnnotation reports whether an annotation must be kept in memory for PlaceOf, Paused
// and ClusterPaused.
func PlaceAnnotation(key string) bool {
	return key == clusterv1.PausedAnnotation || key == RegionAnnotation
}
