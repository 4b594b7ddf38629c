package view

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
	"time"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/internal/causes"
)

// PromotionsPath is the list of promotions.
const PromotionsPath = "/promotions"

// Tabs of the list of promotions.
const (
	tabWaiting, tabProgress, tabFailed, tabDone = "waiting", "progress", "failed", "done"
	// groupCause groups promotions that wait, or failed, for the same reason.
	groupCause = "cause"
	// reasonless is the reason of the filter for promotions without one. Reasons begin with a capital letter.
	reasonless = "none"
)

var (
	promotionGroups = []Option{{"", "nothing"}, {groupCause, "cause"}}
	promotionTabs   = []Option{{"", "All"}, {tabWaiting, "Waiting"}, {tabProgress, "In progress"}, {tabFailed, "Failed"}, {tabDone, "Done"}}
	// promotionAges are the values of Query.Within.
	promotionAges = []string{"1h", "24h", "7d", "30d"}
	ages          = map[string]time.Duration{"1h": time.Hour, "24h": day, "7d": 7 * day, "30d": 30 * day}
)

// promotionColumns is the number of columns of the list.
const promotionColumns = 6

// TimelineFrame is the frame of the list of promotions.
type TimelineFrame struct {
	Filters Filters
}

// TimelineSummary counts the promotions by state and by tab.
type TimelineSummary struct {
	Promotions int
	Counts     []Count
	Tabs       []TabCount
	Hidden     Hidden
}

// TabCount is a tab with the number of its promotions.
type TabCount struct {
	Link
	N int
}

// PromotionGroup is a number of promotions with the same cause.
type PromotionGroup struct {
	Mark                Mark
	Reason, Environment string
	N                   int
	// Oldest is when the first of them was decided.
	Oldest time.Time
	Link   string
}

// tabOf returns the tab of a promotion.
func tabOf(p *capstanv1.Promotion) string {
	switch p.Status.Phase {
	case capstanv1.PhaseAwaitingApproval, capstanv1.PhaseAwaitingGates, capstanv1.PhaseAwaitingMerge:
		return tabWaiting
	case capstanv1.PhaseFailed, capstanv1.PhaseRejected:
		return tabFailed
	case capstanv1.PhaseSucceeded, capstanv1.PhaseSuperseded:
		return tabDone
	case "", capstanv1.PhasePromoting, capstanv1.PhaseAwaitingRollout, capstanv1.PhaseVerifying:
	}
	return tabProgress
}

// Promotions returns the list of promotions: those in progress first, then the newest.
func Promotions(f *Facts, scope Scope, q Query) Page {
	q = q.among(promotionWords)
	q.Tab, q.Group = choice(q.Tab, promotionTabs), choice(q.Group, promotionGroups)
	if ages[q.Within] == 0 {
		q.Within = ""
	}
	marks, namespaces, environments, tabs := map[Mark]int{}, map[string]bool{}, map[string]int{}, map[string]int{}
	summary := TimelineSummary{Hidden: hiddenOf(scope.promotions())}
	var found []*capstanv1.Promotion
	for i := range f.Promotions {
		p := &f.Promotions[i]
		if !scope.Promotions.Has(p.Namespace) {
			continue
		}
		mark := phaseMark(p.Status.Phase, stalled(p))
		summary.Promotions++
		namespaces[p.Namespace] = true
		environments[p.Spec.BaseEnvironment()]++
		marks[mark]++
		tabs[tabOf(p)]++
		if (q.Tab == "" || q.Tab == tabOf(p)) && q.inNamespace(p.Namespace) && q.inPhase(mark) && q.promotion(p, f.Now) {
			found = append(found, p)
		}
	}
	tabs[""] = summary.Promotions
	filters := Filters{
		Query: q, Action: PromotionsPath, What: "promotions", Namespaces: sorted(namespaces), States: promotionWords, Environments: mostUsed(environments, q.Environment),
		Users: true, Ages: promotionAges, Groups: promotionGroups,
	}
	for _, tab := range promotionTabs {
		other := q
		other.Tab, other.Page = tab.Value, 1
		summary.Tabs = append(summary.Tabs, TabCount{Link{Text: tab.Text, Address: other.At(PromotionsPath), Current: tab.Value == q.Tab}, tabs[tab.Value]})
	}
	summary.Counts = counted(marks, func(m Mark) string { return Query{State: m.Word}.At(PromotionsPath) })
	page := Page{Template: "promotions", Title: "Promotions", Frame: TimelineFrame{Filters: filters}}
	page.Blocks = append(page.Blocks, Block{ID: "timeline-summary", List: "summary", Template: "timeline-summary", Data: summary})
	if len(found) == 0 {
		text := "No revision was promoted yet."
		if q.Tab != "" && summary.Promotions > 0 {
			text = "No promotion is in this part of the list."
		}
		page.Blocks = append(page.Blocks, filters.empty("entries", "empty-row", promotionColumns, scope.Promotions, NeedPromotions, text))
	}
	var pager Pager
	if q.Group == groupCause {
		var groups []Block
		groups, pager = paged(promotionCauses(found, q), q, PromotionsPath, "causes", perPage)
		page.Blocks = append(page.Blocks, groups...)
	} else {
		slices.SortFunc(found, q.promotionOrder)
		var shown []*capstanv1.Promotion
		shown, pager = paged(found, q, PromotionsPath, "promotions", perPage)
		for _, p := range shown {
			e := EntryOf(p, scope)
			e.Origin, e.Gates, e.Checks = f.origin(p), nil, nil // The Pipeline's page has them.
			page.Blocks = append(page.Blocks, Block{ID: entryID(e.Namespace, e.Name), List: "entries", Template: "promotion-row", Data: e})
		}
	}
	page.Blocks = append(page.Blocks, Block{ID: "entries-pager", List: "pager", Template: "pager-block", Data: pager})
	return page
}

