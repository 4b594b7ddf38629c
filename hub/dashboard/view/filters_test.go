package view

import (
	"fmt"
	"net/url"
	"testing"

	. "github.com/onsi/gomega"
)

// A field is shown for what the page defines; what has no field stays when the form is sent, except the page.
func TestFiltersKeepTheQuery(t *testing.T) {
	g := NewWithT(t)
	q := ParseQuery(url.Values{
		"q": {"shop"}, "state": {"Failed"}, "namespace": {"gone"}, "reason": {"Unauthorized"}, "tab": {"done"}, "sort": {"age"}, "user": {"ann"}, "page": {"4"},
	})
	f := Filters{Query: q, Action: "/x", States: []string{"Failed", "Ready"}, Namespaces: []string{"apps"}, Sorts: []Option{{"", "State"}, {"age", "Age"}}, Tabs: []Option{{"", "All"}, {"done", "Done"}}}
	g.Expect(f.Fields()).To(Equal([]Field{
		{Name: "q", Label: "Search", Value: "shop", Free: true},
		{Name: "state", Label: "State", Value: "Failed", Options: []Option{{"", "any"}, {"Failed", "Failed"}, {"Ready", "Ready"}}},
		{Name: "namespace", Label: "Namespace", Value: "gone", Options: []Option{{"", "any"}, {"apps", "apps"}, {"gone", "gone"}}},
		{Name: "sort", Label: "Sort by", Value: "age", Options: []Option{{"", "State"}, {"age", "Age"}}},
	}))
	g.Expect(f.Kept()).To(Equal([]Field{{Name: "reason", Value: "Unauthorized"}, {Name: "tab", Value: "done"}, {Name: "user", Value: "ann"}}))
	g.Expect(f.Chips()).To(Equal([]Link{
		{Text: "reason Unauthorized", Address: "/x?namespace=gone&q=shop&sort=age&state=Failed&tab=done&user=ann"},
		{Text: "user ann", Address: "/x?namespace=gone&q=shop&reason=Unauthorized&sort=age&state=Failed&tab=done"},
	}))
	g.Expect(f.TabLinks()).To(Equal([]Link{
		{Text: "All", Address: "/x?namespace=gone&q=shop&reason=Unauthorized&sort=age&state=Failed&user=ann"},
		{Text: "Done", Address: "/x?namespace=gone&q=shop&reason=Unauthorized&sort=age&state=Failed&tab=done&user=ann", Current: true},
	}))
	g.Expect(f.Cleared()).To(Equal("/x?sort=age&tab=done"))
	g.Expect(Filters{Action: "/x"}.Cleared()).To(Equal("/x"))

	f.Users = true
	g.Expect(f.Kept()).NotTo(ContainElement(HaveField("Name", "user")))
	f.Query = Query{}
	g.Expect(f.Kept()).To(BeEmpty())
}

// A field with many values is typed into, and suggests some: the page stays small.
func TestFiltersWithManyNamespaces(t *testing.T) {
	g := NewWithT(t)
	f := Filters{Query: Query{Namespace: "ns-0999", Environment: "prod"}}
	for i := range 1000 {
		f.Namespaces = append(f.Namespaces, fmt.Sprintf("ns-%04d", i))
	}
	g.Expect(f.Fields()[1]).To(And(HaveField("Free", true), HaveField("Value", "ns-0999"), HaveField("Options", HaveLen(maxSuggested))))
	f.Namespaces = f.Namespaces[:maxSelect]
	g.Expect(f.Fields()[1]).To(And(HaveField("Free", false), HaveField("Options", HaveLen(maxSelect+2))), "any, all of them, and the one that is set")
	g.Expect(f.Namespaces).To(HaveLen(maxSelect))
	f.Environments = []string{"prod"}
	g.Expect(f.Fields()[2].Options).To(Equal([]Option{{"", "any"}, {"prod", "prod"}}))
}

