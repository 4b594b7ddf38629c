package browser

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/playground/controlplane"
)

// An open page shows a promotion from its start to its end without being reloaded. The
// promotion is approved with the keyboard.
func TestLivePromotion(t *testing.T) {
	pipeline(t, "shop", "dev", "prod")
	b := newTab(t)
	b.signIn("/pipelines")
	b.Eventually(func() string { return b.cell("shop", "prod") }, patience).Should(And(ContainSubstring("stop good"), ContainSubstring("1.0.0")))
	b.do(kept(), script(`window.said = ""; new MutationObserver(() => { window.said += document.getElementById("said").textContent; }).observe(document.getElementById("said"), { childList: true }); true`))

	b.Expect(release("shop", "dev").Deploy(t.Context(), "1.1.0")).To(Succeed())
	b.Eventually(func() string { return b.cell("shop", "dev") }, patience).Should(ContainSubstring("1.1.0 Ready"))
	b.Eventually(func() string { return b.cell("shop", "prod") }, patience).Should(And(ContainSubstring("Awaiting approval"), ContainSubstring("1.0.0")))
	b.Expect(eval[bool](b, `window.kept === true`)).To(BeTrue(), "it was not reloaded")
	b.Eventually(func() string { return seen[string](b, `window.said`) }, patience).Should(ContainSubstring("apps/shop"), "it is announced to screen readers")

	b.tabTo(`a[href$="/approve"]`)
	b.do(chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible(chromedp.CSS(`input[name="uid"] ~ button`)))
	b.tabTo(`main button[form="act"]`)
	b.do(chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible(chromedp.CSS(`[data-list="matrix"]`)))
	promotions := &capstanv1.PromotionList{}
	b.Expect(world.admin.List(t.Context(), promotions, client.InNamespace(appsNamespace), client.MatchingLabels{capstanv1.PipelineLabel: "shop"})).To(Succeed())
	b.Expect(promotions.Items).To(HaveLen(1))
	b.Expect(promotions.Items[0].Spec.Approval).To(Equal(&capstanv1.Approval{By: "system:serviceaccount:apps:" + approverName}))
	b.Eventually(b.main, patience).Should(ContainSubstring("Awaiting rollout"))

	b.open("/pipelines")
	b.do(kept())
	b.Eventually(func() string { return b.cell("shop", "prod") }, patience).Should(ContainSubstring("Awaiting rollout"))
	b.Expect(release("shop", "prod").Deploy(t.Context(), "1.1.0")).To(Succeed())
	b.Eventually(func() string { return b.cell("shop", "prod") }, patience).Should(And(ContainSubstring("stop good"), ContainSubstring("1.1.0 Ready"), Not(ContainSubstring("rollout"))))
	b.Expect(eval[bool](b, `window.kept === true`)).To(BeTrue(), "it was not reloaded")
}

// An unreachable cluster is grey, with the age of the last observation, when that is 45 s
// old, and not green until it is reachable again.
func TestStaleCluster(t *testing.T) {
	pipeline(t, "silent", "dev", "staging")
	b := newTab(t)
	b.signIn("/pipelines")
	b.Eventually(func() string { return b.cell("silent", "staging") }, patience).Should(ContainSubstring("stop good"))
	before := world.clock.Now()
	world.proxies["staging"].Set(controlplane.Refuse)
	defer world.proxies["staging"].Set(controlplane.Pass)
	world.clock.step(45*time.Second - world.clock.Since(before))
	b.Eventually(func() string { return b.cell("silent", "staging") }, patience, "100ms").Should(And(ContainSubstring("stop stale"), ContainSubstring("1.0.0 Stale"), MatchRegexp(`last observed \d+ s ago`)))
	b.Consistently(func() string { return b.cell("silent", "staging") }, "5s", "100ms").Should(ContainSubstring("stop stale"))
	// The background is grey, and no text is green.
	colour := eval[string](b, `getComputedStyle(document.getElementById("pipeline/apps/silent").querySelector('[data-environment="staging"] .mark')).color`)
	good := eval[string](b, `getComputedStyle(document.documentElement).getPropertyValue("--good")`)
	b.Expect(colour).To(Equal("rgb(86, 93, 102)"), "not %s", good)
	b.Eventually(func() string { return b.cell("silent", "dev") }, patience).Should(ContainSubstring("stop good"), "the other clusters are reachable")
	b.open("/clusters?state=Unreachable")
	b.Eventually(func() string { return seen[string](b, `document.querySelector("[data-list=rows]").innerText`) }, patience).Should(And(ContainSubstring("fleet/staging"), Not(ContainSubstring("fleet/dev"))))

	world.proxies["staging"].Set(controlplane.Pass)
	b.open("/pipelines")
	b.Eventually(func() string { return b.cell("silent", "staging") }, patience).Should(ContainSubstring("stop good"))
}

