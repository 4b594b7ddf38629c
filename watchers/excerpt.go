package watchers

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Excerpt says which parts of the objects of a kind are kept, in addition to their identity.
type Excerpt struct {
	// Fields, such as "spec.region".
	Fields []string
	// Labels and Annotations return whether a key is kept; if nil, none is kept.
	Labels, Annotations func(key string) bool
}

// Reducer returns a function that makes excerpts. It does not change its argument, and its
// result shares no memory with it.
func (e Excerpt) Reducer() func(*unstructured.Unstructured) *unstructured.Unstructured {
	paths := make([][]string, 0, len(e.Fields))
	for _, field := range e.Fields {
		paths = append(paths, strings.Split(field, "."))
	}
	return func(u *unstructured.Unstructured) *unstructured.Unstructured {
		out := &unstructured.Unstructured{Object: map[string]any{}}
		out.SetAPIVersion(u.GetAPIVersion())
		out.SetKind(u.GetKind())
		out.SetNamespace(u.GetNamespace())
		out.SetName(u.GetName())
		out.SetUID(u.GetUID())
		out.SetResourceVersion(u.GetResourceVersion())
		out.SetDeletionTimestamp(u.GetDeletionTimestamp())
		if kept := pick(u.GetLabels(), e.Labels); len(kept) > 0 {
			out.SetLabels(kept)
		}
		if kept := pick(u.GetAnnotations(), e.Annotations); len(kept) > 0 {
			out.SetAnnotations(kept)
		}
		for _, path := range paths {
			if value, found, err := unstructured.NestedFieldNoCopy(u.Object, path...); err == nil && found {
				_ = unstructured.SetNestedField(out.Object, value, path...) // The path consists of maps: it was just read.
			}
		}
		return out
	}
}

// Both combines two Kinds that read the same kind, and whose Reduce does not modify its
// argument. The result keeps what either of them keeps.
func Both(a, b Kind) Kind {
	reduceA, reduceB := a.Reduce, b.Reduce
	if len(a.Reads) == 0 || len(b.Reads) == 0 {
		a.Reads = nil // One of them reads all fields.
	} else {
		a.Reads = slices.Concat(a.Reads, b.Reads)
	}
	a.Reduce = func(u *unstructured.Unstructured) (client.Object, error) {
		kept, err := reduceA(u)
		if err != nil {
			return nil, err
		}
		more, err := reduceB(u)
		if err != nil {
			return nil, err
		}
		into, one := kept.(*unstructured.Unstructured)
		from, other := more.(*unstructured.Unstructured)
		if !one || !other {
			return nil, fmt.Errorf("%T and %T cannot be combined", kept, more)
		}
		join(into.Object, from.Object)
		return into, nil
	}
	return a
}

// join adds the entries of one map to another; both are parts of one object.
func join(into, from map[string]any) {
	for key, value := range from {
		had, isMap := into[key].(map[string]any)
		if more, also := value.(map[string]any); isMap && also {
			join(had, more)
		} else {
			into[key] = value
		}
	}
}

// pick returns the entries for whose key keep is true.
func pick(from map[string]string, keep func(string) bool) map[string]string {
	kept := map[string]string{}
	for key, value := range from {
		if keep != nil && keep(key) {
			kept[key] = value
		}
	}
	return kept
}
