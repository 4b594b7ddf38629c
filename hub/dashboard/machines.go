package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/hub/annotator/annotation"
	"github.com/capstan-hub/capstan/hub/dashboard/view"
	"github.com/capstan-hub/capstan/hub/instancestate/guard"
	"github.com/capstan-hub/capstan/internal/capa"
	"github.com/capstan-hub/capstan/watchers"
)

const (
	// ec2Label and asgLabel are the labels that hub/instancestate sets: the state of an
	// instance or of a group in AWS.
	ec2Label, asgLabel = "ec2-instance-state", "asg-instance-state"

	// machinesFor is how long the list of machines is reused: copying five thousand takes
	// about 20 ms.
	machinesFor = time.Second
)

// MachineKinds returns the kinds that Options.Machines reads.
func MachineKinds() []schema.GroupKind {
	return []schema.GroupKind{capa.MachineDeployment, capa.MachineSet, capa.MachinePool, capa.AWSMachine, capa.AWSMachinePool, capa.AWSManagedMachinePool, capa.ROSAMachinePool}
}

// Kind returns how the watchers read a kind for the dashboard; false for other kinds.
func Kind(kind schema.GroupKind) (watchers.Kind, bool) {
	if !slices.Contains(MachineKinds(), kind) {
		return watchers.Kind{}, false
	}
	reduce, owned := machine.Reducer(), watchers.Excerpt{}.Reducer()
	return watchers.Kind{GroupKind: kind, Reduce: func(u *unstructured.Unstructured) (client.Object, error) {
		if kind == capa.MachineSet && capa.OwnedByDeployment(u) { // There may be several for each MachineDeployment.
			out := owned(u)
			out.SetOwnerReferences(u.GetOwnerReferences())
			return out, nil
		}
		out := reduce(u)
		if kind.Group != clusterv1.GroupVersion.Group {
			return out, nil
		}
		if at := annotatedAt(u); !at.IsZero() {
			out.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: annotation.FieldManager, Time: &metav1.Time{Time: at}}})
		}
		return out, nil
	}}, true
}

// annotatedAt returns when the annotator last changed an object, with a precision of one
// second; zero when the object does not say it.
func annotatedAt(u *unstructured.Unstructured) (last time.Time) {
	for _, entry := range u.GetManagedFields() {
		if entry.Manager == annotation.FieldManager && entry.Time != nil && entry.Time.After(last) {
			last = entry.Time.UTC()
		}
	}
	return last
}

// machine is the part of a machine, or of a group of machines, that the cache keeps.
var machine = watchers.Excerpt{
	Fields:      []string{"spec.clusterName", "spec.replicas", "status.replicas", "status.readyReplicas", "spec.instanceID", "spec.eksNodegroupName", "spec.nodePoolName"},
	Labels:      func(key string) bool { return key == clusterv1.ClusterNameLabel || key == ec2Label || key == asgLabel },
	Annotations: func(key string) bool { return annotation.Concerns(key) || key == guard.Annotation },
}

// machines of the management cluster, at one moment.
type machines struct {
	groups    []view.NodeGroup
	instances []view.Instances
	// unread are the kinds that could not be read, and why.
	unread []string
}

func readMachines(ctx context.Context, from client.Reader) machines {
	var m machines
	for _, kind := range MachineKinds() {
		var list unstructured.UnstructuredList
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: kind.Group, Version: capa.Version, Kind: kind.Kind + "List"})
		if err := from.List(ctx, &list); err != nil {
			m.unread = append(m.unread, fmt.Sprintf("%s: %v", kind.Kind, err))
			continue
		}
		for i := range list.Items {
			switch u := &list.Items[i]; {
			case kind.Group != clusterv1.GroupVersion.Group:
				m.instances = append(m.instances, instancesOf(kind, u))
			case kind != capa.MachineSet || !capa.OwnedByDeployment(u):
				m.groups = append(m.groups, groupOf(kind, u))
			}
		}
	}
	slices.SortFunc(m.groups, func(a, b view.NodeGroup) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	slices.SortFunc(m.instances, func(a, b view.Instances) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	return m
}

func groupOf(kind schema.GroupKind, u *unstructured.Unstructured) view.NodeGroup {
	g := view.NodeGroup{Kind: kind.Kind, Namespace: u.GetNamespace(), Name: u.GetName()}
	g.Cluster, _, _ = unstructured.NestedString(u.Object, "spec", "clusterName")
	g.Ready, _, _ = unstructured.NestedInt64(u.Object, "status", "readyReplicas")
	var set bool
	if g.Desired, set, _ = unstructured.NestedInt64(u.Object, "spec", "replicas"); !set { // An autoscaler sets it.
		g.Desired, _, _ = unstructured.NestedInt64(u.Object, "status", "replicas")
	}
	for _, v := range annotation.Values(u.GetAnnotations()) {
		name, _ := annotation.Name(v.Key)
		g.Capacity = append(g.Capacity, name+": "+v.Value)
		if v.Whose != annotation.Ours {
			g.ByUser = append(g.ByUser, name)
		}
	}
	slices.Sort(g.Capacity)
	slices.Sort(g.ByUser)
	g.InstanceType = annotation.Label(u.GetAnnotations(), annotation.LabelInstanceType)
	g.Annotated = annotatedAt(u)
	return g
}

func instancesOf(kind schema.GroupKind, u *unstructured.Unstructured) view.Instances {
	labels := u.GetLabels()
	i := view.Instances{Kind: kind.Kind, Namespace: u.GetNamespace(), Name: u.GetName(), Cluster: labels[clusterv1.ClusterNameLabel]}
	i.State = labels[asgLabel]
	switch kind {
	case capa.AWSMachine:
		i.State = labels[ec2Label]
		i.Instance = capa.Text(u, "spec", "instanceID")
	case capa.AWSMachinePool:
		i.Instance = u.GetName() // Cluster API Provider AWS names the group after the pool.
	case capa.AWSManagedMachinePool:
		i.Instance = capa.Text(u, "spec", "eksNodegroupName")
	case capa.ROSAMachinePool:
		i.Instance = capa.Text(u, "spec", "nodePoolName")
	}
	if last, has := lastEvent(kind, u.GetAnnotations()[guard.Annotation]); has && last.Label == i.State {
		i.Event, i.Since, i.Due = last.Kind.Title(), last.Time, last.Due
	}
	return i
}

// lastEvent returns the record of the event behind the label of a machine or pool; false when there is none, or its
// annotation cannot be read.
func lastEvent(kind schema.GroupKind, annotation string) (guard.Record, bool) {
	if kind == capa.AWSMachine {
		known, err := guard.ParseInstance(annotation)
		last, has := known.Current()
		return last, has && err == nil
	}
	known, err := guard.ParseGroup(annotation)
	last, has := known.Current()
	return last, has && err == nil
}
