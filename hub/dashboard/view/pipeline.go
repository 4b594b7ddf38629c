package view

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/internal/revision"
)

const (
	// maxRevisions is how many revisions of a Pipeline are shown.
	maxRevisions = 20
	// maxEntries is how many promotions of a Pipeline or cluster its page shows; the
	// timeline has all.
	maxEntries = 50
)

// PipelineFrame is the frame of a Pipeline's page.
type PipelineFrame struct {
	Namespace, Name, App string
	Columns              []string
	// Waves are the environments that have some; each has a list "waves/NAME" of these.
	Waves []string
	// All is the timeline of its promotions.
	All string
}

// PipelineHead is the state of a Pipeline and its row of the matrix.
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
	// Cells in the order of the environments.
	Cells []LineCell
}

// LineCell is the state of a revision in an environment.
type LineCell struct {
	Environment string
	// Running of Targets ran the revision when last observed; the observations of Stale
	// of these are stale.
	Running, Stale, Targets int
	// Promotion is the newest of this revision into the environment. Of an environment with waves it is the worst of the
	// newest ones into each, and Wave is where it belongs; empty for a wave that does not exist any more.
	Promotion *Entry
	Wave      string
}

// Pipeline returns the page of a Pipeline; false when it does not exist or the viewer may
// not see it.
func Pipeline(f *Facts, scope Scope, namespace, name string) (Page, bool) {
	i := slices.IndexFunc(f.Pipelines, func(p pipelinesv1.Pipeline) bool { return p.Namespace == namespace && p.Name == name })
	if i < 0 || !scope.Pipelines.Has(namespace) {
		return Page{}, false
	}
	p := &f.Pipelines[i]
	head := PipelineHead{Row: f.row(p, f.standings(), scope), Conditions: conditions(p.Status.Conditions)}
	for i := range head.Cells {
		head.Cells[i].All = true
	}
	f.outOfTurn(p, head.Cells, scope)

	var of []*capstanv1.Promotion
	for i := range f.Promotions {
		if q := &f.Promotions[i]; q.Namespace == namespace && q.Spec.Pipeline.UID == p.UID && scope.Promotions.Has(namespace) {
			of = append(of, q)
		}
	}
	slices.SortFunc(of, newestFirst)
	entries := f.entries(of[:min(len(of), maxEntries)], scope)
	linkMoves(p, head.Cells, entries)
	head.Cells = withWaves(p, head.Cells)

	frame := PipelineFrame{Namespace: namespace, Name: name, App: head.App, All: PromotionsPath + "?" + Query{Search: namespace + "/" + name}.Encode()}
	var waves []Block
	for _, c := range head.Cells {
		frame.Columns = append(frame.Columns, c.Environment)
		if len(c.Waves) > 0 {
			frame.Waves = append(frame.Waves, c.Environment)
		}
		for _, stage := range c.stages() {
			waves = append(waves, Block{ID: "wave/" + stage.Environment, List: "waves/" + c.Environment, Template: "stage", Data: stage})
		}
	}
	page := Page{Template: "pipeline", Title: namespace + "/" + name, Frame: frame}
	page.Blocks = append(page.Blocks, Block{ID: "head", List: "head", Template: "pipeline-head", Data: head})
	page.Blocks = append(page.Blocks, waves...)
	for _, l := range history(head.Cells, of, scope) {
		page.Blocks = append(page.Blocks, Block{ID: "revision/" + l.Revision, List: "revisions", Template: "line", Data: l})
	}
	page.Blocks = append(page.Blocks, entries...)
	if len(of) == 0 {
		page.Blocks = append(page.Blocks, empty("entries", "empty-item", 0, scope.Promotions, NeedPromotions, Query{}, "No revision was promoted yet."))
	}
	return page, true
}

// outOfTurn adds to the cells of a Pipeline which of their promotions are rollbacks or by request, and which
// environments are held.
func (f *Facts) outOfTurn(p *pipelinesv1.Pipeline, cells []Cell, scope Scope) {
	if !scope.Promotions.Has(p.Namespace) {
		return
	}
	var history []capstanv1.Promotion // Also of former Pipelines of the name, as the hub decides by it.
	for i := range f.Promotions {
		if q := &f.Promotions[i]; q.Namespace == p.Namespace && q.Spec.Pipeline.Name == p.Name {
			history = append(history, *q)
		}
	}
	fleets := decision.FleetsOf(p)
	for i := range cells {
		env := &p.Spec.Environments[i]
		newest, status := decision.NewestOf(p.UID, history, env.Name), p.Status.Environments[env.Name]
		if newest != nil && cells[i].Move != nil && status.Promotion.Name == newest.Name {
			cells[i].Move.Origin = f.origin(newest)
			if newest.Status.ExpectedTime != nil {
				cells[i].Move.Expected = newest.Status.ExpectedTime.Time
			}
		}
	}
	for i := 1; i < len(cells); i++ {
		if cells[i].Newer != "" && decision.Decide(decision.QuestionOf(p, fleets, history, i)).Reason == decision.Held {
			cells[i].Held = &Held{Mark: heldMark, Source: p.Spec.Environments[i-1].Name}
		}
	}
}

