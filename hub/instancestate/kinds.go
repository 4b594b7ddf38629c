package instancestate

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/hub/instancestate/guard"
	"github.com/capstan-hub/capstan/hub/instancestate/owner"
	"github.com/capstan-hub/capstan/internal/capa"
	"github.com/capstan-hub/capstan/watchers"
)

// labelled returns the kinds that are labelled.
func labelled() []schema.GroupKind {
	return []schema.GroupKind{capa.AWSMachine, capa.AWSMachinePool, capa.AWSManagedMachinePool, capa.ROSAMachinePool}
}

// grouped returns the kinds of pools that have an Auto Scaling group. The nodes of a ROSA
// node pool are single instances.
func grouped() []schema.GroupKind {
	return []schema.GroupKind{capa.AWSMachinePool, capa.AWSManagedMachinePool}
}

// fields are the fields of each kind that this package reads, besides capa.PlaceFields.
var fields = map[schema.GroupKind][]string{
	capa.AWSMachine:            {"spec.instanceID", "spec.providerID", "status.instanceState"},
	capa.AWSMachinePool:        {"spec.providerID", "spec.providerIDList", "status.instances"},
	capa.AWSManagedMachinePool: {"spec.providerIDList"},
	capa.ROSAMachinePool:       {"spec.providerIDList"},
}

var keptLabels = []string{clusterv1.ClusterNameLabel, LabelEC2, LabelASG, clusters.SelfManagedLabel}

func keptAnnotation(key string) bool {
	return key == AnnotationGuard || key == AnnotationEvent || key == AnnotationHandlers || strings.HasPrefix(key, processedPrefix) || capa.PlaceAnnotation(key)
}

// Kind returns how watchers read a kind for this package, and false for a kind that it does
// not read.
func Kind(kind schema.GroupKind) (watchers.Kind, bool) {
	kept := slices.Concat(fields[kind], capa.PlaceFields(kind))
	if len(kept) == 0 {
		return watchers.Kind{}, false
	}
	reduce := watchers.Excerpt{
		Fields:      kept,
		Labels:      func(key string) bool { return slices.Contains(keptLabels, key) },
		Annotations: keptAnnotation,
	}.Reducer()
	return watchers.Kind{
		GroupKind:     kind,
		ClusterScoped: capa.Identity(kind),
		Reduce: func(u *unstructured.Unstructured) (client.Object, error) {
			out := reduce(u)
			if kind != capa.AWSMachine {
				return out, nil
			}
			out.SetOwnerReferences(slices.DeleteFunc(u.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return !capa.IsOwner(r, capa.Machine) }))
			if at := writtenAt(u, "f:status", "f:instanceState"); !at.IsZero() {
				out.SetManagedFields([]metav1.ManagedFieldsEntry{{Time: &metav1.Time{Time: at}}})
			}
			return out, nil
		},
	}, true
}

// writtenAt returns when a field, or another field of the same manager, last changed, with
// a precision of one second; zero when the object has no such managed field.
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

// polledAt returns when CAPA last wrote the polled state of a reduced AWSMachine; zero when
// that is not known.
func polledAt(u *unstructured.Unstructured) time.Time {
	if kept := u.GetManagedFields(); len(kept) > 0 {
		return kept[0].Time.Time
	}
	return time.Time{}
}

// objectOf returns the instances and the group of an object of a labelled kind.
func objectOf(cluster multicluster.ClusterName, u *unstructured.Unstructured) owner.Object {
	kind := u.GroupVersionKind().GroupKind()
	o := owner.Object{
		Key:         owner.Key{Cluster: string(cluster), Kind: kind, Namespace: u.GetNamespace(), Name: u.GetName()},
		ClusterName: u.GetLabels()[clusterv1.ClusterNameLabel],
		Region:      u.GetAnnotations()[capa.RegionAnnotation],
	}
	add := func(id string) {
		if id != "" && !slices.Contains(o.Instances, id) {
			o.Instances = append(o.Instances, id)
		}
	}
	switch kind {
	case capa.AWSMachine:
		add(instanceOf(u))
		return o
	case capa.AWSMachinePool:
		// CAPA names the group after the pool, and writes its ARN into spec.providerID.
		o.GroupName = u.GetName()
		if arn := capa.Text(u, "spec", "providerID"); strings.HasPrefix(arn, "arn:") {
			o.GroupARN = arn
		}
	case capa.AWSManagedMachinePool:
		// EKS names the group after the node group, whose name is unique in its EKS cluster only.
		// An annotation that cannot be read names none.
		known, _ := guard.ParseGroup(u.GetAnnotations()[AnnotationGuard])
		o.LearnedARN = known.LearnedARN()
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

// instanceOf returns the instance of an AWSMachine. There is one, as the label shows one.
func instanceOf(u *unstructured.Unstructured) string {
	if id := capa.Text(u, "spec", "instanceID"); id != "" {
		return id
	}
	return owner.InstanceID(capa.Text(u, "spec", "providerID"))
}

func labelOf(key owner.Key) string {
	if key.Pool() {
		return LabelASG
	}
	return LabelEC2
}
