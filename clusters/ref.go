package clusters

import (
	"fmt"
	"strings"
	"unique"

	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// LocalName is the name of the management cluster.
const LocalName multicluster.ClusterName = ""

// Ref names the object with the credentials of a cluster. The zero value is
// the management cluster.
type Ref struct {
	Kind, Namespace, Name string
}

// RefOf returns the Ref of a reference in an object of the given namespace. A nil reference
// is the management cluster.
func RefOf(r *pipelinesv1.CrossNamespaceClusterReference, namespace string) Ref {
	if r == nil {
		return Ref{}
	}
	if r.Namespace != "" {
		namespace = r.Namespace
	}
	return Ref{Kind: r.Kind, Namespace: namespace, Name: r.Name}
}

// SelectionRef stands for the clusters of a kind in a namespace, or in all (pipelinesv1.AllNamespaces): no object has its
// name. Listener.ReferenceChanged is called with it when the objects of the kind are known for the first time after they
// were selected.
func SelectionRef(kind, namespace string) Ref {
	return Ref{Kind: kind, Namespace: namespace, Name: pipelinesv1.AllNamespaces}
}

// IsLocal reports whether the Ref is the management cluster.
func (r Ref) IsLocal() bool { return r == Ref{} }

// ClusterName returns "Kind/namespace/name", or "" for the management cluster. The name has
// the kind because objects of several kinds may have the same namespace and name.
func (r Ref) ClusterName() multicluster.ClusterName {
	if r.IsLocal() {
		return LocalName
	}
	// The string is interned, because every target of every Pipeline keeps it.
	return multicluster.ClusterName(unique.Make(r.Kind + "/" + r.Namespace + "/" + r.Name).Value())
}

// String returns the name for users: "Cluster team-a/prod".
func (r Ref) String() string {
	if r.IsLocal() {
		return "the management cluster"
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// ParseClusterName is the reverse of Ref.ClusterName. Errors are of class ErrInvalid.
func ParseClusterName(name multicluster.ClusterName) (Ref, error) {
	if name == LocalName {
		return Ref{}, nil
	}
	parts := strings.Split(string(name), "/")
	if len(parts) != 3 || parts[1] == "" || parts[2] == "" {
		return Ref{}, fmt.Errorf("%w: %q is not Kind/namespace/name", ErrInvalid, name)
	}
	if !pipelinesv1.IsClusterKind(parts[0]) {
		return Ref{}, fmt.Errorf("%w: the kind of %q is not %s", ErrInvalid, name, pipelinesv1.ClusterKindNames())
	}
	return Ref{Kind: parts[0], Namespace: parts[1], Name: parts[2]}, nil
}
