package annotator

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// capaVersion is the one that Cluster API Provider AWS serves. Watchers give every object
// in the version that is served; others, such as a client, need to be told one.
const capaVersion = "v1beta2"

// servedVersion of Cluster API stands for whichever is served, where watchers are asked.
const servedVersion = "v1beta2"

// text is a field as it stands; empty when it is missing or of another type.
func text(u *unstructured.Unstructured, path ...string) string {
	s, _, _ := unstructured.NestedString(u.Object, path...)
	return s
}

// number is a field as a whole number; 0 when it is missing or of another type.
func number(u *unstructured.Unstructured, path ...string) int64 {
	switch n, _, _ := unstructured.NestedFieldNoCopy(u.Object, path...); n := n.(type) {
	case int64:
		return n
	case float64:
		return int64(n)
	}
	return 0
}

// reference is one object's pointing to another.
type reference struct {
	schema.GroupKind
	client.ObjectKey
}

// referenceAt reads a reference of either contract: v1beta1's has apiVersion and may
// have a namespace, v1beta2's has apiGroup. False when there is none.
func referenceAt(u *unstructured.Unstructured, path ...string) (reference, bool) {
	m, found, err := unstructured.NestedMap(u.Object, path...)
	if err != nil || !found {
		return reference{}, false
	}
	of := &unstructured.Unstructured{Object: m}
	group := text(of, "apiGroup")
	if group == "" {
		// What is no group/version has no group.
		if version, err := schema.ParseGroupVersion(text(of, "apiVersion")); err == nil {
			group = version.Group
		}
	}
	r := reference{
		GroupKind: schema.GroupKind{Group: group, Kind: text(of, "kind")},
		ObjectKey: client.ObjectKey{Namespace: text(of, "namespace"), Name: text(of, "name")},
	}
	if r.Namespace == "" {
		r.Namespace = u.GetNamespace()
	}
	return r, true
}

// get reads an object.
func get(ctx context.Context, c client.Reader, kind schema.GroupVersionKind, at client.ObjectKey) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	if err := c.Get(ctx, at, u); err != nil {
		return nil, err
	}
	return u, nil
}
