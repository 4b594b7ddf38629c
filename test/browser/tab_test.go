package browser

import (
	"context"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	. "github.com/onsi/gomega"
)

// tab of the browser.
type tab struct {
	*WithT
	t   *testing.T
	ctx context.Context
}

// anotherTab has the session of those that are open.
func anotherTab(t *testing.T) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(world.browser)
	t.Cleanup(cancel)
	b := &tab{WithT: NewWithT(t), t: t, ctx: ctx}
	b.Expect(chromedp.Run(ctx)).To(Succeed()) // Which opens it: the tab lives as long as this context.
	return b
}

// newTab opens one that has no session yet.
func newTab(t *testing.T) *tab {
	t.Helper()
	b := anotherTab(t)
	b.do(network.Enable(), network.ClearBrowserCookies(), emulation.SetDeviceMetricsOverride(1440, 900, 1, false))
	return b
}

// actionTime is for one action of the browser; longer waits are Eventually's.
const actionTime = time.Minute

func (b *tab) do(actions ...chromedp.Action) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, actionTime)
	defer cancel()
	b.Expect(chromedp.Run(ctx, actions...)).To(Succeed())
}

func (b *tab) open(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(world.url + path))
}

// kept marks the page, which a reload forgets.
func kept() chromedp.Action { return chromedp.Evaluate(`window.kept = true`, nil) }

// signIn types the token of who may see everything, as people do.
func (b *tab) signIn(path string) {
	b.t.Helper()
	b.signInWith(world.token, path)
}

func (b *tab) signInWith(token, path string) {
	b.t.Helper()
	b.Eventually(func(g Gomega) {
		ctx, cancel := context.WithTimeout(b.ctx, actionTime)
		defer cancel()
		g.Expect(chromedp.Run(ctx, chromedp.Navigate(world.url+path))).To(Succeed())
	}, patience).Should(Succeed())
	b.do(chromedp.SendKeys(`input[name="token"]`, token+kb.Enter), chromedp.WaitVisible(".user button"))
}

func eval[T any](b *tab, script string) T {
	b.t.Helper()
	var is T
	b.do(chromedp.Evaluate(script, &is))
	return is
}

// seen is what a script finds on the page: nothing while that is being replaced. It is
// for what is waited for.
func seen[T any](b *tab, script string) T {
	var is T
	ctx, cancel := context.WithTimeout(b.ctx, actionTime)
	defer cancel()
	if chromedp.Run(ctx, chromedp.Evaluate(script, &is)) != nil {
		var none T
		return none
	}
	return is
}

// main is the text of the page's main part.
func (b *tab) main() string { return seen[string](b, `document.querySelector("main").innerText`) }

// cell is the text of a Pipeline's cell in the matrix, and the tone of its target.
func (b *tab) cell(app, environment string) string {
	return seen[string](b, `(() => { const c = document.getElementById("pipeline/apps/`+app+`")?.querySelector('td[data-column="`+environment+`"]');
		return c ? (c.querySelector(".target")?.className + " " + c.innerText.replace(/\s+/g, " ")) : "" })()`)
}

// press keys until the focus is where it should be.
func (b *tab) tabTo(what string) {
	b.t.Helper()
	const most = 80
	for range most {
		b.do(chromedp.KeyEvent(kb.Tab))
		if eval[bool](b, `document.activeElement.matches('`+what+`')`) {
			outline := eval[string](b, `getComputedStyle(document.activeElement).outlineStyle`)
			b.Expect(outline).NotTo(Equal("none"), "where the focus is can be seen")
			return
		}
	}
	b.t.Fatalf("the keyboard does not reach %s", what)
}

// themed has the pages shown in a theme and a width.
func (b *tab) themed(theme string, width int64) {
	b.t.Helper()
	b.do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}, {Name: "prefers-reduced-motion", Value: "reduce"}}),
		emulation.SetDeviceMetricsOverride(width, 900, 1, width < 768))
}

// awaited has a script's promise waited for.
func awaited(p *cdpruntime.EvaluateParams) *cdpruntime.EvaluateParams {
	return p.WithAwaitPromise(true)
}
