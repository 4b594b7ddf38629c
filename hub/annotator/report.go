package annotator

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/capstan-hub/capstan/hub/annotator/annotation"
)

// Report is the result for a node group: its annotations were written, or cannot be written.
type Report struct {
	// Cluster that contains the group; empty for the management cluster.
	Cluster multicluster.ClusterName
	Kind    string
	types.NamespacedName
	UID types.UID
	// ResourceVersion of the group before the write.
	ResourceVersion string
	// Node, InstanceTypes and Architecture are the written values of a group that was
	// annotated.
	Node          annotation.Node
	InstanceTypes []string
	Architecture  string
	// Reason is one of the Words, and Message its text for users; both are empty for a group
	// that was annotated.
	Reason, Message string
}

// written reports that a group was annotated.
func (r *Reconciler) written(who mcreconcile.Request, group *unstructured.Unstructured, v verdict) {
	if r.Notify == nil || v.node == nil {
		return
	}
	n := reportOf(r.kind.Kind, who, group)
	n.Node, n.InstanceTypes, n.Architecture = *v.node, v.types, v.architecture
	r.Notify(n)
}

// failed reports that a group cannot be annotated.
func (t *notifier) failed(who mcreconcile.Request, group *unstructured.Unstructured, why notice) {
	if t.report == nil || (why.reason != ReasonFailedUpdate && why.reason != ReasonReconcileError) {
		return
	}
	n := reportOf(t.kind, who, group)
	n.Reason, n.Message = why.word, why.message
	t.report(n)
}

func reportOf(kind string, who mcreconcile.Request, group *unstructured.Unstructured) Report {
	return Report{
		Cluster: who.ClusterName, Kind: kind, NamespacedName: who.NamespacedName,
		UID: group.GetUID(), ResourceVersion: group.GetResourceVersion(),
	}
}
