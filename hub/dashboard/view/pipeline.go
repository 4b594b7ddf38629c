package view

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

const (
	// maxRevisions of a Pipeline's history that are shown.
	maxRevisions = 20
	// maxEntries of the promotions of one Pipeline or cluster that are shown; the
	// timeline has the rest.
	maxEntries = 50
)

// PipelineFrame is what stands around a Pipeline's lists.
type PipelineFrame struct {
	Namespace, Name, App string
	Columns              []string
	// All is the timeline of its promotions.
	All string
}

// PipelineHead is a Pipeline's own state, and its row of the matrix.
type PipelineHead struct {
	Row
	Conditions []Condition
}

// Condition of an object.
type Condition struct {
	Type, Status, Reason, Message string
	Since                         metav1.Time
}

// Line is a revision in a Pipeline's history.
type Line struct {
	Revision string
	// Stops in the order of the environments.
	Stops []Stop
}

// Stop is what became of a revision in an environment.
type Stop struct {
	Environment string
	// Running of Targets run it by what was last seen; Stale of them may not any more.
	Running, Stale, Targets int
	// Promotion is the newest of this revision into the environment.
	Promotion *Entry
}

// Pipeline is the page of one; false where there is none that the viewer may see.
func Pipeline(f *Facts, scope Scope, namespace, name string) (Page, bool) {
	i := slices.IndexFunc(f.Pipelines, func(p pipelinesv1.Pipeline) bool { return p.Namespace == namespace && p.Name == name })
	if i < 0 || !scope.Pipelines.Has(namespace) {
		return Page{}, false
	}
	p := &f.Pipelines[i]
	head := PipelineHead{Row: f.row(p, f.standings(), scope), Conditions: conditions(p.Status.Conditions)}
	frame := PipelineFrame{Namespace: namespace, Name: name, App: head.App, All: PromotionsPath + "?" + Query{Search: namespace + "/" + name}.Encode()}
	for _, c := range head.Cells {
		frame.Columns = append(frame.Columns, c.Environment)
	}
	page := Page{Template: "pipeline", Title: namespace + "/" + name, Frame: frame}
	page.Blocks = append(page.Blocks, Block{ID: "head", List: "head", Template: "pipeline-head", Data: head})

	var of []*capstanv1.Promotion
	for i := range f.Promotions {
		if q := &f.Promotions[i]; q.Namespace == namespace && q.Spec.Pipeline.UID == p.UID && scope.Promotions.Has(namespace) {
			of = append(of, q)
		}
	}
	slices.SortFunc(of, newestFirst)
	for _, l := range history(head.Cells, of, scope) {
		page.Blocks = append(page.Blocks, Block{ID: "revision/" + l.Revision, List: "revisions", Template: "line", Data: l})
	}
	page.Blocks = append(page.Blocks, entries(of[:min(len(of), maxEntries)], scope)...)
	if len(of) == 0 {
		page.Blocks = append(page.Blocks, empty("entries", "empty-item", 0, scope.Promotions, NeedPromotions, Query{}, "Nothing was promoted yet."))
	}
	return page, true
}

func conditions(all []metav1.Condition) []Condition {
	shown := make([]Condition, 0, len(all))
	for _, c := range all {
		shown = append(shown, Condition{Type: c.Type, Status: string(c.Status), Reason: c.Reason, Message: c.Message, Since: c.LastTransitionTime})
	}
	return shown
}

// history of revisions, newest first: what runs and is not of a promotion comes where
// its environment's order puts it, before what is older.
func history(cells []Cell, promotions []*capstanv1.Promotion, scope Scope) []Line {
	var order []string
	note := func(revision string) {
		if revision != "" && !slices.Contains(order, revision) && len(order) < maxRevisions {
			order = append(order, revision)
		}
	}
	byAge := slices.Clone(promotions)
	slices.SortStableFunc(byAge, func(a, b *capstanv1.Promotion) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	if len(cells) > 0 { // Revisions come into the world in the first environment.
		for _, t := range cells[0].Targets {
			note(t.Revision)
		}
	}
	for _, p := range byAge {
		note(p.Spec.Revision)
	}
	for _, c := range cells {
		for _, t := range c.Targets {
			note(t.Revision)
		}
	}
	lines := make([]Line, 0, len(order))
	for _, revision := range order {
		l := Line{Revision: revision}
		for _, c := range cells {
			l.Stops = append(l.Stops, stop(c, revision, byAge, scope))
		}
		lines = append(lines, l)
	}
	return lines
}

func stop(c Cell, revision string, byAge []*capstanv1.Promotion, scope Scope) Stop {
	s := Stop{Environment: c.Environment, Targets: len(c.Targets)}
	for _, t := range c.Targets {
		if t.Revision == revision {
			s.Running++
			if t.Mark.Tone == Stale {
				s.Stale++
			}
		}
	}
	for _, p := range byAge {
		if p.Spec.Environment == c.Environment && p.Spec.Revision == revision {
			e := EntryOf(p, scope)
			s.Promotion = &e
			break
		}
	}
	return s
}
