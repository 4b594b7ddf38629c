package capa

import (
	"context"
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Text returns a field of type string. It returns "" when the field is missing or has
// another type.
func Text(u *unstructured.Unstructured, path ...string) string {
	s, _, _ := unstructured.NestedString(u.Object, path...)
	return s
}

// Get reads an object. Errors: those of the reader.
func Get(ctx context.Context, c client.Reader, kind schema.GroupVersionKind, at client.ObjectKey) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	if err := c.Get(ctx, at, u); err != nil {
		return nil, err
	}
	return u, nil
}

// Absent reports whether an error says that an object does not exist, or that its kind is
// not installed. Errors of readers that are not API servers have the method NotInstalled.
func Absent(err error) bool {
	var kind interface{ NotInstalled() bool }
	return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) || errors.As(err, &kind) && kind.NotInstalled()
}

// Present returns nil in place of an object that is Absent.
func Present(u *unstructured.Unstructured, err error) (*unstructured.Unstructured, error) {
	if Absent(err) {
		return nil, nil
	}
	return u, err
}

// Reference is a reference from one object to another.
type Reference struct {
	schema.GroupKind
	client.ObjectKey
}

// ReferenceAt reads the reference at a path. It accepts both contracts of Cluster API: a
// v1beta1 reference has apiVersion and may have a namespace, a v1beta2 reference has
// apiGroup. Without a namespace the namespace is that of u. It returns false when there is
// no reference.
func ReferenceAt(u *unstructured.Unstructured, path ...string) (Reference, bool) {
	m, found, err := unstructured.NestedMap(u.Object, path...)
	if err != nil || !found {
		return Reference{}, false
	}
	of := &unstructured.Unstructured{Object: m}
	group := Text(of, "apiGroup")
	if group == "" {
		// An apiVersion that cannot be parsed has no group.
		if version, err := schema.ParseGroupVersion(Text(of, "apiVersion")); err == nil {
			group = version.Group
		}
	}
	r := Reference{
		GroupKind: schema.GroupKind{Group: group, Kind: Text(of, "kind")},
		ObjectKey: client.ObjectKey{Namespace: Text(of, "namespace"), Name: Text(of, "name")},
	}
	if r.Namespace == "" {
		r.Namespace = u.GetNamespace()
	}
	return r, true
}

// IsOwner reports whether an owner reference names an object of a kind, in any version.
func IsOwner(owner metav1.OwnerReference, kind schema.GroupKind) bool {
	version, err := schema.ParseGroupVersion(owner.APIVersion)
	return err == nil && owner.Kind == kind.Kind && version.Group == kind.Group
}

// OwnedByDeployment reports whether a MachineDeployment owns a MachineSet. Such a MachineSet gets its capacity annotations
// from there, and cluster-autoscaler skips it for the same reason.
func OwnedByDeployment(o metav1.Object) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return IsOwner(owner, MachineDeployment) })
}

// Paused reports whether an object has Cluster API's annotation for the pause, with any
// value.
func Paused(o metav1.Object) bool {
	_, set := o.GetAnnotations()[clusterv1.PausedAnnotation]
	return set
}

// ClusterPaused reports whether a Cluster is paused, by its spec or by the annotation. A
// nil Cluster is not paused.
func ClusterPaused(cluster *unstructured.Unstructured) bool {
	if cluster == nil {
		return false
	}
	bySpec, _, _ := unstructured.NestedBool(cluster.Object, "spec", "paused")
	return bySpec || Paused(cluster)
}
