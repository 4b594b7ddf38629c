package view

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/internal/revision"
)

// PipelinesPath is the matrix of Pipelines and environments.
const PipelinesPath = "/pipelines"

// Row is a Pipeline in the matrix.
type Row struct {
	Namespace, Name, Link string
	App                   string
	// Mark of the worst cell, or of the Pipeline itself.
	Mark Mark
	Note string
	// Cells in the order of the matrix' columns.
	Cells []Cell
}

// Cell is an environment of a Pipeline.
type Cell struct {
	// Environment; empty when the Pipeline has none with the column's name.
	Environment string
	// Targets in the order of the spec; those of a fleet, worst first.
	Targets []Target
	// Fleet counts the targets if they are a fleet; else nil.
	Fleet *Members
	// Waves of the environment, if it has some. Its targets are those of all of them.
	Waves Waves
	// All is set where all targets of a fleet can be looked at.
	All bool
	// Move is the newest promotion into it; nil when it succeeded or was superseded.
	Move *Move
	// Newer is the agreed revision of the previous environment, if this environment does
	// not agree on it.
	Newer string
	// Held says until when a rollback or a request keeps Newer out of it; nil if none does. Only the page of
	// the Pipeline has it.
	Held *Held
	// Advice says why its last promotion, which failed, is not rolled back.
	Advice string
	// Differ is set when its targets run different revisions.
	Differ bool
}

// Members counts the targets of a fleet.
type Members struct {
	pipelinesv1.FleetStatus
	// Unlisted are the targets that the status counts and does not list; InLine of them run the revision, ready.
	Unlisted, InLine int
}

// shownOfFleet is how many targets of a fleet a cell shows at once.
const shownOfFleet = 3

// First returns the targets that the cell shows at once. Of an environment with waves these are only such that are not well.
func (c Cell) First() []Target {
	if c.Fleet == nil {
		return c.Targets
	}
	first := c.Targets[:min(len(c.Targets), shownOfFleet)]
	if len(c.Waves) == 0 {
		return first
	}
	if i := slices.IndexFunc(first, func(t Target) bool { return t.Mark.Tone >= Good }); i >= 0 {
		return first[:i]
	}
	return first
}

// Rest returns the others.
func (c Cell) Rest() []Target { return c.Targets[len(c.First()):] }

// Held is an environment that is held.
type Held struct {
	Mark Mark
	// Until the Source agrees on another revision.
	Source string
}

// Move is a promotion in a cell.
type Move struct {
	Mark             Mark
	Revision, Reason string
	Message          string
	URL              string
	// Origin says what caused it, if its source did not. Only the page of the Pipeline has it.
	Origin Origin
	// Link is where that page has more about it; empty on other pages.
	Link string
	// Expected is when its gates will be open, or its verification will have ended; zero if that is not known, and on
	// other pages.
	Expected time.Time
	// Approve is the address for approving it; empty when the viewer cannot approve it.
	Approve string
}

// MatrixFrame is the frame of the matrix.
type MatrixFrame struct {
	Filters Filters
	// Columns are the environments' names, in the order of the Pipelines.
	Columns []string
}

// MatrixSummary is the summary of the matrix.
type MatrixSummary struct {
	Pipelines int
	Counts    []Count
}

func pipelinePath(namespace, name string) string { return path("pipelines", namespace, name) }

// ApprovePath returns the address at which a promotion is approved.
func ApprovePath(namespace, name string) string {
	return path("promotions", namespace, name, "approve")
}

