package annotator

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/capstan-hub/capstan/hub/annotator/annotation"
)

// News of a node group: its annotations were written, or cannot be.
type News struct {
	// Cluster that holds it; empty for the management cluster.
	Cluster multicluster.ClusterName
	Kind    string
	types.NamespacedName
	UID types.UID
	// ResourceVersion that it had before.
	ResourceVersion string
	// Node, InstanceTypes and Architecture are what was written, of a group that was
	// annotated.
	Node          annotation.Node
	InstanceTypes []string
	Architecture  string
	// Reason why it cannot be, one of the words, and the same for people; empty for a
	// group that was annotated.
	Reason, Message string
}

// written tells that a group was annotated.
func (r *Reconciler) written(who mcreconcile.Request, group *unstructured.Unstructured, v verdict) {
	if r.Tell == nil || v.node == nil {
		return
	}
	n := newsOf(r.kind.Kind, who, group)
	n.Node, n.InstanceTypes, n.Architecture = *v.node, v.types, v.architecture
	r.Tell(n)
}

// failed tells that it cannot be.
func (t *teller) failed(who mcreconcile.Request, group *unstructured.Unstructured, why notice) {
	if t.news == nil || (why.reason != ReasonFailedUpdate && why.reason != ReasonReconcileError) {
		return
	}
	n := newsOf(t.kind, who, group)
	n.Reason, n.Message = why.word, why.message
	t.news(n)
}

func newsOf(kind string, who mcreconcile.Request, group *unstructured.Unstructured) News {
	return News{
		Cluster: who.ClusterName, Kind: kind, NamespacedName: who.NamespacedName,
		UID: group.GetUID(), ResourceVersion: group.GetResourceVersion(),
	}
}
