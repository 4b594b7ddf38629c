package view

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/internal/delivery"
)

// DeliveryPath is the page of delivery figures.
const DeliveryPath = "/delivery"

// DeliveryOf selects Pipelines: all, those of a namespace, or one of it.
type DeliveryOf struct {
	Namespace, Pipeline string
}

// path is the page with the figures.
func (o DeliveryOf) path() string {
	return Query{Namespace: o.Namespace, Search: o.Pipeline}.At(DeliveryPath)
}

// Spread is the median and the 90th percentile of durations, for people; empty if there are none.
type Spread struct {
	Count       int
	Median, P90 string
}

func spreadOf(p delivery.Percentiles) Spread {
	if p.Count == 0 {
		return Spread{}
	}
	return Spread{Count: p.Count, Median: duration.HumanDuration(p.Median), P90: duration.HumanDuration(p.P90)}
}

// DeliveryFigures are the figures of some Pipelines, in the last environment of each.
type DeliveryFigures struct {
	Deployments, Changes, Failed, Rollbacks int
	// Failures is the part of the changes that failed, such as "8 %"; empty without changes.
	Failures                       string
	Lead, Restore, Approval, Gates Spread
	// Since is when the oldest Promotion that counts ended; zero if none counts. Before Complete, some are missing, because
	// they were deleted; zero if none are.
	Since, Complete time.Time
}

// DeliveryBlock is the data of the template "delivery".
type DeliveryBlock struct {
	DeliveryFigures
	// Need is the missing permission; empty when none is missing.
	Need string
	// Begin and End are the first and the last day, in UTC.
	Begin, End string
	Bars       []DeliveryBar
	// PerDay is the average, such as "0.4".
	PerDay string
	// Most is the highest number of a day.
	Most int
	// Link is the page with all figures; empty on that page.
	Link string
}

// DeliveryBar is a day in the picture of deployments, in units of the picture.
type DeliveryBar struct {
	Date         string
	N            int
	X, Y, Height int
}

// Sizes of the picture of deployments, in its units: barHeight is that of the bar of the most deployments.
const (
	barStep   = 10
	barHeight = 60
	// barLeast keeps a small number visible.
	barLeast = 3
)

const dateFormat = time.DateOnly

// deliveries returns the histories of the selected Pipelines whose Promotions the viewer may see, in the order of their names.
// Pipelines without Promotions have none.
func (f *Facts) deliveries(scope Scope, of DeliveryOf) []delivery.History {
	ledgers := map[types.UID][]*capstanv1.Promotion{}
	for i := range f.Promotions {
		p := &f.Promotions[i]
		if scope.Promotions.Has(p.Namespace) && (of.Namespace == "" || of.Namespace == p.Namespace) && (of.Pipeline == "" || of.Pipeline == p.Spec.Pipeline.Name) {
			ledgers[p.Spec.Pipeline.UID] = append(ledgers[p.Spec.Pipeline.UID], p)
		}
	}
	histories := make([]delivery.History, 0, len(ledgers))
	for i := range f.Pipelines {
		p := &f.Pipelines[i]
		if ledger := ledgers[p.UID]; len(ledger) > 0 && ledger[0].Namespace == p.Namespace {
			histories = append(histories, delivery.HistoryOf(delivery.PipelineOf(p), ledger))
		}
	}
	slices.SortFunc(histories, func(a, b delivery.History) int {
		return cmp.Or(cmp.Compare(a.Pipeline.Namespace, b.Pipeline.Namespace), cmp.Compare(a.Pipeline.Name, b.Pipeline.Name))
	})
	return histories
}

// deliverySum adds the figures of histories.
func (f *Facts) deliverySum(histories []delivery.History) delivery.Figures {
	sum := delivery.NewSum(delivery.NewWindow(f.Now), f.Retention)
	for i := range histories {
		sum.Add(&histories[i])
	}
	return sum.Figures()
}

// deliveryBlock returns the block with the figures of some Pipelines, for any page.
func (f *Facts) deliveryBlock(scope Scope, id, list string, of DeliveryOf) Block {
	data := f.deliveryData(scope, f.deliverySum(f.deliveries(scope, of)))
	data.Link = of.path()
	if of.Namespace != "" && !scope.Promotions.Has(of.Namespace) {
		data.Need = NeedPromotions
	}
	return Block{ID: id, List: list, Template: "delivery", Data: data}
}

