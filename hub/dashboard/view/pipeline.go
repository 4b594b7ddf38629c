package view

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/useraction"
)

const (
	// maxAttempts is how many promotions a Pipeline's page shows, folded, and in the picture of their times.
	maxAttempts = 20
	// maxApprovals is how many promotions its commands name.
	maxApprovals = 3
)

// PipelineFrame is the frame of a Pipeline's page.
type PipelineFrame struct {
	Namespace, Name, App string
	// Waves are the environments that have some; each has a list "waves/NAME" of these.
	Waves []string
	// All is the list of its promotions.
	All string
}

// PipelineHead is the state of a Pipeline.
type PipelineHead struct {
	Namespace, Name string
	Mark            Mark
	Note            string
	// DryRun is what the hub would promote; empty if it is not in dry run.
	DryRun     string
	Conditions []Condition
	Actions    []ActionLink
}

// dryRunOf returns what a hub in dry run would promote; empty if the hub promotes.
func dryRunOf(p *pipelinesv1.Pipeline) string {
	if p.Status.DryRun == nil {
		return ""
	}
	return p.Status.DryRun.Message
}

// Condition of an object.
type Condition struct {
	Type, Status, Reason, Message string
	Since                         metav1.Time
}

// Commands are what a user can enter in a terminal about a Pipeline.
type Commands struct {
	Namespace, Name string
	// Approve are the promotions that wait for an approval, the first ones.
	Approve []Approving
}

// Approving is a promotion that waits for an approval of its run Retry.
type Approving struct {
	Name  string
	Retry int64
}

// Pipeline returns the page of a Pipeline; false when it does not exist or the viewer may
// not see it.
func Pipeline(f *Facts, scope Scope, namespace, name string) (Page, bool) {
	i := slices.IndexFunc(f.Pipelines, func(p pipelinesv1.Pipeline) bool { return p.Namespace == namespace && p.Name == name })
	if i < 0 || !scope.Pipelines.Has(namespace) {
		return Page{}, false
	}
	p := &f.Pipelines[i]
	row := f.row(p, f.standings(), scope)
	for i := range row.Cells {
		row.Cells[i].All = true
		row.Cells[i].Actions = ActionsInto(p, row.Cells[i].Environment, scope)
	}
	history := f.histories([]railRow{{p, row}}, scope)[object{namespace, name}]
	f.decided(p, row.Cells, history, scope)

	var of []*capstanv1.Promotion
	for i := range history {
		if history[i].Spec.Pipeline.UID == p.UID {
			of = append(of, &history[i])
		}
	}
	slices.SortFunc(of, newestFirst)
	entries := f.attempts(of[:min(len(of), maxAttempts)], scope)
	linkMoves(p, row.Cells, entries)
	cells := withWaves(p, row.Cells)

	frame := PipelineFrame{Namespace: namespace, Name: name, App: row.App, All: Query{Search: namespace + "/" + name}.At(PromotionsPath)}
	page := Page{Template: "pipeline", Title: namespace + "/" + name}
	page.add("head", "head", "pipeline-head", PipelineHead{Namespace: namespace, Name: name, Mark: row.Mark, Note: row.Note, DryRun: dryRunOf(p), Conditions: conditions(p.Status.Conditions), Actions: f.ActionsOn(p, scope)})
	for _, c := range cells {
		page.add("environment/"+c.Environment, "environments", "environment", c)
	}
	for _, c := range cells {
		if len(c.Waves) > 0 {
			frame.Waves = append(frame.Waves, c.Environment)
		}
		for _, stage := range c.stages() {
			page.add("wave/"+stage.Environment, "waves/"+c.Environment, "stage", stage)
		}
	}
	page.Frame = frame
	matrix := matrixOf(cells, of, scope)
	matrix.All = frame.All
	page.add("matrix", "matrix", "matrix", matrix)
	if gantt := ganttOf(p, of, f.Now); len(gantt.Lanes) > 0 {
		page.add("gantt", "gantt", "gantt", gantt)
	}
	page.Blocks = append(page.Blocks, f.deliveryBlock(scope, "delivery", "delivery", DeliveryOf{Namespace: namespace, Pipeline: name}))
	page.Blocks = append(page.Blocks, entries...)
	if len(of) == 0 {
		page.Blocks = append(page.Blocks, empty("entries", "empty-item", 0, scope.Promotions, NeedPromotions, Query{}, "No revision was promoted yet."))
	}
	page.add("commands", "commands", "commands", Commands{Namespace: namespace, Name: name, Approve: approving(of)})
	return page, true
}

// add adds a block.
func (p *Page) add(id, list, template string, data any) {
	p.Blocks = append(p.Blocks, Block{ID: id, List: list, Template: template, Data: data})
}

// attempts returns the entries of promotions. The first one, which is the newest or under way, is shown with its details.
func (f *Facts) attempts(promotions []*capstanv1.Promotion, scope Scope) []Block {
	blocks := f.entries(promotions, scope)
	for i := range blocks {
		blocks[i].Template = "attempt"
		if e, ok := blocks[i].Data.(Entry); ok {
			e.Open = i == 0
			blocks[i].Data = e
		}
	}
	return blocks
}

// approving returns the promotions that wait for an approval, the newest first.
func approving(of []*capstanv1.Promotion) []Approving {
	var all []Approving
	for _, p := range of {
		if useraction.Approvable(p) && len(all) < maxApprovals {
			all = append(all, Approving{Name: p.Name, Retry: p.Run()})
		}
	}
	return all
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
