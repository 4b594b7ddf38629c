package annotator

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/hub/annotator/annotation"
	"github.com/capstan-hub/capstan/internal/capa"
	"github.com/capstan-hub/capstan/watchers"
)

// groupFields are the fields of a node group that reference its objects. They are the same in
// every version of MachineDeployment, MachineSet and MachinePool.
var groupFields = []string{
	"spec.clusterName",
	"spec.template.metadata.labels",
	"spec.template.spec.infrastructureRef",
	"spec.template.spec.failureDomain",
	"spec.failureDomains",
}

// machineFields are the fields of a machine's specification, in a template or in the launch template
// of a pool.
func machineFields(at string) []string {
	fields := []string{"instanceType", "rootVolume.size", "nonRootVolumes", "imageLookupBaseOS", "imageLookupFormat", "ami.id"}
	for i := range fields {
		fields[i] = at + "." + fields[i]
	}
	return fields
}

// fields are the fields of each kind that this package reads, besides capa.PlaceFields.
var fields = map[schema.GroupKind][]string{
	capa.MachineDeployment:     groupFields,
	capa.MachineSet:            groupFields,
	capa.MachinePool:           groupFields,
	capa.AWSMachineTemplate:    append([]string{"status.nodeInfo.operatingSystem"}, machineFields("spec.template.spec")...),
	capa.AWSMachinePool:        append([]string{"spec.mixedInstancesPolicy.overrides"}, machineFields("spec.awsLaunchTemplate")...),
	capa.AWSManagedMachinePool: append([]string{"spec.instanceType", "spec.diskSize", "spec.amiType"}, machineFields("spec.awsLaunchTemplate")...),
	capa.ROSAMachinePool:       {"spec.instanceType", "spec.volumeSize"},
}

// nodeGroups returns the kinds that are annotated.
func nodeGroups() []schema.GroupKind {
	return []schema.GroupKind{capa.MachineDeployment, capa.MachineSet, capa.MachinePool}
}

// behind returns the kinds that a reconciler of node groups reads in addition.
func behind(kind schema.GroupKind) []schema.GroupKind {
	if kind == capa.MachinePool {
		return append(capa.PlaceKinds(), capa.AWSMachinePool, capa.AWSManagedMachinePool, capa.ROSAMachinePool)
	}
	return append(capa.PlaceKinds(), capa.AWSMachineTemplate)
}

// Kind returns how watchers read a kind for this package, and false for a kind that it does
// not read.
func Kind(kind schema.GroupKind) (watchers.Kind, bool) {
	kept := slices.Concat(fields[kind], capa.PlaceFields(kind))
	if len(kept) == 0 {
		return watchers.Kind{}, false
	}
	reduce := watchers.Excerpt{Fields: kept, Annotations: func(key string) bool {
		return annotation.Concerns(key) || capa.PlaceAnnotation(key) || key == MaxPodsAnnotation
	}}.Reducer()
	// A MachineDeployment may own several MachineSets. Of those only the identity is kept.
	owned := watchers.Excerpt{}.Reducer()
	return watchers.Kind{
		GroupKind:     kind,
		ClusterScoped: capa.Identity(kind),
		Reduce: func(u *unstructured.Unstructured) (client.Object, error) {
			if kind == capa.MachineSet && capa.OwnedByDeployment(u) {
				out := owned(u)
				out.SetOwnerReferences(u.GetOwnerReferences())
				return out, nil
			}
			return reduce(u), nil
		},
	}, true
}

// MaxPodsAnnotation on a Cluster says how the pods of its nodes are counted, in place
// of --max-pods: off, eni, prefix-delegation, fixed or fixed=N.
const MaxPodsAnnotation = "capstan.dev/max-pods"
