package pipeline

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/randfill"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// A patch is applied by an API server: here by the library that it uses.
func TestStatusPatch(t *testing.T) {
	g := NewWithT(t)
	fill := randfill.NewWithSeed(rand.Int64()).NilChance(.3).NumElements(0, 3) //nolint:gosec // Any seed is good.
	for range 500 {
		before, after := pipelinesv1.PipelineStatus{}, pipelinesv1.PipelineStatus{}
		fill.Fill(&before)
		fill.Fill(&after)
		for name, environment := range before.Environments {
			if rand.IntN(2) == 0 { //nolint:gosec // A choice of the test.
				if after.Environments == nil {
					after.Environments = map[string]*pipelinesv1.EnvironmentStatus{}
				}
				after.Environments[name] = environment.DeepCopy()
				if rand.IntN(2) == 0 && environment != nil { //nolint:gosec // A choice of the test.
					after.Environments[name].WaitingApproval.Revision += "x"
				}
			}
		}
		before.SchemaFleets, after.SchemaFleets = pipelinesv1.StatusSchemaFleets, pipelinesv1.StatusSchemaFleets
		for _, s := range []pipelinesv1.PipelineStatus{before, after} {
			maps.DeleteFunc(s.Environments, func(_ string, e *pipelinesv1.EnvironmentStatus) bool { return e == nil })
		}
		patch, err := statusPatch("7", &before, &after)
		g.Expect(err).NotTo(HaveOccurred())
		document, err := json.Marshal(map[string]any{"metadata": map[string]string{"name": "shop"}, "status": before})
		g.Expect(err).NotTo(HaveOccurred())
		decoded, err := jsonpatch.DecodePatch(patch)
		g.Expect(err).NotTo(HaveOccurred())
		patched, err := decoded.Apply(document)
		g.Expect(err).NotTo(HaveOccurred())
		want, err := json.Marshal(map[string]any{"metadata": map[string]string{"name": "shop", "resourceVersion": "7"}, "status": after})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(jsonpatch.Equal(patched, want)).To(BeTrue(), "%s\n%s\n%s", document, patch, want)
	}
}

func TestStatusPatchIsSmall(t *testing.T) {
	g := NewWithT(t)
	status := func(revision string) *pipelinesv1.PipelineStatus {
		return &pipelinesv1.PipelineStatus{ObservedGeneration: 1, Environments: map[string]*pipelinesv1.EnvironmentStatus{
			"dev":  {Targets: []pipelinesv1.TargetStatus{{Revision: revision}}},
			"prod": {Targets: []pipelinesv1.TargetStatus{{Revision: "1.0.0", Ready: true}}},
		}}
	}
	patch, err := statusPatch("7", status("1.0.0"), status("1.1.0"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(patch).To(MatchJSON(`[
		{"op":"test","path":"/status/schemaFleets","value":"fleets1"},
		{"op":"add","path":"/metadata/resourceVersion","value":"7"},
		{"op":"replace","path":"/status/environments/dev/targets/0/revision","value":"1.1.0"}]`))

	// A list of another length, or one that is shorter than its differences, is written as a whole.
	more := status("1.1.0")
	more.Environments["dev"].Targets = append(more.Environments["dev"].Targets, pipelinesv1.TargetStatus{Revision: "1"})
	patch, err = statusPatch("7", status("1.0.0"), more)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(patch)).To(And(ContainSubstring(`"path":"/status/environments/dev/targets","value":[{`), Not(ContainSubstring("prod"))))
	short := status("1.0.0")
	short.Conditions = []metav1.Condition{{Type: "A"}}
	other := status("1.0.0")
	other.Conditions = []metav1.Condition{{Type: "B", Status: "True", Reason: "X", Message: "y"}}
	patch, err = statusPatch("7", short, other)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(patch)).To(ContainSubstring(`"path":"/status/conditions","value":[{`))
	patch, err = statusPatch("7", status("1.0.0"), status("1.1.0"))
	g.Expect(err).NotTo(HaveOccurred())

	// A Pipeline that is served without gates is not written.
	decoded, err := jsonpatch.DecodePatch(patch)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = decoded.Apply([]byte(`{"metadata":{"resourceVersion":"7"},"status":{"environments":{"dev":{"targets":[]}}}}`))
	g.Expect(err).To(MatchError(jsonpatch.ErrTestFailed))
}
