package browser

import (
	"context"
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	. "github.com/onsi/gomega"
)

// focused is the name of the element with the focus: its ID, its name, or its address.
const focused = `(() => { const a = document.activeElement; return a.id || a.name || a.getAttribute("href") || a.tagName; })()`

// slash presses the key as a keyboard does: one event has the key and its character.
var slash = chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
	down := input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: "/", Code: "Slash", Text: "/", WindowsVirtualKeyCode: slashCode}
	if _, err := cdp.Call(ctx, t, input.DispatchKeyEvent, down); err != nil {
		return err
	}
	_, err := cdp.Call(ctx, t, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyUp, Key: "/", Code: "Slash", WindowsVirtualKeyCode: slashCode})
	return err
})

// slashCode is the code of the key on a keyboard of Windows.
const slashCode = 191

// The keys of the search work everywhere but in fields, the search finds all kinds, and a user can turn off the key that
// is a character.
func TestSearchByKeyboard(t *testing.T) {
	pipeline(t, "sought", "dev", "prod")
	b := newTab(t)
	b.signIn("/pipelines")
	b.Eventually(func() bool { return seen[bool](b, `document.documentElement.matches(".scripted")`) }, patience).Should(BeTrue())
	focus := func() string { return seen[string](b, focused) }
	b.Expect(focus()).To(Equal("BODY"))
	b.do(slash)
	b.Expect(focus()).To(Equal("find"))
	b.Expect(eval[string](b, `document.getElementById("find").value`)).To(BeEmpty())
	b.do(chromedp.KeyEvent("sought / prod" + kb.Enter)) // In a field, this key is a character.
	b.Eventually(func() string { return seen[string](b, `location.pathname + location.search`) }, patience).Should(Equal("/search?q=sought+%2F+prod"))
	b.open("/search?q=SOUGHT")
	b.Eventually(b.main, patience).Should(And(ContainSubstring("apps/sought"), ContainSubstring("Open in the list of Pipelines")))
	b.Expect(eval[string](b, `document.getElementById("find").value`)).To(Equal("SOUGHT"))
	b.do(script(`document.activeElement.blur(); true`), chromedp.KeyEvent("k", chromedp.KeyModifiers(chromedp.ModifierCtrl)))
	b.Expect(focus()).To(Equal("find"))
	b.do(script(`document.activeElement.blur(); true`), chromedp.KeyEvent("K", chromedp.KeyModifiers(chromedp.ModifierCtrl, chromedp.ModifierShift)))
	b.Expect(focus()).To(Equal("BODY"), "this key is the browser's")

	b.open("/about")
	b.do(chromedp.WaitVisible(chromedp.CSS(`[data-keys]`)), script(`document.querySelector("[data-keys]").click(); true`))
	b.open("/pipelines")
	b.do(chromedp.WaitVisible(chromedp.CSS("#find")))
	b.do(slash)
	b.Expect(focus()).To(Equal("BODY"))
	b.do(script(`localStorage.clear(); true`))

	b.open("/search?q=nothing-has-this-name")
	b.Eventually(b.main, patience).Should(ContainSubstring("Nothing that you may see matches"))
}

// A filter is applied when it changes, the address has only what is set, and the focus stays on the field.
func TestFiltersApplyAtOnce(t *testing.T) {
	pipeline(t, "filtered", "dev", "prod")
	b := newTab(t)
	b.signIn("/pipelines")
	address := func() string { return seen[string](b, `location.pathname + location.search`) }
	b.do(chromedp.WaitVisible(chromedp.CSS(`main select[name="state"]`)))
	b.Expect(eval[bool](b, `document.querySelector("[data-apply] > button").checkVisibility()`)).To(BeFalse())
	b.do(script(`(() => { const s = document.querySelector('main select[name="state"]'); s.focus(); s.value = "Ready"; s.dispatchEvent(new Event("change", { bubbles: true })); })(); true`))
	b.Eventually(address, patience).Should(Equal("/pipelines?state=Ready"))
	b.Eventually(func() string { return seen[string](b, focused) }, patience).Should(Equal("state"))
	b.do(chromedp.SendKeys(chromedp.CSS(`main input[name="q"]`), "filtered"+kb.Enter))
	b.Eventually(address, patience).Should(Equal("/pipelines?q=filtered&state=Ready"))
	b.Eventually(func() string { return seen[string](b, focused) }, patience).Should(Equal("q"))
	b.open("/pipelines?q=nothing-has-this-name")
	b.Eventually(b.main, patience).Should(ContainSubstring("Clear"))
}