// linkMoves links the promotions in the cells to the entries of the page.
func linkMoves(p *pipelinesv1.Pipeline, cells []Cell, entries []Block) {
	for i := range cells {
		status := p.Status.Environments[p.Spec.Environments[i].Name]
		if cells[i].Move == nil {
			continue
		}
		id := entryID(p.Namespace, status.Promotion.Name)
		if slices.ContainsFunc(entries, func(b Block) bool { return b.ID == id }) {
			cells[i].Move.Link = "#" + id
		}
	}
}

func conditions(all []metav1.Condition) []Condition {
	shown := make([]Condition, 0, len(all))
	for _, c := range all {
		shown = append(shown, Condition{Type: c.Type, Status: string(c.Status), Reason: c.Reason, Message: c.Message, Since: c.LastTransitionTime})
	}
	return shown
}

// history returns the revisions, newest first: those of the first environment, then those
// of promotions, then those of the other environments in their order.
func history(cells []Cell, promotions []*capstanv1.Promotion, scope Scope) []Line {
	var order []string
	note := func(one string) {
		known := func(other string) bool { return revision.Same(one, other) }
		if one != "" && !slices.ContainsFunc(order, known) && len(order) < maxRevisions {
			order = append(order, one)
		}
	}
	byAge := slices.Clone(promotions)
	slices.SortStableFunc(byAge, func(a, b *capstanv1.Promotion) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	if len(cells) > 0 { // New revisions begin in the first environment.
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
	for _, one := range order {
		l := Line{Revision: one}
		for _, c := range cells {
			l.Cells = append(l.Cells, lineCell(c, one, byAge, scope))
		}
		lines = append(lines, l)
	}
	return lines
}

func lineCell(c Cell, wanted string, byAge []*capstanv1.Promotion, scope Scope) LineCell {
	s := LineCell{Environment: c.Environment}
	if len(c.Waves) > 0 {
		for i, stage := range c.stages() {
			s.add(lineCell(stage, wanted, byAge, scope), c.Waves[i].Environment)
		}
		if s.Promotion == nil { // As of a time when it had other waves, or none.
			s.Promotion = newestInto(func(p *capstanv1.Promotion) bool { return p.Spec.BaseEnvironment() == c.Environment }, wanted, byAge, scope)
		}
		return s
	}
	s.Targets = len(c.Targets)
	for _, t := range c.Targets {
		if revision.Same(t.Revision, wanted) {
			s.Running++
			if t.Mark.Tone == Stale {
				s.Stale++
			}
		}
	}
	if f := c.Fleet; f != nil {
		s.Targets += f.Unlisted
		if revision.Same(f.Revision, wanted) {
			s.Running += f.InLine
		}
	}
	s.Promotion = newestInto(func(p *capstanv1.Promotion) bool { return p.Spec.Environment == c.Environment }, wanted, byAge, scope)
	return s
}

// add adds the state of a wave to that of its environment.
func (s *LineCell) add(wave LineCell, name string) {
	s.Running, s.Stale, s.Targets = s.Running+wave.Running, s.Stale+wave.Stale, s.Targets+wave.Targets
	if p := wave.Promotion; p != nil && (s.Promotion == nil || worse(p.Mark.Tone, s.Promotion.Mark.Tone) < 0 ||
		p.Mark.Tone == s.Promotion.Mark.Tone && p.Decided.After(s.Promotion.Decided)) {
		s.Promotion, s.Wave = p, name
	}
}

// newestInto returns the newest promotion of a revision into an environment; nil if there is none.
func newestInto(into func(*capstanv1.Promotion) bool, wanted string, byAge []*capstanv1.Promotion, scope Scope) *Entry {
	for _, p := range byAge {
		if into(p) && revision.Same(p.Spec.Revision, wanted) {
			e := EntryOf(p, scope)
			return &e
		}
	}
	return nil
}