// Seven open tabs all load, and all are updated.
func TestSevenTabs(t *testing.T) {
	pipeline(t, "tabs", "dev", "prod")
	first := newTab(t)
	first.signIn("/pipelines")
	tabs := []*tab{first}
	for range 6 {
		tabs = append(tabs, anotherTab(t))
	}
	for _, b := range tabs {
		b.do(call(emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})) // As in seven visible windows.
		b.open("/pipelines")
	}
	for _, b := range tabs {
		b.Eventually(func() string { return b.cell("tabs", "dev") }, patience).Should(ContainSubstring("1.0.0"))
	}
	first.Expect(release("tabs", "dev").Deploy(t.Context(), "1.1.0")).To(Succeed())
	for _, b := range tabs {
		b.Eventually(func() string { return b.cell("tabs", "dev") }, patience).Should(ContainSubstring("1.1.0"))
	}
	polling := func() (n int) {
		for _, b := range tabs {
			if strings.Contains(seen[string](b, `document.getElementById("live").textContent`), "each 5 s") {
				n++
			}
		}
		return n
	}
	first.Eventually(polling, patience).Should(Equal(3), "a browser has six connections: four streams, and the other tabs poll")
}

// The page shows that the connection is lost while the hub restarts. Then it is live, and
// users need not sign in again.
func TestRestart(t *testing.T) {
	pipeline(t, "again", "dev", "prod")
	b := newTab(t)
	b.signIn("/pipelines")
	b.Eventually(func() string { return b.cell("again", "dev") }, patience).Should(ContainSubstring("1.0.0"))
	notice := func() bool { return seen[bool](b, `document.getElementById("notice").hidden`) }
	b.Expect(notice()).To(BeTrue())
	b.Expect(world.stop()).To(Succeed())
	b.Eventually(notice, patience).Should(BeFalse())
	b.Expect(b.cell("again", "dev")).To(ContainSubstring("1.0.0"), "the last observation stays on the page")
	b.Expect(start()).To(Succeed())
	b.Eventually(notice, patience).Should(BeTrue())
	b.Expect(release("again", "dev").Deploy(t.Context(), "1.1.0")).To(Succeed())
	b.Eventually(func() string { return b.cell("again", "dev") }, patience).Should(ContainSubstring("1.1.0"))
}

// Without script every page is complete, and its forms and links work.
func TestWithoutScript(t *testing.T) {
	pipeline(t, "plain", "dev", "prod")
	b := newTab(t)
	b.signIn("/pipelines")
	b.Eventually(func() string { return b.cell("plain", "prod") }, patience).Should(ContainSubstring("1.0.0"))
	b.do(call(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}))
	for path, says := range map[string]string{
		"/": "fleet/prod", "/pipelines?q=plain": "apps/plain", "/pipelines/apps/plain": "Revisions", "/clusters/Cluster/fleet/prod": "plain-prod/plain", "/promotions": "Promotions", "/instances": "Leaving or failed", "/backends": "EventingBackends", "/about": "leader",
	} {
		b.open(path)
		b.Expect(evaluate(b, chromedp.OuterHTML(chromedp.CSS("main")))).To(ContainSubstring(says), path)
	}
}

// pictured are the pages of which docs/images has screenshots.
var pictured = []string{
	"overview", "clusters", "cluster", "pipelines", "pipeline", "waiting", "verified", "rolled-back", "waves", "promotions", "delivery", "instances", "backends",
	"about", "search", "approve", "signin",
}

// The widths of the pages, in CSS pixels: a narrow zoomed window, a telephone, a tablet and a screen. Screenshots have two of them.
const zoomed, telephone, tablet, screen = 320, 390, 768, 1440

func readAxe() (string, error) {
	axe, err := os.ReadFile(filepath.Join(controlplane.Root(), "test", "browser", "node_modules", "axe-core", "axe.min.js"))
	return string(axe), err
}

// axeCore returns the script that checks a page. Without it the test is skipped.
func axeCore(t *testing.T) string {
	t.Helper()
	axe, err := readAxe()
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("%v: axe-core is installed by `make browser`, with npm", err)
	}
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return axe
}