// An unknown state is no filter: it would hide all entries.
func TestUnknownStateIsNoFilter(t *testing.T) {
	g := NewWithT(t)
	states := []string{"Failed", "Ready"}
	g.Expect(Query{State: "Nonsense", Search: "x"}.among(states)).To(Equal(Query{Search: "x"}))
	g.Expect(Query{State: "Ready"}.among(states)).To(Equal(Query{State: "Ready"}))
	g.Expect(Query{}.among(nil)).To(Equal(Query{}))
}

// An empty list says why it is empty: no permission, no match with a link to the whole list, or nothing there.
func TestEmptySaysWhy(t *testing.T) {
	g := NewWithT(t)
	all, text := Namespaces{All: true}, "No cluster exists."
	f := Filters{Action: "/x", What: "clusters"}
	g.Expect(f.empty("rows", "empty-row", 3, all, NeedClusters, text).Data).To(Equal(Empty{Columns: 3, Text: text, What: "clusters"}))
	f.Query = Query{Search: "a", Sort: "age"}
	g.Expect(f.empty("rows", "empty-row", 3, all, NeedClusters, text).Data).To(Equal(Empty{Columns: 3, Text: text, What: "clusters", Filtered: true, Clear: "/x?sort=age"}))
	g.Expect(f.empty("rows", "empty-row", 3, Namespaces{}, NeedClusters, text).Data).To(Equal(Empty{Columns: 3, Text: text, What: "clusters", Need: NeedClusters}))
	g.Expect(empty("rows", "empty-row", 3, all, NeedClusters, f.Query, text)).To(Equal(Block{ID: "rows-empty", List: "rows", Template: "empty-row", Data: Empty{Columns: 3, Text: text, Filtered: true}}))
}

// A page says what its viewer does not see completely, kinds with equal namespaces in one line, and nothing to others.
func TestHidden(t *testing.T) {
	g := NewWithT(t)
	g.Expect(hidden("summary", Everything().parts()...)).To(BeEmpty())
	few, many := Namespaces{Names: []string{"a"}}, Namespaces{Names: []string{"a", "b", "c", "d", "e"}}
	s := Scope{Clusters: few, Promotions: few, Pipelines: many, Instances: Namespaces{All: true}}
	blocks := hidden("summary", s.clusters(), s.pipelines(), s.promotions(), s.instances(), s.backends())
	g.Expect(blocks).To(Equal([]Block{{ID: "summary-hidden", List: "summary", Template: "hidden", Data: Hidden{Limits: []Limit{
		{What: "clusters, promotions", In: []string{"a"}},
		{What: "Pipelines", In: []string{"a", "b", "c"}, More: 2},
		{What: "event backends", Needs: []string{NeedBackends}},
	}}}}))
	g.Expect(hiddenOf(Scope{}.parts()...).Limits).To(HaveLen(1), "without rights it is one line")

	sights := Scope{Clusters: Namespaces{All: true}, Pipelines: many}.sights()
	g.Expect(sights).To(ContainElements(
		Sight{What: "Clusters", All: true, Need: NeedClusters}, Sight{What: "Pipelines", In: many.Names, Need: NeedPipelines}, Sight{What: "Approve and reject promotions", Need: NeedApprove},
	))
	for i := range 30 {
		many.Names = append(many.Names, fmt.Sprintf("f-%02d", i))
	}
	g.Expect(Scope{Pipelines: many}.sights()).To(ContainElement(And(HaveField("What", "Pipelines"), HaveField("In", HaveLen(maxSightNames)), HaveField("More", 15))))
}

func TestPlural(t *testing.T) {
	g := NewWithT(t)
	g.Expect([]string{Plural(0, "Pipeline"), Plural(1, "Pipeline"), Plural(2, "Pipeline"), Plural(12345, "cluster")}).To(Equal(
		[]string{"0 Pipelines", "1 Pipeline", "2 Pipelines", "12,345 clusters"}))
}