// Pipelines returns the page with the matrix of Pipelines and environments.
func Pipelines(f *Facts, scope Scope, q Query) Page {
	known := f.standings()
	marks, namespaces := map[Mark]int{}, map[string]bool{}
	total := 0
	var rows []Row
	for i := range f.Pipelines {
		p := &f.Pipelines[i]
		if !scope.Pipelines.Has(p.Namespace) {
			continue
		}
		row := f.row(p, known, scope)
		row.Cells = withWaves(p, row.Cells)
		total++
		namespaces[p.Namespace] = true
		marks[row.Mark]++
		if q.inNamespace(p.Namespace) && q.inState(row.Mark.Word) && q.finds(row.texts()...) {
			rows = append(rows, row)
		}
	}
	columns := columns(rows)
	for i := range rows {
		rows[i].Cells = aligned(rows[i].Cells, columns)
	}
	slices.SortStableFunc(rows, func(a, b Row) int {
		return cmp.Or(worse(a.Mark.Tone, b.Mark.Tone), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	counts := counted(marks, func(m Mark) string { return PipelinesPath + "?" + Query{State: m.Word}.Encode() })
	page := Page{Template: "pipelines", Title: "Pipelines", Frame: MatrixFrame{
		Columns: columns,
		Filters: Filters{Query: q, Action: PipelinesPath, Namespaces: sorted(namespaces), States: pipelineWords},
	}}
	page.Blocks = append(page.Blocks, Block{ID: "matrix-summary", List: "summary", Template: "matrix-summary", Data: MatrixSummary{Pipelines: total, Counts: counts}})
	for _, r := range rows {
		page.Blocks = append(page.Blocks, Block{ID: "pipeline/" + r.Namespace + "/" + r.Name, List: "rows", Template: "row", Data: r})
	}
	if len(rows) == 0 {
		page.Blocks = append(page.Blocks, empty("rows", "empty-row", len(columns)+1, scope.Pipelines, NeedPipelines, q, "No Pipeline exists yet."))
	}
	return page
}

func (r Row) texts() []string {
	all := []string{r.Namespace + "/" + r.Name, r.App}
	for _, c := range r.Cells {
		for _, t := range c.Targets {
			all = append(all, t.Revision, t.ClusterName)
		}
	}
	return all
}

func (f *Facts) row(p *pipelinesv1.Pipeline, known map[Cluster]standing, scope Scope) Row {
	r := Row{Namespace: p.Namespace, Name: p.Name, Link: pipelinePath(p.Namespace, p.Name), App: p.Spec.AppRef.Kind + " " + p.Spec.AppRef.Name, Mark: Mark{Idle, "Nothing runs"}}
	for e := range p.Spec.Environments {
		cell := f.cell(p, e, known, scope)
		r.Cells = append(r.Cells, cell)
		if worst := cell.Mark(); worst.Tone < r.Mark.Tone {
			r.Mark = worst
		}
	}
	if c := meta.FindStatusCondition(p.Status.Conditions, pipelinesv1.StalledCondition); c != nil && c.Status == metav1.ConditionTrue && r.Mark.Tone != Bad {
		r.Mark, r.Note = Mark{Bad, "Stalled"}, c.Message
	}
	if c := meta.FindStatusCondition(p.Status.Conditions, pipelinesv1.AppSharedCondition); c != nil && c.Status == metav1.ConditionTrue && r.Note == "" {
		r.Note = c.Message
	}
	if p.Spec.Suspend {
		r.Note = "Suspended: the hub promotes nothing."
	}
	return r
}

// Mark is the worst mark of the cell's targets and its promotion.
func (c Cell) Mark() Mark {
	worst := Mark{Idle, "Nothing runs"}
	take := func(m Mark) {
		if m.Tone < worst.Tone {
			worst = m
		}
	}
	for _, t := range c.Targets {
		take(t.Mark)
	}
	if c.Move != nil {
		take(c.Move.Mark)
	}
	return worst
}

func (f *Facts) cell(p *pipelinesv1.Pipeline, e int, known map[Cluster]standing, scope Scope) Cell {
	env := &p.Spec.Environments[e]
	cell := Cell{Environment: env.Name}
	placements := f.placements(p, e, known, scope)
	cell.Targets = slices.Grow(cell.Targets, len(placements)) // The cells of a large fleet stay in memory.
	for _, t := range placements {
		cell.Differ = cell.Differ || (len(cell.Targets) > 0 && !revision.Same(cell.Targets[0].Revision, t.Revision))
		cell.Targets = append(cell.Targets, t.Target)
	}
	status := p.Status.Environments[env.Name]
	if status != nil && status.Fleet != nil {
		cell.Fleet = membersOf(status)
		cell.Differ = false // Its message says so.
		slices.SortStableFunc(cell.Targets, func(a, b Target) int { return worse(a.Mark.Tone, b.Mark.Tone) })
	}
	if status != nil && status.Promotion != nil {
		cell.Move = move(p.Namespace, status, scope)
	}
	if status != nil {
		cell.Advice = status.RollbackAdvice
	}
	if e > 0 {
		if before := p.Status.Environments[p.Spec.Environments[e-1].Name]; before != nil && before.Agreed != nil {
			if status == nil || status.Agreed == nil || !revision.Same(status.Agreed.Revision, before.Agreed.Revision) {
				cell.Newer = before.Agreed.Revision
			}
		}
	}
	return cell
}

func membersOf(status *pipelinesv1.EnvironmentStatus) *Members {
	f := &Members{FleetStatus: *status.Fleet, Unlisted: max(0, int(status.Fleet.Targets)-len(status.Targets)), InLine: int(status.Fleet.Ready)}
	for i := range status.Targets {
		if t := &status.Targets[i]; t.Ready && t.Fresh() && !t.Standing.LeftOut() && revision.Same(t.Revision, f.Revision) {
			f.InLine--
		}
	}
	f.InLine = min(max(0, f.InLine), f.Unlisted)
	return f
}

// move returns the newest promotion into an environment; nil when it succeeded or was superseded.
func move(namespace string, env *pipelinesv1.EnvironmentStatus, scope Scope) *Move {
	s := env.Promotion
	phase := capstanv1.PromotionPhase(s.Phase)
	switch phase {
	case capstanv1.PhaseSucceeded, capstanv1.PhaseSuperseded:
		return nil
	case "", capstanv1.PhaseAwaitingGates, capstanv1.PhaseAwaitingApproval, capstanv1.PhasePromoting, capstanv1.PhaseAwaitingMerge, capstanv1.PhaseAwaitingRollout, capstanv1.PhaseVerifying,
		capstanv1.PhaseFailed, capstanv1.PhaseRejected:
	}
	m := &Move{Mark: phaseMark(phase, false), Revision: s.Revision, Reason: s.Reason, Message: s.Message, URL: s.URL}
	if env.WaitingApproval.Revision == s.Revision && scope.Approve.Has(namespace) {
		m.Approve = ApprovePath(namespace, s.Name)
	}
	return m
}

// columns returns the environments of all rows. It keeps the order of each Pipeline as far
// as the orders of the others permit.
func columns(rows []Row) []string {
	var all []string
	for _, r := range rows {
		at := 0
		for _, c := range r.Cells {
			if i := slices.Index(all, c.Environment); i >= 0 {
				at = i + 1
				continue
			}
			all = slices.Insert(all, at, c.Environment)
			at++
		}
	}
	return all
}

// aligned returns the cells in the order of the columns.
func aligned(cells []Cell, columns []string) []Cell {
	all := make([]Cell, len(columns))
	for _, c := range cells {
		all[slices.Index(columns, c.Environment)] = c
	}
	return all
}