// Every page in both themes and four widths passes the rules of WCAG 2.0 to 2.2, A and AA,
// and does not scroll sideways.
func TestAccessible(t *testing.T) {
	axe := axeCore(t)
	onAWS(t)
	pipeline(t, "billing", "dev", "staging", "prod")
	pipelineIn(t, appsNamespace, "checkout", func(s *pipelinesv1.PipelineSpec) {
		s.Verification = &pipelinesv1.Verification{For: "1s"}
		s.Environments[2].Verification = &pipelinesv1.Verification{For: "30m"}
	}, "dev", "staging", "prod")
	pipelineIn(t, appsNamespace, "payments", func(s *pipelinesv1.PipelineSpec) {
		s.Gates = &pipelinesv1.Gates{Soak: &pipelinesv1.Soak{For: "2h"}, Windows: []pipelinesv1.Window{
			{Name: "office", WindowSpec: pipelinesv1.WindowSpec{Type: pipelinesv1.AllowWindow, Schedule: "0 9 * * 1-5", Duration: "8h", TimeZone: "Europe/Riga"}},
			{Name: "incident", WindowSpec: pipelinesv1.WindowSpec{Type: pipelinesv1.DenyWindow, Reason: "incident 4711"}},
		}}
	}, "dev", "prod")
	pipelineIn(t, appsNamespace, "orders", func(s *pipelinesv1.PipelineSpec) {
		s.Rollback = &pipelinesv1.Rollback{Mode: pipelinesv1.RollbackPromote}
		s.Environments[1].Promotion = nil // Not manual.
		s.Environments[1].Verification = &pipelinesv1.Verification{For: "1s", Checks: []pipelinesv1.Check{
			{Name: "error-rate", Failures: 1, Prometheus: &pipelinesv1.PrometheusCheck{Endpoint: endpointName, Query: `sum(rate(errors{app="orders"}[5m]))`, Expression: "value < 0.01"}},
			{Name: "targets-ready", Interval: "1s", CEL: &pipelinesv1.CELCheck{Expression: `targets.all(t, t.ready)`}},
		}}
	}, "dev", "prod")
	b := newTab(t)
	b.signIn("/pipelines")
	rolledBack(t, b)
	b.Eventually(func() string { return b.cell("billing", "prod") }, patience).Should(ContainSubstring("1.0.0"))
	b.Expect(release("billing", "dev").Deploy(t.Context(), "2.0.0")).To(Succeed())
	b.Expect(release("billing", "staging").Deploy(t.Context(), "2.0.0")).To(Succeed())
	b.Eventually(func() string { return b.cell("billing", "prod") }, patience).Should(ContainSubstring("Awaiting approval"))
	b.Eventually(func() string { return b.cell("payments", "prod") }, patience).Should(ContainSubstring("1.0.0"))
	b.Expect(release("payments", "dev").Deploy(t.Context(), "2.0.0")).To(Succeed())
	b.Eventually(func() string { return b.cell("payments", "prod") }, patience).Should(ContainSubstring("Awaiting gates"))
	b.Eventually(func() string { return b.cell("checkout", "prod") }, patience).Should(ContainSubstring("Verifying"))
	b.Expect(release("checkout", "dev").Deploy(t.Context(), "2.0.0")).To(Succeed())
	b.Expect(release("checkout", "staging").Deploy(t.Context(), "2.0.0")).To(Succeed())
	interrupt(t)
	b.open("/instances")
	b.Eventually(b.main, patience).Should(And(ContainSubstring("fleet/worker"), ContainSubstring("spot-interruption-terminate")))
	b.open("/pipelines")
	approve := eval[string](b, `document.querySelector('a[href$="/approve"]').getAttribute("href")`)
	pages := map[string]string{
		"overview": "/", "clusters": "/clusters", "delivery": "/delivery", "search": "/search?q=billing", "cluster": "/clusters/Cluster/fleet/prod", "pipelines": "/pipelines", "pipeline": "/pipelines/apps/billing", "promotions": "/promotions", "instances": "/instances", "backends": "/backends",
		"waiting": "/pipelines/apps/payments", "verified": "/pipelines/apps/checkout", "rolled-back": "/pipelines/apps/orders", "about": "/about", "approve": approve, "nothing": "/pipelines?q=nothing", "missing": "/nowhere",
	}
	b.open(pages["waiting"])
	b.Expect(b.main()).To(And(ContainSubstring("soak Soaking"), ContainSubstring("windows Frozen"), ContainSubstring("incident 4711"), ContainSubstring("needs an approval")))
	b.open(pages["verified"])
	b.Eventually(b.opened, patience).Should(And(ContainSubstring(`Verified: every target of environment "staging" runs 2.0.0`),
		ContainSubstring("Verifying"), ContainSubstring("must be ready for 30m in all"), ContainSubstring("The verification is expected to end")))
	b.open(pages["rolled-back"])
	b.Expect(b.opened()).To(And(ContainSubstring("Rollback of 1.1.0, no. 2"), ContainSubstring(`Failed check error-rate: "value < 0.01" is false, with the value 0.071`), ContainSubstring("Passed check targets-ready"),
		ContainSubstring("Held 1.1.0 is not promoted: held until dev agrees on another revision.")))
	for name, path := range pages {
		b.check(axe, name, path)
	}
	b.do(chromedp.Click(chromedp.CSS(".user button")), chromedp.WaitVisible(chromedp.CSS(`input[name="token"]`)))
	b.check(axe, "signin", "/signin")
}