// inPhase reports whether a promotion with a Mark is in the state of the Query. The state of a phase includes those that are stalled
// in it, except with a Reason: then it is one of the causes, of which these are another one.
func (q Query) inPhase(mark Mark) bool {
	in, stalls := strings.CutPrefix(mark.Word, stalledPrefix)
	return q.inState(mark.Word) || stalls && (q.State == stalledWord || q.State == in && q.Reason == "")
}

// promotion reports whether a promotion fits the filters that no other page has.
func (q Query) promotion(p *capstanv1.Promotion, now time.Time) bool {
	if q.Within != "" && now.Sub(lastTime(p)) > ages[q.Within] {
		return false
	}
	return (q.Reason == "" || q.Reason == cmp.Or(p.Status.Reason, reasonless)) && (q.Environment == "" || q.Environment == p.Spec.Environment || q.Environment == p.Spec.BaseEnvironment()) &&
		(q.User == "" || containsFold(who(p), strings.ToLower(q.User)) || containsFold(originText(p), strings.ToLower(q.User))) &&
		q.words().promotion(p)
}

// lastTime is when a promotion ended, or was decided.
func lastTime(p *capstanv1.Promotion) time.Time {
	if p.Status.FinishTime != nil {
		return p.Status.FinishTime.Time
	}
	return p.CreationTimestamp.Time
}

// promotionOrder is the order of the tabs: what waits and what is in progress oldest first, else newest first.
func (q Query) promotionOrder(a, b *capstanv1.Promotion) int {
	if q.Tab == tabWaiting || q.Tab == tabProgress {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	}
	return newestFirst(a, b)
}

// promotionCauses returns the blocks of promotions with the same state, reason and environment.
func promotionCauses(found []*capstanv1.Promotion, q Query) []Block {
	items := make([]causes.Item, len(found))
	for i, p := range found {
		mark := phaseMark(p.Status.Phase, stalled(p))
		items[i] = causes.Item{
			Key: mark.Word + "/" + p.Status.Reason + "/" + p.Spec.BaseEnvironment(), Severity: int(mark.Tone), Name: p.Namespace + "/" + p.Name, Since: p.CreationTimestamp.Time,
		}
	}
	groups := causes.Of(items, 0)
	blocks := make([]Block, len(groups))
	for i, g := range groups {
		p := found[g.Example]
		of := q
		mark := phaseMark(p.Status.Phase, stalled(p))
		of.Group, of.State, of.Reason, of.Environment, of.Page = "", mark.Word, cmp.Or(p.Status.Reason, reasonless), p.Spec.BaseEnvironment(), 1
		blocks[i] = Block{ID: "cause/" + url.PathEscape(g.Key), List: "entries", Template: "promotion-group", Data: PromotionGroup{
			Mark: mark, Reason: p.Status.Reason, Environment: p.Spec.BaseEnvironment(), N: g.Count, Oldest: g.Oldest, Link: of.At(PromotionsPath),
		}}
	}
	return blocks
}
