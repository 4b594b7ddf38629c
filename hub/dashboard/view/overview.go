package view

import (
	"cmp"
	"slices"
)

// OverviewPath is the first page.
const OverviewPath = "/"

const (
	// maxWaiting is how many causes the first page shows.
	maxWaiting = 7
	// maxSquares is how many clusters the map shows, the worst first. A square takes about 400 bytes of the page.
	maxSquares = 2000
	// maxMapGroups is how many groups of the map have a heading. The smallest are shown as one.
	maxMapGroups = 16
)

// OverviewFrame is the frame of the first page.
type OverviewFrame struct {
	// Groups are the links for grouping the map.
	Groups []Link
}

// Verdict is what needs the action of a person, in one line.
type Verdict struct {
	// Mark of the worst.
	Mark Mark
	// Text is shown when nothing needs an action.
	Text  string
	Parts []VerdictPart
	// Hidden says what the viewer may not see.
	Hidden Hidden
}

// VerdictPart is a number of objects that need the same action, and their list.
type VerdictPart struct {
	Tone       Tone
	Text, Link string
}

// MapGroup is the heading of a group of clusters on the map.
type MapGroup struct {
	Name string
	// Clusters in the group, and those that are not well.
	Clusters, Unwell int
}

// Square is a cluster on the map.
type Square struct {
	Name, Link string
	Mark       Mark
	Why        string
}

// Overview returns the first page: what needs an action, the map of all clusters, and what happened last.
func Overview(f *Facts, scope Scope, q Query) Page {
	of := f.fleet(scope)
	rows := of.rows()
	waits := of.waits(rows)
	frame := OverviewFrame{}
	groups := f.groupings(scope)
	q.Group = cmp.Or(choice(q.Group, groups), groupNamespace)
	for _, o := range groups[1:] {
		frame.Groups = append(frame.Groups, Link{Text: o.Text, Address: Query{Group: o.Value}.At(OverviewPath), Current: o.Value == q.Group})
	}
	page := Page{Template: "overview", Title: "Overview", Frame: frame}
	page.Blocks = append(page.Blocks, Block{ID: "verdict", List: "verdict", Template: "verdict", Data: of.verdict(rows, waits)})
	page.Blocks = append(page.Blocks, waits.blocks(scope)...)
	page.Blocks = append(page.Blocks, squares(rows, q.Group)...)
	if len(rows) == 0 {
		page.Blocks = append(page.Blocks, Filters{}.empty("map", "empty-item", 0, f.seen(scope), NeedClusters,
			"No cluster exists yet: create a Cluster of Cluster API, a GitopsCluster or a labelled Secret, or reference one in a Pipeline."))
	}
	page.Blocks = append(page.Blocks, of.feed(rows)...)
	page.Blocks = append(page.Blocks, f.deliveryBlock(scope, "delivery", "delivery", DeliveryOf{}))
	return page
}

// verdict counts what needs the action of a person.
func (f *fleet) verdict(rows []ClusterRow, w *waitList) Verdict {
	v := Verdict{Mark: Mark{Good, toneWords[Good]}, Hidden: hiddenOf(f.scope.clusters(), f.scope.pipelines(), f.scope.promotions(), f.scope.backends())}
	add := func(n int, tone Tone, text, link string) {
		if n > 0 {
			v.Parts = append(v.Parts, VerdictPart{tone, text, link})
			if tone < v.Mark.Tone {
				v.Mark = Mark{tone, toneWords[tone]}
			}
		}
	}
	unwell, worst := 0, Good
	for i := range rows {
		if !rows[i].Health.well() {
			unwell++
			worst = min(worst, rows[i].Mark.Tone)
		}
	}
	need := "need"
	if unwell == 1 {
		need = "needs"
	}
	add(unwell, worst, grouped(unwell)+" of "+Plural(len(rows), "cluster")+" "+need+" you", Query{Tab: tabUnwell}.At(ClustersPath))
	for _, kind := range waitKinds {
		n := w.counts[kind.name]
		add(n, kind.tone, Plural(n, kind.noun)+kind.rest, kind.link)
	}
	if len(v.Parts) == 0 {
		v.reassure(f, rows)
	}
	return v
}

