package dashboard

import (
	"net/url"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/hub/dashboard/view"
)

// hostileName is a name that is markup, has no spaces, and is written from right to left.
var hostileName = "\u202e\"><script>alert(1)</script>" + strings.Repeat("x", 200)

// The form above a list has all fields, names what it has no field for, and shows hostile values as text.
func TestFiltersForm(t *testing.T) {
	g := NewWithT(t)
	r := largeRenderer(t)
	f := view.Filters{Action: "/clusters", What: "clusters", States: []string{"Ready"}, Namespaces: []string{"a"}, Users: true, Ages: []string{"24h"}, Environments: []string{"prod"}}
	html, err := r.execute("filters", f)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(html).To(And(ContainSubstring(`<details class="fold"><summary>Filters</summary>`), ContainSubstring(`action="/clusters"`), Not(ContainSubstring("Clear")), Not(ContainSubstring(`type="hidden"`)),
		ContainSubstring(`name="user"`), ContainSubstring(`<select name="within">`), ContainSubstring(`<select name="environment">`)))

	f.Query = view.Query{Search: hostileName, State: "Ready", Namespace: hostileName, Reason: hostileName, Tab: "done"}
	f.Tabs = []view.Option{{Text: "All"}, {Value: "done", Text: "Done"}}
	html, err = r.execute("filters", f)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(html).To(And(ContainSubstring(`<details class="fold" open>`), ContainSubstring(`<option value="Ready" selected>`), ContainSubstring(`<input type="hidden" name="tab" value="done">`),
		ContainSubstring(`aria-current="page">Done</a>`), ContainSubstring(`<a class="chip" href="/clusters?namespace=`), ContainSubstring(`<a href="/clusters?tab=done">Clear</a>`),
		ContainSubstring(`<button type="submit">Filter</button>`), Not(ContainSubstring("<script"))))
}

// An empty list and a part of a list say why, and what to do.
func TestTextsOfRights(t *testing.T) {
	r := largeRenderer(t)
	for name, tc := range map[string]struct {
		block view.Block
		want  string
	}{
		"no match": {
			view.Block{Template: "empty-item", Data: view.Empty{What: "clusters", Filtered: true, Clear: "/clusters"}}, `No clusters match. <a href="/clusters">Clear filters</a>`,
		},
		"no match in another list": {view.Block{Template: "empty-item", Data: view.Empty{Filtered: true}}, `No entries match. Clear the filters.`},
		"no right": {
			view.Block{Template: "empty-row", Data: view.Empty{What: "clusters", Need: view.NeedClusters}},
			"No clusters are visible to you. To see them you need permission to <code>list clusterconnections.capstan.dev</code> in their namespaces.",
		},
		"nothing there": {view.Block{Template: "empty-row", Data: view.Empty{Text: "No cluster exists."}}, "No cluster exists."},
		"hidden": {
			view.Block{Template: "hidden", Data: view.Hidden{Limits: []view.Limit{{What: "clusters, Pipelines", Needs: []string{"list a", "list b"}}}}},
			`Not visible to you: clusters, Pipelines. <a href="/about">Permissions that you need</a>`,
		},
		"one hidden": {
			view.Block{Template: "hidden", Data: view.Hidden{Limits: []view.Limit{{What: "clusters", Needs: []string{"list a"}}}}},
			"Not visible to you: clusters. To see them you need permission to <code>list a</code>.",
		},
		"in one namespace": {
			view.Block{Template: "hidden", Data: view.Hidden{Limits: []view.Limit{{What: "clusters", In: []string{"<a>"}}}}}, "You see only a part: clusters of the namespace <b>&lt;a&gt;</b>.",
		},
		"in many namespaces": {
			view.Block{Template: "hidden", Data: view.Hidden{Limits: []view.Limit{{What: "clusters", In: []string{"a", "b"}, More: 3}}}}, "clusters of the namespaces <b>a</b>, <b>b</b> and 3 more.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			html, err := r.block(tc.block)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(html).To(ContainSubstring(tc.want))
		})
	}
}

// The results of a search are links with whole names in their titles; hostile names are text.
func TestSearchPage(t *testing.T) {
	g := NewWithT(t)
	r := largeRenderer(t)
	html, err := r.block(view.Block{ID: "search/Clusters", Template: "search-hits", Data: view.Hits{
		Title: "Clusters", What: "clusters", N: 57, All: "/clusters?q=x", Shown: []view.Hit{
			{Name: hostileName, Kind: "GitopsCluster", Link: "/clusters/x", Mark: view.Mark{Tone: view.Bad, Word: "Unreachable"}, Text: hostileName, At: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)},
			{Name: "fleet/m-1", Kind: "Cluster"},
		},
	}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(html).To(And(ContainSubstring("<h2>Clusters <small>57</small></h2>"), ContainSubstring(`<a href="/clusters?q=x">All 57 clusters that match</a>`), ContainSubstring(`<small>GitopsCluster</small>`),
		ContainSubstring(`<span class="cut" title="fleet/m-1">fleet/m-1</span>`), Not(ContainSubstring(`<small>Cluster</small>`)), ContainSubstring(`<time datetime="2026-03-01T12:00:00Z">`), Not(ContainSubstring("<script"))))

	for q, want := range map[string]string{
		"":          "Search in the field above.",
		"app-007":   `href="/pipelines/team-7/app-007"`,
		"CLUSTER-1": "All 100 clusters that match",
		hostile:     "Nothing that you may see matches",
	} {
		a, ok := (&Options{}).parseAddress(&url.URL{Path: "/search", RawQuery: url.Values{"q": {q}}.Encode()})
		g.Expect(ok).To(BeTrue())
		topic := newTopic(a, view.Everything(), r)
		g.Expect(topic.refresh(large())).To(Succeed())
		seen, _, err := topic.shot()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(seen.main).To(And(ContainSubstring(want), Not(ContainSubstring("<script"))), q)
	}
}

// The header has the search and the pages, in a menu without script, and nothing of them before sign-in.
func TestLayout(t *testing.T) {
	g := NewWithT(t)
	r := largeRenderer(t)
	html, err := r.execute("layout", shell{Nav: nav("/"), User: hostileName, Search: hostileName, Standby: true})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(html).To(And(ContainSubstring(`action="/search"`), ContainSubstring(`<summary>Menu</summary>`), ContainSubstring(`<a href="/" aria-current="page">`), ContainSubstring("Sign out"),
		ContainSubstring("Standby replica: data as last written by the leader."), ContainSubstring("<kbd>/</kbd>"), Not(ContainSubstring("<script>")), Not(ContainSubstring("style="))))
	html, err = r.execute("layout", shell{SignIn: true})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(html).NotTo(Or(ContainSubstring("/search"), ContainSubstring("Menu"), ContainSubstring("/about")))
}
