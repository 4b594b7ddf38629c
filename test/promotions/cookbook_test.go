package promotions_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/hub/pipeline/gate"
	"github.com/capstan-hub/capstan/hub/pipeline/verify"
	"github.com/capstan-hub/capstan/internal/expression"
)

// The examples of docs/gates.md are admitted as written, and their gates are valid.
func TestExamplesOfGates(t *testing.T) {
	t.Parallel()
	g, w := NewWithT(t), newWorld(t, t)
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "gates.md"))
	g.Expect(err).NotTo(HaveOccurred())
	blocks := strings.Split(string(text), "```yaml\n")[1:]
	g.Expect(len(blocks)).To(BeNumerically(">=", 15))
	for _, block := range blocks {
		block, _, _ = strings.Cut(block, "```")
		if strings.Contains(block, "kind: PromotionWindow\n") {
			o := &capstanv1.PromotionWindow{}
			g.Expect(yaml.UnmarshalStrict([]byte(block), o)).To(Succeed(), block)
			g.Expect(w.c.Create(t.Context(), o, client.DryRunAll)).To(Succeed(), block) // Others use the API server.
			g.Expect(gate.ParseWindow(o).Err()).NotTo(HaveOccurred(), block)
			continue
		}
		if strings.Contains(block, "kind: PromotionRequest\n") {
			o := &capstanv1.PromotionRequest{}
			g.Expect(yaml.UnmarshalStrict([]byte(block), o)).To(Succeed(), block)
			o.Namespace = w.ns
			g.Expect(w.c.Create(t.Context(), o)).To(Succeed(), block)
			p := w.pipeline(t.Context(), o.Spec.Pipeline)
			g.Expect(p.Spec.Environments[1:]).To(ContainElement(HaveField("Name", o.Spec.Environment)), block)
			continue
		}
		p := &pipelinesv1.Pipeline{}
		g.Expect(yaml.UnmarshalStrict([]byte(block), p)).To(Succeed(), block)
		p.Namespace = w.ns
		g.Expect(w.c.Create(t.Context(), p)).To(Succeed(), block)
		stored := w.pipeline(t.Context(), p.Name)
		if p.Name == "no-major" {
			sameMajor(g, stored.Spec.Environments[1].Gates.Checks[0].CEL.Expression)
		}
		required := 0
		for i := 1; i < len(stored.Spec.Environments); i++ {
			rules := gate.For(stored, i)
			g.Expect(rules.Errors()).To(BeEmpty(), p.Name)
			g.Expect(verify.For(stored, i).Err()).NotTo(HaveOccurred(), p.Name)
			g.Expect(decision.RollbackFor(stored, i).Err()).NotTo(HaveOccurred(), p.Name)
			if !rules.Empty() || verify.For(stored, i).Set() {
				required++
			}
		}
		g.Expect(required).To(BeNumerically(">", 0), p.Name)
	}
}

// sameMajor checks an expression that is false if a target runs another major version. A target that runs nothing does
// not matter.
func sameMajor(g Gomega, text string) {
	e, err := expression.ForTargets(text)
	g.Expect(err).NotTo(HaveOccurred())
	for from, passes := range map[string]bool{"": true, "1": true, "1.2.3": true, "2.0.0": false, "10.0.0": false} {
		holds, err := e.EvalTargets(expression.Targets{Revision: "1.4.0", From: []string{from}})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(holds).To(Equal(passes), from)
	}
}
