package watchers

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Excerpt is what is kept of the objects of a kind beside who they are.
type Excerpt struct {
	// Fields, such as "spec.region".
	Fields []string
	// Labels and Annotations tell of a key whether it is kept; none is when nil.
	Labels, Annotations func(key string) bool
}

// Reducer makes excerpts. What it is given stays as it is, and shares nothing with what
// it makes.
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
				_ = unstructured.SetNestedField(out.Object, value, path...) // The way there is made of maps: it was read.
			}
		}
		return out
	}
}

// Both is how a kind is read that two read, of which neither takes an object apart: what
// either keeps of it is kept.
func Both(a, b Kind) Kind {
	reduceA, reduceB := a.Reduce, b.Reduce
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
			return nil, fmt.Errorf("%T and %T cannot be put together", kept, more)
		}
		join(into.Object, from.Object)
		return into, nil
	}
	return a
}

// join what one map has into another; both are parts of one object.
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

// pick the entries of which keep says yes.
func pick(from map[string]string, keep func(string) bool) map[string]string {
	kept := map[string]string{}
	for key, value := range from {
		if keep != nil && keep(key) {
			kept[key] = value
		}
	}
	return kept
}
