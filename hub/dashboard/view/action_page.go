package view

import (
	"slices"
	"time"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/useraction"
)

const (
	// actionTargets is how many targets of an environment the page of an action shows, worst first.
	actionTargets = 20
	// maxOptions is how many revisions can be chosen, newest first.
	maxOptions = 20
)

// ActionFrame is the frame of the page of an action. It has no state of the object.
type ActionFrame struct {
	// Title is the question that the page asks.
	Title  string
	Action string
	Label  string
	Effect string
	Record string
	// Back is the page of the Pipeline, or the timeline.
	Back string
	// Revisions is whether the user chooses one.
	Revisions bool
}

// ActionForm confirms an action. The session's token is not part of it: topics are shared by sessions.
type ActionForm struct {
	Label string
	UID   string
	// Newest is the number of the newest promotion into the environment.
	Newest int64
}

// ActionObject is what an action is done to.
type ActionObject struct {
	// Promotion, for an action on one; else nil.
	Promotion *Entry
	// Gate to override; empty for another action.
	Gate string
	// Pipeline, with the Note of its row and the promotions in progress, for an action on it.
	Pipeline, PipelineLink string
	Mark                   Mark
	Note                   string
	Environment            string
	Moves                  []PlacedMove
	// Revision that a rollback promotes; empty for another action.
	Revision string
}

// PlacedMove is the newest promotion into an environment.
type PlacedMove struct {
	Environment string
	Move
}

// Place is an environment with its targets.
type Place struct {
	Environment string
	// Revision that its targets agreed on; empty for none.
	Revision string
	Mark     Mark
	Targets  []Target
	// More targets are not shown.
	More int
	// Hidden is set if the viewer may not see the Pipeline, and Absent if the environment does not exist.
	Hidden, Absent bool
}

// ActionGates are the gates that an action meets.
type ActionGates struct {
	Gates    []Gate
	Expected time.Time
	// Manual is whether an approval is needed.
	Manual bool
	// Note says why no gates are shown.
	Note string
}

// ActionPage returns the page that confirms an action; false if there is no such action or object, or if
// the viewer may not see it. See FindAction for kind and parts.
func ActionPage(f *Facts, scope Scope, kind string, parts []string) (Page, bool) {
	a, s, ok := FindAction(f, scope, kind, parts)
	if !ok {
		return Page{}, false
	}
	frame := ActionFrame{Title: actionTitle(a, s), Action: a.Name, Label: a.Label, Effect: a.Effect, Record: a.Record, Back: Back(s, scope), Revisions: a.Name == useraction.Promote}
	page := Page{Template: "action", Title: frame.Title, Frame: frame, Form: true}
	add := func(list, template string, data any) {
		page.Blocks = append(page.Blocks, Block{ID: "action-" + template, List: list, Template: "action-" + template, Data: data})
	}
	add("what", "object", f.actionObject(a, s, scope))
	known := f.standings()
	for _, p := range f.places(s, known, scope) {
		page.Blocks = append(page.Blocks, Block{ID: "action-place/" + p.Environment, List: "places", Template: "action-place", Data: p})
	}
	if source, ok := f.source(s, known, scope); ok && a.Name != useraction.Rollback {
		add("source", "source", source)
	}
	if a.Parts > 0 || a.OnPromotion {
		add("gates", "gates", f.actionGates(a, s))
	}
	if refusal := f.Refuse(a, scope, s); refusal != nil {
		add("form", "refusal", *refusal)
		return page, true
	}
	if frame.Revisions {
		for _, r := range useraction.Revisions(f.Promotions, s, maxOptions) {
			page.Blocks = append(page.Blocks, Block{ID: "action-revision/" + r.Revision, List: "revisions", Template: "action-revision", Data: r})
		}
	}
	if a.Comment.Label != "" {
		add("form", "comment", a.Comment)
	}
	add("form", "confirm", ActionForm{Label: a.Label, UID: s.UID(), Newest: useraction.NewestNumber(f.Promotions, s)})
	return page, true
}

// title returns the heading of the page of an action.
func actionTitle(a *useraction.Action, s *useraction.Subject) string {
	switch p := s.Promotion; {
	case p != nil && s.Gate != "":
		return "Override the gate " + s.Gate + " of " + p.Spec.Revision + " into " + p.Spec.Environment
	case p != nil:
		return a.Label + " " + p.Spec.Revision + " into " + p.Spec.Environment
	case a.Name == useraction.Promote:
		return "Promote a revision of " + s.Pipeline.Namespace + "/" + s.Pipeline.Name + " into " + s.Environment
	case a.Name == useraction.Rollback:
		return "Roll back " + s.Environment + " of " + s.Pipeline.Namespace + "/" + s.Pipeline.Name
	}
	return a.Label + " " + s.Pipeline.Namespace + "/" + s.Pipeline.Name
}

