package bench

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/playground/simulated"
)

// TestStatusOfAPipeline: what a Pipeline of twenty targets takes in etcd, and what the API server needs for the patch
// of one revision in it, as the hub sends it: with the managed fields, without them, and without the schema's share,
// which a patch of a label of the same object shows.
func TestStatusOfAPipeline(t *testing.T) {
	none, patches := math.Inf(1), count(10, 500)
	s := newScene(t, simulated.Options{Clusters: targetsEach, Applications: 1})
	h := startHub(t, s.namespace)
	names := s.releases(0, 1, s.clusters, targetsEach)
	s.shown(names, every)
	h.stop()

	p := &pipelinesv1.Pipeline{}
	s.g.Expect(admin.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: names[0]}, p)).To(Succeed())
	size := func(what string) {
		whole, err := json.Marshal(p)
		s.g.Expect(err).NotTo(HaveOccurred())
		managed, err := json.Marshal(p.ManagedFields)
		s.g.Expect(err).NotTo(HaveOccurred())
		report(what+"bytes", float64(len(whole))/kib, none, "KiB")
		report("the same, its managed fields", float64(len(managed))/kib, none, "KiB")
	}
	cpu := func(what string, patch func(n int) error) {
		before, err := loadNow(t.Context())
		s.g.Expect(err).NotTo(HaveOccurred())
		for n := range patches {
			s.g.Expect(patch(n)).To(Succeed())
		}
		after, err := loadNow(t.Context())
		s.g.Expect(err).NotTo(HaveOccurred())
		report(what+": CPU of the API server", (after.CPU-before.CPU)/float64(patches)*1000, none, "ms")
		report("the same, bytes of the patch", (after.Bytes-before.Bytes)/float64(patches), none, "B")
	}
	revision := func(tag string) func(int) error {
		return func(n int) error {
			patch := fmt.Sprintf(`[{"op":"replace","path":"/status/environments/%s/targets/%d/revision","value":"%s.%d"}]`, environment, n%targetsEach, tag, n)
			return admin.Status().Patch(t.Context(), p, client.RawPatch(types.JSONPatchType, []byte(patch)))
		}
	}
	size("a Pipeline of 20 targets, ")
	cpu("a patch of one revision in its status", revision("5.0"))
	s.g.Expect(admin.Patch(t.Context(), p, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"managedFields":[{}]}}`)))).To(Succeed())
	s.g.Expect(p.ManagedFields).To(BeEmpty())
	size("without managed fields, ")
	cpu("the same without managed fields", revision("6.0"))
	cpu("a patch of a label of it", func(n int) error {
		return admin.Patch(t.Context(), p, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"n":"%d"}}}`, n)))
	})
}
