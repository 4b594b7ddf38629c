package watchers_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/watchers"
)

func whole() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Machine",
		"metadata": map[string]any{
			"namespace": "fleet", "name": "one", "uid": "u", "resourceVersion": "7",
			"labels":      map[string]any{"a": "1", "b": "2"},
			"annotations": map[string]any{"a": "3", "b": "4"},
			"finalizers":  []any{"f"},
		},
		"spec":   map[string]any{"region": "eu", "image": map[string]any{"id": "i", "tags": []any{"x"}}, "big": strings.Repeat("v", 99)},
		"status": "not a map",
	}}
}

func is(key string) func(string) bool { return func(k string) bool { return k == key } }

// TestExcerpt: the excerpt has the right parts, and shares no memory with the object.
func TestExcerpt(t *testing.T) {
	g := NewWithT(t)
	from := whole()
	reduce := watchers.Excerpt{
		Fields: []string{"spec.region", "spec.image.tags", "spec.absent", "status.ready"},
		Labels: is("a"), Annotations: is("absent"),
	}.Reducer()
	made := reduce(from)
	g.Expect(made.Object).To(Equal(map[string]any{
		"apiVersion": "example.com/v1", "kind": "Machine",
		"metadata": map[string]any{
			"namespace": "fleet", "name": "one", "uid": "u", "resourceVersion": "7",
			"labels": map[string]any{"a": "1"},
		},
		"spec": map[string]any{"region": "eu", "image": map[string]any{"tags": []any{"x"}}},
	}))
	g.Expect(unstructured.SetNestedStringSlice(made.Object, []string{"y"}, "spec", "image", "tags")).To(Succeed())
	made.SetLabels(map[string]string{"a": "5"})
	g.Expect(from).To(Equal(whole()))
	g.Expect(reduce(from).Object["spec"]).To(Equal(map[string]any{"region": "eu", "image": map[string]any{"tags": []any{"x"}}}))
}

// TestBothReadAKind: the result keeps the parts that only one of the two needs.
func TestBothReadAKind(t *testing.T) {
	g := NewWithT(t)
	kind := func(e watchers.Excerpt) watchers.Kind {
		reduce := e.Reducer()
		return watchers.Kind{Reduce: func(u *unstructured.Unstructured) (client.Object, error) { return reduce(u), nil }}
	}
	both := watchers.Both(
		kind(watchers.Excerpt{Fields: []string{"spec.region"}, Labels: is("a")}),
		kind(watchers.Excerpt{Fields: []string{"spec.region", "spec.image.id"}, Labels: is("b"), Annotations: is("b")}),
	)
	made, err := both.Reduce(whole())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(made.GetLabels()).To(Equal(map[string]string{"a": "1", "b": "2"}))
	g.Expect(made.GetAnnotations()).To(Equal(map[string]string{"b": "4"}))
	u, ok := made.(*unstructured.Unstructured)
	g.Expect(ok).To(BeTrue())
	g.Expect(u.Object["spec"]).To(Equal(map[string]any{"region": "eu", "image": map[string]any{"id": "i"}}))
}