func (f *Facts) deliveryData(scope Scope, figures delivery.Figures) DeliveryBlock {
	w := delivery.NewWindow(f.Now)
	d := DeliveryBlock{
		DeliveryFigures: figuresOf(w, figures), Begin: w.First().Format(dateFormat), End: w.Date(delivery.Days - 1).Format(dateFormat),
		Bars: make([]DeliveryBar, delivery.Days), Most: slices.Max(figures.PerDay[:]),
	}
	if scope.Promotions.Empty() {
		d.Need = NeedPromotions
	}
	for i, n := range figures.PerDay {
		height := 0
		if n > 0 {
			height = max(barLeast, n*barHeight/d.Most)
		}
		d.Bars[i] = DeliveryBar{Date: w.Date(i).Format(dateFormat), N: n, X: i * barStep, Y: barHeight - height, Height: height}
	}
	const tenths = 10
	n := (figures.Deployments*tenths + delivery.Days/2) / delivery.Days
	d.PerDay = fmt.Sprintf("%d.%d", n/tenths, n%tenths)
	return d
}

func figuresOf(w delivery.Window, f delivery.Figures) DeliveryFigures {
	d := DeliveryFigures{
		Deployments: f.Deployments, Changes: f.Changes, Failed: f.Failed, Rollbacks: f.Rollbacks,
		Lead: spreadOf(f.Lead), Restore: spreadOf(f.Restore), Approval: spreadOf(f.ApprovalWait), Gates: spreadOf(f.GatesWait), Since: f.Since,
	}
	if percent := f.FailurePercent(); percent >= 0 {
		d.Failures = strconv.Itoa(percent) + " %"
	}
	if f.CompleteSince.After(w.First()) {
		d.Complete = f.CompleteSince
	}
	return d
}

// DeliveryRow is a Pipeline or a namespace in the table.
type DeliveryRow struct {
	DeliveryFigures
	// Name is that of the namespace, or of the Pipeline with its namespace; Environment is the last one of the Pipeline.
	Name, Environment string
	// Link is empty if the viewer may not see the Pipeline.
	Link string
	// raw are the figures to order by.
	raw delivery.Figures
}

// deliveryColumn is a column of the table by which it can be sorted; the highest value is first, except of names.
type deliveryColumn struct {
	name, title string
	compare     func(a, b *DeliveryRow) int
}

func byPercentile(of func(*delivery.Figures) delivery.Percentiles) func(a, b *DeliveryRow) int {
	return func(a, b *DeliveryRow) int {
		p, q := of(&a.raw), of(&b.raw)
		return cmp.Or(cmp.Compare(q.Median, p.Median), cmp.Compare(min(q.Count, 1), min(p.Count, 1)), cmp.Compare(q.P90, p.P90))
	}
}

// deliveryColumns in their order; the first one is the default order.
var deliveryColumns = []deliveryColumn{
	{"name", "Name", func(*DeliveryRow, *DeliveryRow) int { return 0 }},
	{"deployments", "Deployments", func(a, b *DeliveryRow) int { return cmp.Compare(b.Deployments, a.Deployments) }},
	{"lead", "Lead time", byPercentile(func(f *delivery.Figures) delivery.Percentiles { return f.Lead })},
	{"failures", "Failed changes", func(a, b *DeliveryRow) int {
		return cmp.Or(cmp.Compare(b.raw.FailurePercent(), a.raw.FailurePercent()), cmp.Compare(b.Failed, a.Failed))
	}},
	{"restore", "Time to restore", byPercentile(func(f *delivery.Figures) delivery.Percentiles { return f.Restore })},
	{"approval", "Wait for approval", byPercentile(func(f *delivery.Figures) delivery.Percentiles { return f.ApprovalWait })},
	{"gates", "Wait for gates", byPercentile(func(f *delivery.Figures) delivery.Percentiles { return f.GatesWait })},
}

// DeliveryHeading is the heading of a column.
type DeliveryHeading struct {
	Title, Link string
	// Order is the value of aria-sort; empty for none.
	Order string
}

// DeliveryFrame is the frame of the page of delivery figures.
type DeliveryFrame struct {
	Filters Filters
	// What the rows of the table are: "Pipelines".
	What     string
	Headings []DeliveryHeading
}

const (
	// tabNamespaces is the value of the parameter tab for the table of namespaces.
	tabNamespaces = "namespaces"
	// deliveryPage is how many rows a page has.
	deliveryPage = 40
)

