package view

import (
	"slices"
	"strings"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// PromotionsPath is the timeline of promotions.
const PromotionsPath = "/promotions"

// TimelineFrame is the frame of the timeline.
type TimelineFrame struct {
	Filters Filters
	// Newer and Older are the addresses of the next pages; empty at the ends.
	Newer, Older string
}

// TimelineSummary is the summary of the timeline.
type TimelineSummary struct {
	Promotions int
	Counts     []Count
}

// Promotions returns the timeline: promotions in progress first, then the newest.
func Promotions(f *Facts, scope Scope, q Query) Page {
	q.Page = max(q.Page, 1)
	marks, namespaces := map[Mark]int{}, map[string]bool{}
	total := 0
	var found []*capstanv1.Promotion
	for i := range f.Promotions {
		p := &f.Promotions[i]
		if !scope.Promotions.Has(p.Namespace) {
			continue
		}
		mark := phaseMark(p.Status.Phase, stalled(p))
		total++
		namespaces[p.Namespace] = true
		marks[mark]++
		if q.inNamespace(p.Namespace) && q.inState(mark.Word) &&
			q.finds(p.Namespace+"/"+p.Spec.Pipeline.Name, p.Spec.Environment, p.Spec.Revision, p.Status.Reason, who(p), originText(p)) {
			found = append(found, p)
		}
	}
	slices.SortFunc(found, newestFirst)
	counts := counted(marks, func(m Mark) string { return PromotionsPath + "?" + Query{State: m.Word}.Encode() })
	frame := TimelineFrame{Filters: Filters{Query: q, Action: PromotionsPath, Namespaces: sorted(namespaces), States: promotionWords}}
	shown := found[min(len(found), (q.Page-1)*perPage):min(len(found), q.Page*perPage)]
	addressOf := func(page int) string {
		other := q
		other.Page = page
		return strings.TrimSuffix(PromotionsPath+"?"+other.Encode(), "?")
	}
	if q.Page > 1 {
		frame.Newer = addressOf(q.Page - 1)
	}
	if len(found) > q.Page*perPage {
		frame.Older = addressOf(q.Page + 1)
	}
	page := Page{Template: "promotions", Title: "Promotions", Frame: frame}
	page.Blocks = append(page.Blocks, Block{ID: "timeline-summary", List: "summary", Template: "timeline-summary", Data: TimelineSummary{Promotions: total, Counts: counts}})
	page.Blocks = append(page.Blocks, f.entries(shown, scope)...)
	if len(shown) == 0 {
		page.Blocks = append(page.Blocks, empty("entries", "empty-item", 0, scope.Promotions, NeedPromotions, q, "No revision was promoted yet."))
	}
	return page
}
