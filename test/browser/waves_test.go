package browser

import (
	"errors"
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// stores are the clusters of each wave.
var stores = []struct {
	wave     string
	clusters []string
}{
	{"canary", []string{"riga-1"}}, {"baltics", []string{"vilnius-1", "tallinn-1"}}, {"nordics", []string{"oslo-1", "oslo-2"}},
	{"central", []string{"vienna-1", "prague-1"}}, {"rest", []string{"porto-1", "lyon-1"}},
}

// storefront creates a Pipeline whose prod has five waves of clusters, which all run 1.0.0.
func storefront(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	prod := pipelinesv1.Environment{Name: "prod"}
	for i, s := range stores {
		wave := pipelinesv1.Wave{Name: s.wave}
		if i < len(stores)-1 {
			wave.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"ring": s.wave}}
		}
		if s.wave == "baltics" {
			wave.Soak = &pipelinesv1.Soak{For: "1h"}
		}
		prod.Waves = append(prod.Waves, wave)
		for _, name := range s.clusters {
			g.Expect(declareCluster(t.Context(), name, map[string]string{"ring": s.wave})).To(Succeed())
			t.Cleanup(func() { g.Expect(world.proxies[name].Close()).To(Succeed()); delete(world.proxies, name) })
			g.Expect(release("storefront", name).Deploy(t.Context(), "1.0.0")).To(Succeed())
			prod.Targets = append(prod.Targets, pipelinesv1.Target{
				Namespace: "storefront-" + name, ClusterRef: &pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Namespace: fleetNamespace, Name: name},
			})
		}
	}
	pipelineIn(t, appsNamespace, "storefront", func(s *pipelinesv1.PipelineSpec) { s.Environments = append(s.Environments, prod) }, "dev", "staging")
}

// The rail has one stop for an environment with waves, which says how far a revision is. The page of the Pipeline has the waves,
// and shows without being reloaded how one after the other gets the revision. It passes the rules of TestAccessible.
func TestWaves(t *testing.T) {
	storefront(t)
	b := newTab(t)
	b.signIn("/pipelines?q=storefront")
	b.Eventually(func() string { return b.cell("storefront", "prod") }, patience).Should(And(ContainSubstring("9/9 ready"), ContainSubstring("5 of 5 waves run 1.0.0")))
	b.Expect(eval[[]string](b, `[...document.querySelectorAll("[data-environment]")].map(e => e.dataset.environment)`)).To(Equal([]string{"dev", "staging", "prod"}))

	b.open("/pipelines/apps/storefront")
	wave := func(name string) func() string {
		return func() string {
			return seen[string](b, fmt.Sprintf(`(document.getElementById("wave/prod/%s")?.innerText || "").replace(/\s+/g, " ")`, name))
		}
	}
	b.Eventually(wave("canary"), patience).Should(And(ContainSubstring("1 of 1 run 1.0.0"), ContainSubstring("1 target")))
	b.do(kept())
	for _, name := range []string{"dev", "staging"} {
		b.Expect(release("storefront", name).Deploy(t.Context(), "1.1.0")).To(Succeed())
	}
	for _, s := range stores[:2] {
		b.Eventually(wave(s.wave), patience).Should(ContainSubstring("Awaiting rollout"))
		for _, name := range s.clusters {
			b.Expect(release("storefront", name).Deploy(t.Context(), "1.1.0")).To(Succeed())
		}
		b.Eventually(wave(s.wave), patience).Should(And(ContainSubstring(fmt.Sprintf("%d of %d run 1.1.0", len(s.clusters), len(s.clusters))), Not(ContainSubstring("rollout"))))
	}
	b.Eventually(wave("nordics"), patience).Should(And(ContainSubstring("Awaiting gates"), ContainSubstring("Expected to continue")))
	b.Expect(release("storefront", "lyon-1").Fail(t.Context(), "1.0.1", errors.New("timed out waiting for the condition"))).To(Succeed())
	b.Eventually(wave("rest"), patience).Should(And(ContainSubstring("Not ready"), ContainSubstring("fleet/lyon-1")))
	b.Expect(wave("central")()).NotTo(ContainSubstring("vienna"), "its targets are closed")
	b.Expect(eval[bool](b, `window.kept === true`)).To(BeTrue(), "it was not reloaded")
	b.do(chromedp.Click(chromedp.CSS(`[id="wave/prod/central"] summary`)))
	b.Eventually(wave("central"), patience).Should(ContainSubstring("fleet/vienna-1"))
	b.Expect(eval[bool](b, `document.getElementById(document.querySelector('[id="wave/prod/nordics"] .move a').hash.slice(1)) !== null`)).To(BeTrue(), "the link has a target")

	b.open("/pipelines?q=storefront")
	b.Eventually(func() string { return b.cell("storefront", "prod") }, patience).Should(And(ContainSubstring("2 of 5 waves run 1.1.0, 2 run 1.0.0"),
		ContainSubstring("Not ready"), ContainSubstring("worst: rest"), MatchRegexp(`Awaiting gates 1.1.0 nordics soak opens`), Not(ContainSubstring("vienna"))))
	axe := axeCore(t)
	b.check(axe, "waves", "/pipelines/apps/storefront")
	b.check(axe, "waves on the rail", "/pipelines?q=storefront")
}
