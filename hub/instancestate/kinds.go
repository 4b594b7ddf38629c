package instancestate

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/capstan-hub/capstan/hub/instancestate/owner"
	"github.com/capstan-hub/capstan/watchers"
)

const (
	groupCore           = "cluster.x-k8s.io"
	groupInfrastructure = "infrastructure.cluster.x-k8s.io"
	groupControlPlane   = "controlplane.cluster.x-k8s.io"

	// clusterNameLabel is Cluster API's, on whatever belongs to a Cluster.
	clusterNameLabel = "cluster.x-k8s.io/cluster-name"
	// pausedAnnotation is Cluster API's, on any of its objects.
	pausedAnnotation = "cluster.x-k8s.io/paused"
	// anyVersion stands for whichever is served, where watchers are asked.
	anyVersion = "v1beta2"
)

// The kinds that are labelled, and those that say where their instances are.
var (
	AWSMachine     = schema.GroupKind{Group: groupInfrastructure, Kind: "AWSMachine"}
	AWSMachinePool = schema.GroupKind{Group: groupInfrastructure, Kind: "AWSMachinePool"}

	clusterKind      = schema.GroupKind{Group: groupCore, Kind: "Cluster"}
	awsCluster       = schema.GroupKind{Group: groupInfrastructure, Kind: "AWSCluster"}
	awsRoleIdentity  = schema.GroupKind{Group: groupInfrastructure, Kind: "AWSClusterRoleIdentity"}
	awsManagedPlane  = schema.GroupKind{Group: groupControlPlane, Kind: "AWSManagedControlPlane"}
	rosaControlPlane = schema.GroupKind{Group: groupControlPlane, Kind: "ROSAControlPlane"}

	behind = []schema.GroupKind{clusterKind, awsCluster, awsManagedPlane, rosaControlPlane, awsRoleIdentity}
)

// fields of each kind that are kept of it: all that is ever read here.
var fields = map[schema.GroupKind][]string{
	AWSMachine:       {"spec.instanceID", "spec.providerID", "status.instanceState"},
	AWSMachinePool:   {"spec.providerID", "spec.providerIDList", "status.instances"},
	clusterKind:      {"spec.paused", "spec.infrastructureRef", "spec.controlPlaneRef"},
	awsCluster:       {"spec.region", "spec.identityRef"},
	awsManagedPlane:  {"spec.region", "spec.identityRef"},
	rosaControlPlane: {"spec.region", "spec.identityRef"},
	awsRoleIdentity:  {"spec.roleARN"},
}

var (
	keptLabels      = []string{clusterNameLabel, LabelEC2, LabelASG}
	keptAnnotations = []string{pausedAnnotation, AnnotationGuard, AnnotationEvent}
)

// Kind is how watchers read a kind for this package; false for kinds that are not its.
func Kind(kind schema.GroupKind) (watchers.Kind, bool) {
	kept, known := fields[kind]
	if !known {
		return watchers.Kind{}, false
	}
	reduce := watchers.Excerpt{
		Fields:      kept,
		Labels:      func(key string) bool { return slices.Contains(keptLabels, key) },
		Annotations: func(key string) bool { return slices.Contains(keptAnnotations, key) },
	}.Reducer()
	return watchers.Kind{
		GroupKind:     kind,
		ClusterScoped: kind == awsRoleIdentity,
		Reduce: func(u *unstructured.Unstructured) (client.Object, error) {
			out := reduce(u)
			if kind != AWSMachine {
				return out, nil
			}
			out.SetOwnerReferences(slices.DeleteFunc(u.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return !isMachine(r) }))
			if at := writtenAt(u, "f:status", "f:instanceState"); !at.IsZero() {
				out.SetManagedFields([]metav1.ManagedFieldsEntry{{Time: &metav1.Time{Time: at}}})
			}
			return out, nil
		},
	}, true
}

// writtenAt is when a field, or another one that the same manager writes, last changed,
// to the second; zero when the API server does not say.
func writtenAt(u *unstructured.Unstructured, field ...string) (last time.Time) {
	managed, _, _ := unstructured.NestedFieldNoCopy(u.Object, "metadata", "managedFields")
	entries, _ := managed.([]any)
	for _, entry := range entries {
		e, _ := entry.(map[string]any)
		if _, has, err := unstructured.NestedFieldNoCopy(e, append([]string{"fieldsV1"}, field...)...); err != nil || !has {
			continue
		}
		written, _, _ := unstructured.NestedString(e, "time")
		if at, err := time.Parse(time.RFC3339, written); err == nil && at.After(last) {
			last = at
		}
	}
	return last
}

// polledAt is when CAPA last wrote what it polled of a reduced AWSMachine; zero when that
// is not known.
func polledAt(u *unstructured.Unstructured) time.Time {
	if kept := u.GetManagedFields(); len(kept) > 0 {
		return kept[0].Time.Time
	}
	return time.Time{}
}

func isMachine(r metav1.OwnerReference) bool {
	group, _, _ := strings.Cut(r.APIVersion, "/")
	return r.Kind == "Machine" && group == groupCore
}

// text is a field as it stands; empty when it is missing or of another type.
func text(u *unstructured.Unstructured, path ...string) string {
	s, _, _ := unstructured.NestedString(u.Object, path...)
	return s
}

// objectOf says what an AWSMachine or AWSMachinePool stands for.
func objectOf(cluster multicluster.ClusterName, u *unstructured.Unstructured) owner.Object {
	pool := u.GetKind() == AWSMachinePool.Kind
	o := owner.Object{
		Key:         owner.Key{Cluster: string(cluster), Pool: pool, Namespace: u.GetNamespace(), Name: u.GetName()},
		ClusterName: u.GetLabels()[clusterNameLabel],
	}
	add := func(id string) {
		if id != "" && !slices.Contains(o.Instances, id) {
			o.Instances = append(o.Instances, id)
		}
	}
	if !pool {
		add(instanceOf(u))
		return o
	}
	// CAPA names the group after the pool, and writes its ARN into spec.providerID.
	o.GroupName = u.GetName()
	if arn := text(u, "spec", "providerID"); strings.HasPrefix(arn, "arn:") {
		o.GroupARN = arn
	}
	list, _, _ := unstructured.NestedStringSlice(u.Object, "spec", "providerIDList")
	for _, id := range list {
		add(owner.InstanceID(id))
	}
	instances, _, _ := unstructured.NestedSlice(u.Object, "status", "instances")
	for _, instance := range instances {
		if m, ok := instance.(map[string]any); ok {
			id, _ := m["instanceID"].(string)
			add(id)
		}
	}
	return o
}

// instanceOf an AWSMachine: one, for its label tells of one.
func instanceOf(u *unstructured.Unstructured) string {
	if id := text(u, "spec", "instanceID"); id != "" {
		return id
	}
	return owner.InstanceID(text(u, "spec", "providerID"))
}

func kindOf(key owner.Key) schema.GroupKind {
	if key.Pool {
		return AWSMachinePool
	}
	return AWSMachine
}

func labelOf(key owner.Key) string {
	if key.Pool {
		return LabelASG
	}
	return LabelEC2
}