// On a telephone the header and the filters leave the screen to the content; the menu opens without script.
func TestNarrowHeader(t *testing.T) {
	pipeline(t, "narrow", "dev", "prod")
	b := newTab(t)
	b.signIn("/pipelines")
	for _, width := range []int64{390, 768, 1440} {
		b.themed("light", width)
		for _, path := range []string{"/pipelines", "/promotions", "/backends", "/search?q=narrow", "/about"} {
			b.open(path)
			b.do(chromedp.WaitVisible(chromedp.CSS("main h1")))
			b.Expect(eval[int](b, `document.scrollingElement.scrollWidth`)).To(BeNumerically("<=", width), path)
			most := 240 // CSS pixels of header, title and filters
			if width == 390 {
				most = 180
			}
			height := eval[float64](b, `document.querySelector("header").getBoundingClientRect().height + document.querySelector("h1").getBoundingClientRect().height +
				(document.querySelector("main details.fold")?.getBoundingClientRect().height || 0)`)
			b.Expect(height).To(BeNumerically("<=", most), "%s at %d", path, width)
			shown := eval[bool](b, `document.querySelector("header nav a").checkVisibility({ contentVisibilityAuto: true, visibilityProperty: true })`)
			b.Expect(shown).To(Equal(width >= 768), "%s at %d", path, width)
		}
	}
	b.themed("light", 390)
	b.open("/pipelines")
	b.tabTo(".menu > summary")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.Eventually(func() bool { return seen[bool](b, `document.querySelector("header nav a").checkVisibility()`) }, patience).Should(BeTrue())
	b.Expect(eval[int](b, `document.scrollingElement.scrollWidth`)).To(BeNumerically("<=", 390))
}

// One square of a map is in the tab order. The arrow keys follow the rows, and the focus stays in the map when an entry
// with it is replaced, moved or removed.
func TestMapByKeyboard(t *testing.T) {
	b := newTab(t)
	b.signIn("/about")
	// The test sends the changes itself.
	fake := `window.EventSource = class { constructor() { this.on = {}; window.stream = this; } addEventListener(name, f) { this.on[name] = f; } close() {} };
		window.send = (change) => stream.on.patch({ lastEventId: "x-1", data: JSON.stringify(change) });`
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: fake})
		return err
	}))
	b.open("/about")
	b.do(chromedp.WaitVisible(chromedp.CSS("[data-list]")))
	// Twelve squares in rows of five: the script knows only the markup.
	b.do(script(`(() => { const map = document.createElement("ul"); map.dataset.map = ""; map.dataset.list = "map";
		document.querySelector("main").replaceChildren(map);
		const style = new CSSStyleSheet(); style.replaceSync("[data-map] { width: 100px; display: flex; flex-wrap: wrap; } [data-map] a { display: block; width: 20px; height: 20px; }");
		document.adoptedStyleSheets.push(style);
		for (let i = 0; i < 12; i++) { const li = document.createElement("li"), a = document.createElement("a"); a.href = "#" + i; li.id = "square/" + i; li.append(a); map.append(li); }
		map.querySelector("a").focus(); })(); true`))
	focus := func() string { return seen[string](b, focused) }
	inOrder := func() int {
		return eval[int](b, `[...document.querySelectorAll("[data-map] a")].filter((a) => a.tabIndex === 0).length`)
	}
	b.Expect(focus()).To(Equal("#0"))
	b.Expect(inOrder()).To(Equal(1))
	for _, step := range []struct{ key, want string }{
		{kb.ArrowRight, "#1"}, {kb.ArrowRight, "#2"}, {kb.ArrowDown, "#7"}, {kb.ArrowRight, "#8"}, {kb.ArrowDown, "#11"}, {kb.ArrowDown, "#11"}, {kb.ArrowUp, "#6"},
		{kb.ArrowLeft, "#5"}, {kb.ArrowLeft, "#4"}, {kb.Home, "#0"}, {kb.ArrowUp, "#0"}, {kb.ArrowLeft, "#0"}, {kb.End, "#11"}, {kb.ArrowRight, "#11"}, {kb.ArrowLeft, "#10"},
	} {
		b.do(chromedp.KeyEvent(step.key))
		b.Expect(focus()).To(Equal(step.want), fmt.Sprintf("%q", step.key))
	}
	b.Expect(inOrder()).To(Equal(1))

	b.do(script(`send({ html: { "square/10": '<li id="square/10"><a href="#10">changed</a></li>' } }); true`))
	b.Expect(eval[string](b, `document.activeElement.textContent`)).To(Equal("changed"))
	b.do(script(`window.ids = [...document.querySelectorAll("[data-map] li")].map((e) => e.id).reverse(); send({ lists: { map: ids } }); true`))
	b.Expect(focus()).To(Equal("#10"), "it moved")
	b.do(script(`send({ lists: { map: ids.filter((id) => id !== "square/10") } }); true`))
	b.Expect(focus()).To(Equal("#9"), "the next one has its place")
	b.Expect(inOrder()).To(Equal(1))
}