// Back returns the page that shows the subject: that of its Pipeline, or the timeline.
func Back(s *useraction.Subject, scope Scope) string {
	switch {
	case s.Pipeline != nil:
		return pipelinePath(s.Pipeline.Namespace, s.Pipeline.Name)
	case scope.Pipelines.Has(s.Promotion.Namespace):
		return pipelinePath(s.Promotion.Namespace, s.Promotion.Spec.Pipeline.Name)
	}
	return PromotionsPath
}

func (f *Facts) actionObject(a *useraction.Action, s *useraction.Subject, scope Scope) ActionObject {
	if s.Promotion != nil {
		e := EntryOf(s.Promotion, scope)
		e.Origin = f.origin(s.Promotion)
		e.Gates, e.Checks = nil, nil // They are a part of the page.
		return ActionObject{Promotion: &e, Gate: s.Gate}
	}
	p := s.Pipeline
	row := f.row(p, f.standings(), scope)
	o := ActionObject{Pipeline: p.Namespace + "/" + p.Name, PipelineLink: row.Link, Mark: row.Mark, Note: row.Note, Environment: s.Environment}
	for _, c := range row.Cells {
		if c.Move != nil && (s.Environment == "" || c.Environment == s.Environment) && scope.Promotions.Has(p.Namespace) {
			m := *c.Move
			m.Approve = ""
			o.Moves = append(o.Moves, PlacedMove{c.Environment, m})
		}
	}
	if a.Name == useraction.Rollback && scope.Promotions.Has(p.Namespace) {
		if to, err := useraction.ResolveRollback(f.Promotions, s); err == nil {
			o.Revision = to.Revision
		}
	}
	return o
}

// places returns the environments that an action changes: one, or all of a Pipeline.
func (f *Facts) places(s *useraction.Subject, known map[Cluster]standing, scope Scope) []Place {
	into := s.Into()
	if s.Pipeline == nil {
		return []Place{{Environment: into, Hidden: !scope.Pipelines.Has(s.Namespace()), Absent: scope.Pipelines.Has(s.Namespace())}}
	}
	var all []Place
	for i := range s.Pipeline.Spec.Environments {
		if name := s.Pipeline.Spec.Environments[i].Name; into == "" || name == into {
			all = append(all, f.place(s, i, known, scope))
		}
	}
	if into != "" && len(all) == 0 {
		all = []Place{{Environment: into, Absent: true}}
	}
	return all
}

func (f *Facts) place(s *useraction.Subject, i int, known map[Cluster]standing, scope Scope) Place {
	cell := f.cell(s.Pipeline, i, known, scope)
	cell.Move = nil
	p := Place{Environment: cell.Environment, Mark: cell.Mark(), Targets: slices.Clone(cell.Targets)}
	if status := s.Pipeline.Status.Environments[cell.Environment]; status != nil && status.Agreed != nil {
		p.Revision = status.Agreed.Revision
	}
	slices.SortStableFunc(p.Targets, func(a, b Target) int { return worse(a.Mark.Tone, b.Mark.Tone) })
	p.More = max(0, len(p.Targets)-actionTargets)
	p.Targets = p.Targets[:len(p.Targets)-p.More]
	if cell.Fleet != nil {
		p.More += cell.Fleet.Unlisted
	}
	return p
}

// source returns the environment that a revision comes from; false if the viewer may not see it, or there is none.
func (f *Facts) source(s *useraction.Subject, known map[Cluster]standing, scope Scope) (Place, bool) {
	if s.Pipeline == nil || s.Into() == "" {
		return Place{}, false
	}
	i := s.Index() - 1
	if s.Promotion != nil {
		of := s.Promotion.Spec.Source.Environment
		i = slices.IndexFunc(s.Pipeline.Spec.Environments, func(e pipelinesv1.Environment) bool { return e.Name == of })
	}
	if i < 0 {
		return Place{}, false
	}
	return f.place(s, i, known, scope), true
}

// actionGates returns the gates of a promotion, or of the environment that a request is for.
func (f *Facts) actionGates(a *useraction.Action, s *useraction.Subject) ActionGates {
	p := s.Promotion
	if p == nil {
		g := ActionGates{Note: "The gates of the environment are judged when the hub has made the promotion."}
		if a.Name == useraction.Rollback {
			g.Note = "Only PromotionWindows that apply to rollbacks can block a rollback."
		}
		if of := s.Pipeline.PromotionFor(&s.Pipeline.Spec.Environments[s.Index()]); of != nil {
			g.Manual = of.Manual
		}
		return g
	}
	g := ActionGates{Gates: gatesOf(p), Manual: p.Spec.Manual}
	if p.Status.Phase == capstanv1.PhaseFailed {
		g.Gates = gateList(p.Status.Gates)
	}
	switch {
	case a.Name == useraction.Retry:
		g.Note = "All gates are judged again when the promotion starts."
	case len(g.Gates) == 0:
		g.Note = "No gate blocks this promotion."
	}
	if p.Status.ExpectedTime != nil && len(g.Gates) > 0 {
		g.Expected = p.Status.ExpectedTime.Time
	}
	return g
}