// reassure says that nothing needs an action, as far as the viewer may see that.
func (v *Verdict) reassure(f *fleet, rows []ClusterRow) {
	hidden := 0 // clusters whose state the viewer may not see
	for i := range rows {
		if rows[i].Health[aspectConnection].Mark.Word == notVisible {
			hidden++
		}
	}
	switch {
	case hidden > 0:
		v.Mark, v.Text = Mark{Idle, notVisible}, "The state of "+grouped(hidden)+" of "+Plural(len(rows), "cluster")
	case len(rows) > 0 && len(v.Hidden.Limits) > 0:
		v.Text = "No problem in " + Plural(len(rows), "cluster") + " that you may see"
	case len(rows) == 1:
		v.Text = "1 cluster, well"
	case len(rows) > 0:
		v.Text = "All " + Plural(len(rows), "cluster") + " well"
	case f.nothingVisible():
		v.Mark, v.Text = Mark{Idle, notVisible}, "You may see no object of Capstan"
	case f.seen(f.scope).Empty():
		v.Mark, v.Text = Mark{Idle, notVisible}, "You may see no cluster"
	default:
		v.Mark, v.Text = Mark{Idle, "No clusters"}, "There is no cluster"
	}
}

// nothingVisible reports whether the viewer may list no kind in any namespace.
func (f *fleet) nothingVisible() bool {
	for _, p := range f.scope.parts() {
		if !p.in.Empty() {
			return false
		}
	}
	return f.seen(f.scope).Empty()
}

// toneWords are the words of a verdict.
var toneWords = map[Tone]string{Bad: "Action needed", Stale: "Not observed", Warning: "Attention needed", Asking: "Approval needed", Busy: "In progress", Good: "Well", Idle: "Nothing to do"}

// squares returns the blocks of the map: a heading for each group, and a square for each cluster of it.
func squares(rows []ClusterRow, group string) []Block {
	rows = slices.Clone(rows)
	if len(rows) > maxSquares {
		slices.SortStableFunc(rows, func(a, b ClusterRow) int { return worse(a.Mark.Tone, b.Mark.Tone) })
		rows = rows[:maxSquares]
	}
	sizes := map[string]*MapGroup{}
	for i := range rows {
		name := rows[i].group(group)
		g := sizes[name]
		if g == nil {
			g = &MapGroup{Name: name}
			sizes[name] = g
		}
		g.Clusters++
		if !rows[i].Health.well() {
			g.Unwell++
		}
	}
	groups := make([]*MapGroup, 0, len(sizes))
	for _, g := range sizes {
		groups = append(groups, g)
	}
	slices.SortFunc(groups, func(a, b *MapGroup) int {
		return cmp.Or(cmp.Compare(boolean(a.Unwell == 0), boolean(b.Unwell == 0)), cmp.Compare(b.Clusters, a.Clusters), cmp.Compare(a.Name, b.Name))
	})
	at := make(map[string]int, len(groups)) // the number of the heading, by group
	for i, g := range groups {
		at[g.Name] = min(i, maxMapGroups)
		if i > maxMapGroups {
			groups[maxMapGroups].Clusters += g.Clusters
			groups[maxMapGroups].Unwell += g.Unwell
		}
	}
	if len(groups) > maxMapGroups+1 {
		groups[maxMapGroups].Name = Plural(len(groups)-maxMapGroups, "other group")
		groups = groups[:maxMapGroups+1]
	}
	slices.SortStableFunc(rows, func(a, b ClusterRow) int {
		return cmp.Or(cmp.Compare(at[a.group(group)], at[b.group(group)]), worse(a.Mark.Tone, b.Mark.Tone))
	})
	blocks := make([]Block, 0, len(rows)+len(groups))
	before := -1
	for i := range rows {
		r := &rows[i]
		if n := at[r.group(group)]; n != before {
			before = n
			blocks = append(blocks, Block{ID: "map-group/" + groups[n].Name, List: "map", Template: "map-group", Data: *groups[n]})
		}
		blocks = append(blocks, Block{ID: "square/" + r.Cluster.Kind + "/" + r.Cluster.Namespace + "/" + r.Cluster.Name, List: "map", Template: "square",
			Data: Square{Name: r.Cluster.String(), Link: r.Link, Mark: r.Mark, Why: r.Why}})
	}
	return blocks
}
