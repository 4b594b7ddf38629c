package browser

import (
	"context"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	. "github.com/onsi/gomega"
)

// tab is a tab of the browser.
type tab struct {
	*WithT
	t   *testing.T
	ctx context.Context
}

// anotherTab opens a tab with the session of the open tabs.
func anotherTab(t *testing.T) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(world.browser)
	t.Cleanup(cancel)
	b := &tab{WithT: NewWithT(t), t: t, ctx: ctx}
	b.Expect(chromedp.Do(ctx)).To(Succeed()) // The first call opens the tab, which stays open until this context ends.
	return b
}

// newTab opens a tab without a session.
func newTab(t *testing.T) *tab {
	t.Helper()
	b := anotherTab(t)
	b.do(call(network.Enable, network.EnableParams{}), call(network.ClearBrowserCookies, cdp.Empty{}), sized(1440, false))
	return b
}

// actionTime is for one action of the browser; longer waits are Eventually's.
const actionTime = time.Minute

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, actionTime)
	defer cancel()
	b.Expect(chromedp.Do(ctx, actions...)).To(Succeed())
}

func (b *tab) open(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(world.url + path))
}

// kept sets a mark, which a reload of the page removes.
func kept() chromedp.Action[chromedp.Void] { return script(`window.kept = true`) }

// signIn types the token of the user who may see everything.
func (b *tab) signIn(path string) {
	b.t.Helper()
	b.signInWith(world.token, path)
}

func (b *tab) signInWith(token, path string) {
	b.t.Helper()
	b.Eventually(func(g Gomega) {
		ctx, cancel := context.WithTimeout(b.ctx, actionTime)
		defer cancel()
		g.Expect(chromedp.Do(ctx, chromedp.Navigate(world.url+path))).To(Succeed())
	}, patience).Should(Succeed())
	b.do(chromedp.SendKeys(chromedp.CSS(`input[name="token"]`), token+kb.Enter), chromedp.WaitVisible(chromedp.CSS(".user button")))
}

// evaluate runs an action and returns its value.
func evaluate[T any](b *tab, action chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, actionTime)
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	b.Expect(err).NotTo(HaveOccurred())
	return value
}

// eval returns the value of a script.
func eval[T any](b *tab, script string) T {
	b.t.Helper()
	return evaluate(b, chromedp.Evaluate[T](script))
}

// seen returns the value of a script, and the zero value while the page is being
// replaced. It is for conditions that a test waits for.
func seen[T any](b *tab, script string) T {
	ctx, cancel := context.WithTimeout(b.ctx, actionTime)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](script))
	if err != nil {
		var none T
		return none
	}
	return value
}

// script runs a script whose value is not used.
func script(source string) chromedp.Action[chromedp.Void] {
	return chromedp.Evaluate[chromedp.Void](source)
}

// call sends a command of the DevTools protocol that returns nothing.
func call[P any](command cdp.Command[P, cdp.Empty], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, command, params)
		return err
	})
}

// sized sets the width of the window, in CSS pixels.
func sized(width int64, mobile bool) chromedp.Action[chromedp.Void] {
	return call(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 900, DeviceScaleFactor: 1, Mobile: mobile})
}

// main is the text of the page's main part.
func (b *tab) main() string { return seen[string](b, `document.querySelector("main").innerText`) }

// opened is the text of the page's main part after all that is folded was opened.
func (b *tab) opened() string {
	return seen[string](b, `(document.querySelectorAll("main details").forEach(d => { d.open = true; }), document.querySelector("main").innerText)`)
}

// cell is the text of an environment on a Pipeline's rail, and its tone: "stop good ...".
func (b *tab) cell(app, environment string) string {
	return seen[string](b, `(() => { const c = document.getElementById("pipeline/apps/`+app+`")?.querySelector('[data-environment="`+environment+`"]');
		return c ? (c.className + " " + c.innerText.replace(/\s+/g, " ")) : "" })()`)
}

// tabTo presses the tab key until an element has the focus.
func (b *tab) tabTo(what string) {
	b.t.Helper()
	const most = 80
	for range most {
		b.do(chromedp.KeyEvent(kb.Tab))
		if eval[bool](b, `document.activeElement.matches('`+what+`')`) {
			outline := eval[string](b, `getComputedStyle(document.activeElement).outlineStyle`)
			b.Expect(outline).NotTo(Equal("none"), "the focus is visible")
			return
		}
	}
	b.t.Fatalf("the keyboard does not reach %s", what)
}

// themed sets the theme and the width of the pages.
func (b *tab) themed(theme string, width int64) {
	b.t.Helper()
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}, {Name: "prefers-reduced-motion", Value: "reduce"}}
	b.do(call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features}), sized(width, width < 768))
}
