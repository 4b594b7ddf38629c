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

const (
	// PipelinesPath is the list of Pipelines.
	PipelinesPath = "/pipelines"
	// railsPerPage is how many Pipelines a page of the list has: with maxStops environments each, and what they wait
	// for, it stays under 6,000 px on a phone.
	railsPerPage = 12
	// maxEnvironments is how many names the filter of environments offers: those of the most Pipelines.
	maxEnvironments = 50
	// sortByName orders the list by name; else the worst state is first.
	sortByName = "name"
)

// Row is a Pipeline with its environments.
type Row struct {
	Namespace, Name, Link string
	App                   string
	// Mark of the worst cell, or of the Pipeline itself.
	Mark Mark
	Note string
	// Cells in the order of the environments.
	Cells []Cell
	// stalled is whether the Pipeline itself is.
	stalled bool
}

// Cell is an environment of a Pipeline.
type Cell struct {
	Environment string
	// Targets in the order of the spec; those of a fleet, and those that are more than shownTargets, worst first.
	Targets []Target
	// Fleet counts the targets if they are a fleet; else nil.
	Fleet *Members
	// Waves of the environment, if it has some. Its targets are those of all of them.
	Waves Waves
	// All is set where all targets of a fleet can be looked at.
	All bool
	// Actions on the environment that the viewer can do. Only the page of the Pipeline has them.
	Actions []ActionLink
	// Move is the newest promotion into it; nil when it succeeded or was superseded.
	Move *Move
	// Newer is the agreed revision of the previous environment, if this environment does
	// not agree on it.
	Newer string
	// Due is whether the promotion of Newer is due: the hub creates it next. Next says so, or why it is not, as the
	// predicate of Newer; empty if Held or Move say it.
	Due  bool
	Next string
	// Held says until when a rollback or a request keeps Newer out of it; nil if none does.
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

const (
	// shownOfFleet is how many targets of a fleet a cell shows at once.
	shownOfFleet = 3
	// shownTargets is how many other targets it shows at once.
	shownTargets = 5
)

// First returns the targets that the cell shows at once. Of an environment with waves these are only such that are not well.
func (c Cell) First() []Target {
	if c.Fleet == nil {
		return c.Targets[:min(len(c.Targets), shownTargets)]
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
	// name of the Promotion.
	name string
}

// PipelinesFrame is the frame of the list.
type PipelinesFrame struct {
	Filters Filters
}

// PipelinesSummary counts the Pipelines.
type PipelinesSummary struct {
	Pipelines int
	Counts    []Count
}

func pipelinePath(namespace, name string) string { return path("pipelines", namespace, name) }

// ApprovePath returns the address at which a promotion is approved.
func ApprovePath(namespace, name string) string {
	return path("promotions", namespace, name, "approve")
}

// Pipelines returns the list of Pipelines, each with a rail of its environments: those with the worst state first, or by name.
func Pipelines(f *Facts, scope Scope, q Query) Page {
	known := f.standings()
	marks, namespaces, environments := map[Mark]int{}, map[string]bool{}, map[string]int{}
	var seen []*pipelinesv1.Pipeline
	for i := range f.Pipelines {
		p := &f.Pipelines[i]
		if !scope.Pipelines.Has(p.Namespace) {
			continue
		}
		seen = append(seen, p)
		namespaces[p.Namespace] = true
		for _, name := range environmentsOf(p) {
			environments[name]++
		}
	}
	q = knownValues(q, namespaces, environments)
	var rows []railRow
	for _, p := range seen {
		row := f.row(p, known, scope)
		marks[row.Mark]++
		if q.inNamespace(p.Namespace) && (q.inState(row.Mark.Word) || row.has(q.State)) && q.words().pipeline(p) && (q.Environment == "" || slices.Contains(environmentsOf(p), q.Environment)) {
			rows = append(rows, railRow{p, row})
		}
	}
	slices.SortStableFunc(rows, func(a, b railRow) int {
		byName := cmp.Or(cmp.Compare(a.row.Namespace, b.row.Namespace), cmp.Compare(a.row.Name, b.row.Name))
		if q.Sort == sortByName {
			return byName
		}
		return cmp.Or(worse(a.row.Mark.Tone, b.row.Mark.Tone), byName)
	})
	counts := counted(marks, func(m Mark) string { return Query{State: m.Word}.At(PipelinesPath) })
	filters := Filters{
		Query: q, Action: PipelinesPath, What: "Pipelines", Namespaces: sorted(namespaces), States: pipelineWords,
		Environments: mostUsed(environments, q.Environment), Sorts: []Option{{"", "worst first"}, {sortByName, "name"}},
	}
	page := Page{Template: "pipelines", Title: "Pipelines", Frame: PipelinesFrame{Filters: filters}}
	page.Blocks = append(page.Blocks, Block{ID: "pipelines-summary", List: "summary", Template: "pipelines-summary", Data: PipelinesSummary{Pipelines: len(seen), Counts: counts}})
	shown, pager := paged(rows, q, PipelinesPath, "Pipelines", railsPerPage)
	histories := f.histories(shown, scope)
	for _, r := range shown {
		rail := f.rail(r.pipeline, r.row, histories[object{r.row.Namespace, r.row.Name}], scope)
		page.Blocks = append(page.Blocks, Block{ID: "pipeline/" + rail.Namespace + "/" + rail.Name, List: "rows", Template: "rail", Data: rail})
	}
	if len(rows) == 0 {
		page.Blocks = append(page.Blocks, filters.empty("rows", "empty-item", 0, scope.Pipelines, NeedPipelines, "No Pipeline exists yet."))
	}
	page.Blocks = append(page.Blocks, Block{ID: "pipelines-pager", List: "pager", Template: "pipelines-pager", Data: pager})
	return page
}

// railRow is a Pipeline and its row.
type railRow struct {
	pipeline *pipelinesv1.Pipeline
	row      Row
}

// object is the namespace and the name of an object.
type object struct{ namespace, name string }

// histories returns the promotions of Pipelines by the names of these, also those of former Pipelines of the names, as the hub
// decides by them: only such that the viewer may see.
func (f *Facts) histories(rows []railRow, scope Scope) map[object][]capstanv1.Promotion {
	all := make(map[object][]capstanv1.Promotion, len(rows))
	for _, r := range rows {
		if scope.Promotions.Has(r.row.Namespace) {
			all[object{r.row.Namespace, r.row.Name}] = nil
		}
	}
	for i := range f.Promotions {
		p := &f.Promotions[i]
		of := object{p.Namespace, p.Spec.Pipeline.Name}
		if known, ok := all[of]; ok {
			all[of] = append(known, *p)
		}
	}
	return all
}

// environmentsOf returns the names of the environments of a Pipeline as they are in the spec.
func environmentsOf(p *pipelinesv1.Pipeline) []string {
	var names []string
	for i := range p.Spec.Environments {
		if e := &p.Spec.Environments[i]; e.Stage == nil || e.Stage.First {
			names = append(names, e.Base())
		}
	}
	return names
}

// knownValues returns the Query without the values that no Pipeline has: a filter that cannot match is not set.
func knownValues(q Query, namespaces map[string]bool, environments map[string]int) Query {
	if !namespaces[q.Namespace] {
		q.Namespace = ""
	}
	if environments[q.Environment] == 0 {
		q.Environment = ""
	}
	if !slices.Contains(pipelineWords, q.State) {
		q.State = ""
	}
	if q.Sort != sortByName {
		q.Sort = ""
	}
	return q
}

// mostUsed returns the sorted names that occur most, at most maxEnvironments, and the chosen one.
func mostUsed(count map[string]int, chosen string) []string {
	names := make([]string, 0, len(count))
	for name := range count {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b))
	})
	names = names[:min(len(names), maxEnvironments)]
	if chosen != "" && !slices.Contains(names, chosen) {
		names = append(names, chosen)
	}
	slices.Sort(names)
	return names
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
	if c := meta.FindStatusCondition(p.Status.Conditions, pipelinesv1.StalledCondition); c != nil && c.Status == metav1.ConditionTrue {
		if r.stalled = true; r.Mark.Tone != Bad {
			r.Mark, r.Note = Mark{Bad, stalledWord}, c.Message
		}
	}
	if c := meta.FindStatusCondition(p.Status.Conditions, pipelinesv1.AppSharedCondition); c != nil && c.Status == metav1.ConditionTrue && r.Note == "" {
		r.Note = c.Message
	}
	if p.Spec.Suspend {
		r.Note = "Suspended: the hub promotes nothing."
	}
	return r
}

// has reports whether a Pipeline, one of its targets or one of its promotions is in a state that is not well, also if another one is
// worse: the links of the first page lead to it.
func (r Row) has(word string) bool {
	is := func(m Mark) bool { return m.Tone < Good && m.Word == word }
	return r.stalled && word == stalledWord || slices.ContainsFunc(r.Cells, func(c Cell) bool {
		return c.Move != nil && is(c.Move.Mark) || slices.ContainsFunc(c.Targets, func(t Target) bool { return is(t.Mark) })
	})
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
	if len(cell.Targets) > shownTargets {
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
	m := &Move{Mark: phaseMark(phase, false), Revision: s.Revision, Reason: s.Reason, Message: s.Message, URL: s.URL, name: s.Name}
	if env.WaitingApproval.Revision == s.Revision && scope.Approve.Has(namespace) {
		m.Approve = ApprovePath(namespace, s.Name)
	}
	return m
}
