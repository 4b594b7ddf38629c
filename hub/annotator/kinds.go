package annotator

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/hub/annotator/annotation"
	"github.com/capstan-hub/capstan/watchers"
)

// Groups of Cluster API.
const (
	groupCore           = "cluster.x-k8s.io"
	groupInfrastructure = "infrastructure.cluster.x-k8s.io"
	groupControlPlane   = "controlplane.cluster.x-k8s.io"
)

// The kinds that are annotated, and those that say what a node of them would be.
var (
	MachineDeployment = schema.GroupKind{Group: groupCore, Kind: "MachineDeployment"}
	MachineSet        = schema.GroupKind{Group: groupCore, Kind: "MachineSet"}
	MachinePool       = schema.GroupKind{Group: groupCore, Kind: "MachinePool"}

	clusterKind         = schema.GroupKind{Group: groupCore, Kind: "Cluster"}
	awsMachineTemplate  = schema.GroupKind{Group: groupInfrastructure, Kind: "AWSMachineTemplate"}
	awsMachinePool      = schema.GroupKind{Group: groupInfrastructure, Kind: "AWSMachinePool"}
	awsManagedPool      = schema.GroupKind{Group: groupInfrastructure, Kind: "AWSManagedMachinePool"}
	rosaMachinePool     = schema.GroupKind{Group: groupInfrastructure, Kind: "ROSAMachinePool"}
	awsCluster          = schema.GroupKind{Group: groupInfrastructure, Kind: "AWSCluster"}
	awsRoleIdentity     = schema.GroupKind{Group: groupInfrastructure, Kind: "AWSClusterRoleIdentity"}
	awsManagedPlane     = schema.GroupKind{Group: groupControlPlane, Kind: "AWSManagedControlPlane"}
	rosaPlane           = schema.GroupKind{Group: groupControlPlane, Kind: "ROSAControlPlane"}
	resourceOfAnnotated = map[schema.GroupKind]string{
		MachineDeployment: "machinedeployments",
		MachineSet:        "machinesets",
		MachinePool:       "machinepools",
	}
)

// groupFields are where a node group says what is behind it; the same in every
// version of MachineDeployment, MachineSet and MachinePool.
var groupFields = []string{
	"spec.clusterName",
	"spec.template.metadata.labels",
	"spec.template.spec.infrastructureRef",
	"spec.template.spec.failureDomain",
	"spec.failureDomains",
}

// launchTemplate are the fields of a launch template in a pool.
var launchTemplate = []string{
	"spec.awsLaunchTemplate.instanceType",
	"spec.awsLaunchTemplate.rootVolume.size",
}

// fields of each kind that are kept of it: all that is ever read here.
var fields = map[schema.GroupKind][]string{
	MachineDeployment:  groupFields,
	MachineSet:         groupFields,
	MachinePool:        groupFields,
	clusterKind:        {"spec.paused", "spec.infrastructureRef", "spec.controlPlaneRef"},
	awsMachineTemplate: {"spec.template.spec.instanceType", "spec.template.spec.rootVolume.size", "status.nodeInfo.operatingSystem"},
	awsMachinePool:     append([]string{"spec.mixedInstancesPolicy.overrides"}, launchTemplate...),
	awsManagedPool:     append([]string{"spec.instanceType", "spec.diskSize", "spec.amiType"}, launchTemplate...),
	rosaMachinePool:    {"spec.instanceType", "spec.volumeSize"},
	awsCluster:         {"spec.region", "spec.identityRef"},
	awsManagedPlane:    {"spec.region", "spec.identityRef"},
	rosaPlane:          {"spec.region", "spec.identityRef"},
	awsRoleIdentity:    {"spec.roleARN", "spec.externalID", "spec.sessionName", "spec.allowedNamespaces"},
}

// behind are the kinds that a reconciler of node groups reads beside them.
func behind(kind schema.GroupKind) []schema.GroupKind {
	all := []schema.GroupKind{clusterKind, awsCluster, awsManagedPlane, rosaPlane, awsRoleIdentity}
	if kind == MachinePool {
		return append(all, awsMachinePool, awsManagedPool, rosaMachinePool)
	}
	return append(all, awsMachineTemplate)
}

// Kind is how watchers read a kind for this package; false for kinds that are not its.
func Kind(kind schema.GroupKind) (watchers.Kind, bool) {
	kept, known := fields[kind]
	if !known {
		return watchers.Kind{}, false
	}
	reduce := watchers.Excerpt{Fields: kept, Annotations: func(key string) bool {
		return annotation.Concerns(key) || slices.Contains(readAnnotations, key)
	}}.Reducer()
	// A MachineSet that a MachineDeployment owns, of which there may be several to each, is
	// its identity alone.
	owned := watchers.Excerpt{}.Reducer()
	return watchers.Kind{
		GroupKind:     kind,
		ClusterScoped: kind == awsRoleIdentity,
		Reduce: func(u *unstructured.Unstructured) (client.Object, error) {
			if kind == MachineSet && ownedByDeployment(u) {
				out := owned(u)
				out.SetOwnerReferences(u.GetOwnerReferences())
				return out, nil
			}
			return reduce(u), nil
		},
	}, true
}

// PausedAnnotation is Cluster API's, on any of its objects.
const PausedAnnotation = "cluster.x-k8s.io/paused"

// MaxPodsAnnotation on a Cluster says how the pods of its nodes are counted, in place
// of --max-pods: off, eni, prefix-delegation, fixed or fixed=N.
const MaxPodsAnnotation = "capstan.dev/max-pods"

// readAnnotations are those that are read beside the ones that are written.
var readAnnotations = []string{PausedAnnotation, RegionAnnotation, MaxPodsAnnotation}

// ownedByDeployment is whether a MachineSet is a MachineDeployment's, from which it
// has its annotations. cluster-autoscaler passes over it for the same reason.
func ownedByDeployment(u *unstructured.Unstructured) bool {
	for _, owner := range u.GetOwnerReferences() {
		group, _, _ := strings.Cut(owner.APIVersion, "/")
		if owner.Kind == MachineDeployment.Kind && group == groupCore {
			return true
		}
	}
	return false
}