// check opens a page in both themes and four widths, and checks that it is accessible and does not scroll sideways.
func (b *tab) check(axe, name, path string) {
	b.t.Helper()
	for _, theme := range []string{"light", "dark"} {
		for _, width := range []int64{zoomed, telephone, tablet, screen} {
			b.themed(theme, width)
			b.open(path)
			at := fmt.Sprintf("%s, %s, %d px", name, theme, width)
			b.Expect(eval[int](b, `document.scrollingElement.scrollWidth`)).To(BeNumerically("<=", width), at)
			if *screenshots && (width == telephone || width == screen) && slices.Contains(pictured, name) {
				b.picture(fmt.Sprintf("dashboard-%s-%s-%d.png", name, theme, width))
			}
			if width == zoomed || width == tablet || (theme == "dark" && width == telephone) {
				continue // Themes differ in colours and widths in layout: not every combination is tested.
			}
			b.Expect(b.violations(axe)).To(BeEmpty(), at)
		}
	}
}

// violations of the rules on the page.
func (b *tab) violations(axe string) []string {
	b.t.Helper()
	b.do(script(axe))
	return evaluate(b, chromedp.Evaluate[[]string](`axe.run({runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"], rules: {"target-size": {enabled: true}}})
		.then(r => r.violations.map(v => v.id + ": " + v.help + " " + v.nodes.map(n => n.html + " " + n.failureSummary).join("; ")))`, chromedp.EvalAwaitPromise))
}

// rolledBack makes 1.1.0 of orders fail in the verification of prod, and waits until prod is rolled back.
func rolledBack(t *testing.T, b *tab) {
	t.Helper()
	newest := func(revision string, phase capstanv1.PromotionPhase) {
		b.Eventually(func(g Gomega) {
			p := &pipelinesv1.Pipeline{ObjectMeta: metav1.ObjectMeta{Namespace: appsNamespace, Name: "orders"}}
			g.Expect(world.admin.Get(t.Context(), client.ObjectKeyFromObject(p), p)).To(Succeed())
			g.Expect(p.Status.Environments["prod"]).To(And(HaveField("Promotion.Revision", revision), HaveField("Promotion.Phase", string(phase))))
		}, patience).Should(Succeed())
	}
	newest("1.0.0", capstanv1.PhaseSucceeded)
	world.measured.Store("0.071")
	b.Expect(release("orders", "dev").Deploy(t.Context(), "1.1.0")).To(Succeed())
	newest("1.1.0", capstanv1.PhaseAwaitingRollout)
	b.Expect(release("orders", "prod").Deploy(t.Context(), "1.1.0")).To(Succeed())
	newest("1.0.0", capstanv1.PhaseAwaitingRollout)
	world.measured.Store("0.004")
	b.Expect(release("orders", "prod").Deploy(t.Context(), "1.0.0")).To(Succeed())
	newest("1.0.0", capstanv1.PhaseSucceeded)
}

// picture writes a screenshot of the page.
func (b *tab) picture(name string) {
	b.t.Helper()
	png := evaluate(b, chromedp.FullScreenshot(100))
	folder := filepath.Join(controlplane.Root(), "docs", "images")
	b.Expect(os.MkdirAll(folder, 0o755)).To(Succeed())
	b.Expect(os.WriteFile(filepath.Join(folder, name), png, 0o600)).To(Succeed())
	b.Expect(strings.HasSuffix(name, ".png")).To(BeTrue())
}
