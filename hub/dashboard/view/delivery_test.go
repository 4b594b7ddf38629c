package view

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// delivered adds a promotion that ended some minutes ago and took ten minutes.
func delivered(f *Facts, p *pipelinesv1.Pipeline, number int64, env, revision string, minutes int, phase capstanv1.PromotionPhase) *capstanv1.Promotion {
	end := time.Duration(minutes) * time.Minute
	one := promotion(p, number, env, revision, capstanv1.PromotionStatus{Phase: phase, StartTime: ago(end + 10*time.Minute), FinishTime: ago(end), Attempt: &capstanv1.Attempt{Number: 1}})
	one.CreationTimestamp = *ago(end + 10*time.Minute)
	f.Promotions = append(f.Promotions, one)
	return &f.Promotions[len(f.Promotions)-1]
}

// deliveries are two deployments of apps/shop, of which one is rolled back, and one of other/billing.
func deliveries() *Facts {
	f := facts()
	shop, billing := &f.Pipelines[0], &f.Pipelines[1]
	delivered(f, shop, 1, "staging", "1.1.0", 200, capstanv1.PhaseSucceeded)
	delivered(f, shop, 1, "prod", "1.1.0", 180, capstanv1.PhaseSucceeded)
	delivered(f, shop, 2, "prod", "1.2.0", 120, capstanv1.PhaseSucceeded)
	delivered(f, shop, 3, "prod", "1.1.0", 90, capstanv1.PhaseSucceeded).Spec.RollbackOf = &capstanv1.RollbackReference{Name: "shop-prod-2", Number: 2}
	delivered(f, billing, 1, "prod", "7.0.0", 24*60, capstanv1.PhaseSucceeded)
	return f
}

func only(names ...string) Namespaces { return Namespaces{Names: names} }

func TestDeliveryPage(t *testing.T) {
	g := NewWithT(t)
	f := deliveries()
	page := DeliveryPage(f, Everything(), Query{})
	all := data[DeliveryBlock](page, "figures")[0]
	g.Expect(all.DeliveryFigures).To(Equal(DeliveryFigures{
		Deployments: 3, Changes: 3, Failed: 1, Rollbacks: 1, Failures: "33 %", Since: now.Add(-24 * time.Hour),
		Lead: Spread{1, "30m", "30m"}, Restore: Spread{1, "10m", "10m"},
	}))
	g.Expect([]any{all.Begin, all.End, all.PerDay, all.Most, all.Link}).To(Equal([]any{"2026-01-31", "2026-03-01", "0.1", 2, ""}))
	g.Expect(all.Bars[28:]).To(Equal([]DeliveryBar{{Date: "2026-02-28", N: 1, X: 280, Y: 30, Height: 30}, {Date: "2026-03-01", N: 2, X: 290, Y: 0, Height: 60}}))
	rows := data[DeliveryRow](page, "rows")
	g.Expect(rows).To(HaveLen(2))
	g.Expect([]any{rows[0].Name, rows[0].Environment, rows[0].Link, rows[0].Deployments, rows[0].Failures}).To(Equal([]any{"apps/shop", "prod", "/pipelines/apps/shop", 2, "50 %"}))

	// The counts of namespaces and of Pipelines add up to those of the fleet.
	for _, tab := range []string{"", "namespaces"} {
		sum := 0
		for _, r := range data[DeliveryRow](DeliveryPage(f, Everything(), Query{Tab: tab}), "rows") {
			sum += r.Deployments
		}
		g.Expect(sum).To(Equal(3))
	}
	names := func(q Query) []string {
		var all []string
		for _, r := range data[DeliveryRow](DeliveryPage(f, Everything(), q), "rows") {
			all = append(all, r.Name)
		}
		return all
	}
	g.Expect(names(Query{Sort: "deployments"})).To(Equal([]string{"apps/shop", "other/billing"}))
	f.Promotions = f.Promotions[2:]
	g.Expect(names(Query{Sort: "lead"})).To(Equal([]string{"apps/shop", "other/billing"}), "none has a lead time: by name")
	g.Expect(names(Query{Search: "BILL"})).To(Equal([]string{"other/billing"}))
	g.Expect(names(Query{Namespace: "other", Sort: "nonsense"})).To(Equal([]string{"other/billing"}))
	g.Expect(names(Query{Namespace: "absent"})).To(HaveLen(2), "an unknown namespace hides nothing")
	g.Expect(names(Query{Tab: "namespaces"})).To(Equal([]string{"apps", "other"}))
	g.Expect(names(Query{Search: "absent"})).To(BeEmpty())
}

// A column sorts by its figure, the highest first, and what has none is last.
func TestDeliverySorts(t *testing.T) {
	g := NewWithT(t)
	f := deliveries()
	f.Pipelines = append(f.Pipelines, pipeline("apps", "quiet"))
	delivered(f, &f.Pipelines[2], 1, "prod", "1.0.0", 100, capstanv1.PhaseFailed)
	for column, first := range map[string]string{"": "apps/quiet", "deployments": "apps/shop", "failures": "apps/quiet", "restore": "apps/shop", "lead": "apps/shop"} {
		page := DeliveryPage(f, Everything(), Query{Sort: column})
		g.Expect(data[DeliveryRow](page, "rows")[0].Name).To(Equal(first), column)
		frame, _ := page.Frame.(DeliveryFrame)
		sorted := slices.DeleteFunc(slices.Clone(frame.Headings), func(h DeliveryHeading) bool { return h.Order == "" })
		g.Expect(sorted).To(HaveLen(1), column)
	}
}