// DeliveryPage returns the page of delivery figures: those of all Pipelines, or of a namespace, and a table of Pipelines or
// namespaces. A namespace without figures that the viewer may see is ignored.
func DeliveryPage(f *Facts, scope Scope, q Query) Page {
	histories := f.deliveries(scope, DeliveryOf{})
	filters, order := deliveryFilters(histories, q)
	shown := histories
	if filters.Query.Namespace != "" {
		shown = slices.DeleteFunc(slices.Clone(histories), func(h delivery.History) bool { return h.Pipeline.Namespace != q.Namespace })
	}
	var rows []DeliveryRow
	if filters.Tab == tabNamespaces {
		rows = f.deliveryOfNamespaces(shown)
	} else {
		rows = f.deliveryOfPipelines(shown, scope)
	}
	rows = slices.DeleteFunc(rows, func(r DeliveryRow) bool { return !q.finds(r.Name, r.Environment) })
	slices.SortStableFunc(rows, func(a, b DeliveryRow) int { return order.compare(&a, &b) })
	part, pager := paged(rows, filters.Query, DeliveryPath, filters.What, deliveryPage)

	page := Page{Template: "delivery-page", Title: "Delivery", Frame: deliveryFrame(filters, order)}
	if !scope.Promotions.Empty() {
		page.Blocks = hidden("figures", scope.promotions())
	}
	page.Blocks = append(page.Blocks,
		Block{ID: "delivery", List: "figures", Template: "delivery", Data: f.deliveryData(scope, f.deliverySum(shown))},
		Block{ID: "delivery-pager", List: "pager", Template: "delivery-pager", Data: pager})
	for _, r := range part {
		r.raw = delivery.Figures{} // It is not shown.
		page.Blocks = append(page.Blocks, Block{ID: "delivery/" + r.Name, List: "rows", Template: "delivery-row", Data: r})
	}
	if len(part) == 0 {
		page.Blocks = append(page.Blocks, filters.empty("rows", "empty-row", len(deliveryColumns)+1, scope.Promotions, NeedPromotions, "No revision was promoted yet."))
	}
	return page
}

// deliveryFilters returns the form of the page and the column to sort by; unknown values of the Query are not set.
func deliveryFilters(histories []delivery.History, q Query) (Filters, deliveryColumn) {
	filters := Filters{Query: q, Action: DeliveryPath, Tabs: []Option{{"", "Pipelines"}, {tabNamespaces, "Namespaces"}}}
	filters.Tab = choice(q.Tab, filters.Tabs)
	filters.What = "Pipelines"
	if filters.Tab == tabNamespaces {
		filters.What = "namespaces"
	}
	for _, h := range histories { // In the order of their namespaces.
		if n := len(filters.Namespaces); n == 0 || filters.Namespaces[n-1] != h.Pipeline.Namespace {
			filters.Namespaces = append(filters.Namespaces, h.Pipeline.Namespace)
		}
	}
	if !slices.Contains(filters.Namespaces, q.Namespace) {
		filters.Query.Namespace = ""
	}
	order := deliveryColumns[0]
	for _, c := range deliveryColumns {
		value := c.name
		if c.name == deliveryColumns[0].name {
			value = ""
		}
		filters.Sorts = append(filters.Sorts, Option{value, c.title})
		if value == q.Sort {
			order = c
		}
	}
	filters.Sort = choice(q.Sort, filters.Sorts)
	return filters, order
}

func deliveryFrame(filters Filters, order deliveryColumn) DeliveryFrame {
	frame := DeliveryFrame{Filters: filters, What: filters.What}
	for i, c := range deliveryColumns {
		by := filters.Query
		by.Sort, by.Page = filters.Sorts[i].Value, 1
		h := DeliveryHeading{Title: c.title, Link: by.At(DeliveryPath)}
		if c.name == order.name {
			if h.Order = "descending"; i == 0 {
				h.Order = "ascending"
			}
		}
		frame.Headings = append(frame.Headings, h)
	}
	return frame
}

func (f *Facts) deliveryOfPipelines(histories []delivery.History, scope Scope) []DeliveryRow {
	rows := make([]DeliveryRow, 0, len(histories))
	for i := range histories {
		of := histories[i].Pipeline
		row := f.deliveryRow(of.Namespace+"/"+of.Name, histories[i:i+1])
		if row.Deployments+row.Changes > 0 { // A viewer of Promotions sees no environment without one.
			row.Environment = of.Last()
		}
		if scope.Pipelines.Has(of.Namespace) {
			row.Link = pipelinePath(of.Namespace, of.Name)
		}
		rows = append(rows, row)
	}
	return rows
}

// deliveryOfNamespaces needs histories in the order of their namespaces.
func (f *Facts) deliveryOfNamespaces(histories []delivery.History) []DeliveryRow {
	var rows []DeliveryRow
	for begin := 0; begin < len(histories); {
		namespace := histories[begin].Pipeline.Namespace
		end := begin + 1
		for end < len(histories) && histories[end].Pipeline.Namespace == namespace {
			end++
		}
		row := f.deliveryRow(namespace, histories[begin:end])
		row.Link = DeliveryOf{Namespace: namespace}.path()
		rows = append(rows, row)
		begin = end
	}
	return rows
}

func (f *Facts) deliveryRow(name string, histories []delivery.History) DeliveryRow {
	raw := f.deliverySum(histories)
	return DeliveryRow{DeliveryFigures: figuresOf(delivery.NewWindow(f.Now), raw), Name: name, raw: raw}
}