// Figures are those of the Promotions that a viewer may list, and of no others; a Pipeline is linked only for those who may see it.
func TestDeliveryOfScopes(t *testing.T) {
	g := NewWithT(t)
	f := deliveries()
	for name, tc := range map[string]struct {
		promotions, pipelines Namespaces
		deployments           int
		rows                  []string
		need                  string
	}{
		"everything":        {Namespaces{All: true}, Namespaces{All: true}, 3, []string{"apps/shop /pipelines/apps/shop", "other/billing /pipelines/other/billing"}, ""},
		"one-namespace":     {only("apps"), only("apps"), 2, []string{"apps/shop /pipelines/apps/shop"}, ""},
		"promotions-alone":  {only("other"), only(), 1, []string{"other/billing "}, ""},
		"pipelines-alone":   {only(), Namespaces{All: true}, 0, nil, NeedPromotions},
		"nothing":           {only(), only(), 0, nil, NeedPromotions},
		"another-namespace": {only("elsewhere"), only("elsewhere"), 0, nil, ""},
	} {
		scope := Scope{Promotions: tc.promotions, Pipelines: tc.pipelines}
		page := DeliveryPage(f, scope, Query{})
		var rows []string
		for _, r := range data[DeliveryRow](page, "rows") {
			rows = append(rows, r.Name+" "+r.Link)
		}
		block := data[DeliveryBlock](page, "figures")[0]
		g.Expect([]any{block.Deployments, block.Need, rows}).To(Equal([]any{tc.deployments, tc.need, tc.rows}), name)
		if !tc.promotions.Has("other") {
			g.Expect(fmt.Sprintf("%+v", page)).NotTo(ContainSubstring("billing"), name)
			g.Expect(f.deliveryBlock(scope, "x", "y", DeliveryOf{Namespace: "other"}).Data.(DeliveryBlock).Deployments).To(BeZero(), name)
		}
	}
}

// A block of a page has the figures of a namespace or a Pipeline, and changes only with them, or with the day.
func TestDeliveryBlock(t *testing.T) {
	g := NewWithT(t)
	f := deliveries()
	fleet := func(f *Facts) Block { return f.deliveryBlock(Everything(), "delivery", "main", DeliveryOf{}) }
	of := func(of DeliveryOf) DeliveryBlock {
		return f.deliveryBlock(Everything(), "d", "l", of).Data.(DeliveryBlock)
	}
	g.Expect(of(DeliveryOf{Namespace: "apps"}).Deployments).To(Equal(2))
	g.Expect(of(DeliveryOf{Namespace: "other", Pipeline: "billing"})).To(And(HaveField("Deployments", 1), HaveField("Link", "/delivery?namespace=other&q=billing")))
	g.Expect(of(DeliveryOf{Namespace: "apps", Pipeline: "billing"}).Deployments).To(BeZero())

	later := *f
	later.Now = f.Now.Add(11*time.Hour + 59*time.Minute)
	g.Expect(reflect.DeepEqual(fleet(f), fleet(&later))).To(BeTrue())
	later.Now = f.Now.Add(12 * time.Hour)
	g.Expect(reflect.DeepEqual(fleet(f), fleet(&later))).To(BeFalse(), "another day begins")

	// Number 1 and 2 of prod were deleted, because only two are kept.
	f.Retention.Keep = 2
	for i := range f.Promotions {
		if f.Promotions[i].Namespace == "apps" {
			f.Promotions[i].Spec.Number += 2
		}
	}
	g.Expect(of(DeliveryOf{}).Complete).To(Equal(now.Add(-180 * time.Minute)))
}

// A hostile name is text, and a page has a hundred rows at most.
func TestDeliveryIsPaged(t *testing.T) {
	g := NewWithT(t)
	f := facts()
	f.Pipelines = nil
	for i := range 150 {
		p := pipeline("apps", fmt.Sprintf("app-%03d", i))
		f.Pipelines = append(f.Pipelines, p)
		f.Promotions = append(f.Promotions, promotion(&p, 1, "prod", "1.0.0", capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded, FinishTime: &metav1.Time{Time: now}, Attempt: &capstanv1.Attempt{Number: 1}}))
	}
	first, second := DeliveryPage(f, Everything(), Query{Page: 1}), DeliveryPage(f, Everything(), Query{Page: 2})
	g.Expect(data[DeliveryRow](first, "rows")).To(HaveLen(deliveryPage))
	g.Expect(data[DeliveryRow](second, "rows")).To(HaveLen(deliveryPage))
	g.Expect(data[Pager](first, "pager")[0]).To(HaveField("Older", "/delivery?page=2"))
	g.Expect(data[DeliveryBlock](second, "figures")[0].Deployments).To(Equal(150))
	g.Expect(strings.Count(fmt.Sprintf("%+v", first.Frame), "app-")).To(BeZero(), "the frame does not change with the figures")
}

// The page of a Pipeline has its figures, or the permission that they need.
func TestPipelineHasItsDelivery(t *testing.T) {
	g := NewWithT(t)
	f := deliveries()
	for _, tc := range []struct {
		scope       Scope
		deployments int
		need        string
	}{
		{Everything(), 2, ""},
		{Scope{Pipelines: only("apps"), Promotions: only("other")}, 0, NeedPromotions},
	} {
		page, there := Pipeline(f, tc.scope, "apps", "shop")
		g.Expect(there).To(BeTrue())
		block := data[DeliveryBlock](page, "delivery")
		g.Expect(block).To(ConsistOf(And(HaveField("Deployments", tc.deployments), HaveField("Need", tc.need))))
	}
}
