package view

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// long is a Pipeline with so many environments, each with one target, whose names end with a hostile text.
func long(environments int, hostile string) pipelinesv1.Pipeline {
	p := pipeline("apps", "shop")
	p.Spec.Environments, p.Status.Environments = nil, map[string]*pipelinesv1.EnvironmentStatus{}
	for i := range environments {
		name := fmt.Sprintf("e%02d%s", i, hostile)
		p.Spec.Environments = append(p.Spec.Environments, pipelinesv1.Environment{Name: name, Targets: []pipelinesv1.Target{{Namespace: "shop"}}})
		p.Status.Environments[name] = &pipelinesv1.EnvironmentStatus{
			Targets: []pipelinesv1.TargetStatus{{Ready: true, Revision: "1.0.0", ObservedTime: ago(time.Hour)}}, Agreed: &pipelinesv1.AgreedRevision{Revision: "1.0.0", Sequence: 1},
		}
	}
	return p
}

// railOf returns the only rail of the list.
func railOf(g *WithT, f *Facts, scope Scope) Rail {
	rails := data[Rail](Pipelines(f, scope, Query{Namespace: "apps"}), "rows")
	g.Expect(rails).To(HaveLen(1))
	return rails[0]
}

// A rail has the environments of its own Pipeline. Of many it has the first, the last and the worst ones, and says how many others
// there are.
func TestRailOfManyEnvironments(t *testing.T) {
	hostile := strings.Repeat("x", 200) + `<script>`
	for name, tc := range map[string]struct {
		environments int
		edit         func(*pipelinesv1.Pipeline)
		stops        []string
		gaps         []int
	}{
		"one":  {1, nil, []string{"e00"}, []int{0}},
		"four": {4, nil, []string{"e00", "e01", "e02", "e03"}, []int{0, 0, 0, 0}},
		"well": {20, nil, []string{"e00", "e01", "e02", "e19"}, []int{0, 0, 0, 16}},
		"broken": {20, func(p *pipelinesv1.Pipeline) {
			p.Status.Environments["e07"+hostile].Targets[0].Ready = false
			p.Status.Environments["e12"+hostile].Targets[0].Error = "no"
			p.Status.Environments["e03"+hostile].Promotion = &pipelinesv1.PromotionSummary{Name: "x", Revision: "1.1.0", Phase: "AwaitingRollout"}
		}, []string{"e00", "e07", "e12", "e19"}, []int{0, 6, 4, 6}},
		"none": {0, nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			f := facts()
			f.Pipelines[0] = long(tc.environments, hostile)
			if tc.edit != nil {
				tc.edit(&f.Pipelines[0])
			}
			rail := railOf(g, f, Everything())
			var stops []string
			var gaps []int
			for i, s := range rail.Stops {
				stops, gaps = append(stops, strings.TrimSuffix(s.Environment, hostile)), append(gaps, s.Gap)
				g.Expect(s.First).To(Equal(i == 0))
			}
			g.Expect(stops).To(Equal(tc.stops))
			g.Expect(gaps).To(Equal(tc.gaps))
			g.Expect(rail.More).To(Equal(tc.environments - len(tc.stops)))
		})
	}
}

// What an environment waits for is what the hub decides. It says that a revision is ready to promote only if it is promoted next.
func TestRailSaysWhatWaits(t *testing.T) {
	approver := Everything()
	approver.Approve = Namespaces{Names: []string{"apps"}}
	blind := Everything()
	blind.Promotions = Namespaces{}
	// ready makes the dev of the Pipeline agree on 1.1.0, and a promotion into staging possible.
	ready := func(f *Facts) *pipelinesv1.Pipeline {
		p := &f.Pipelines[0]
		p.Spec.Promotion = &pipelinesv1.Promotion{Strategy: pipelinesv1.Strategy{Notification: &pipelinesv1.NotificationPromotion{}}}
		p.Status.Environments["dev"].Targets[0].Revision = "1.1.0"
		p.Status.Environments["dev"].Agreed = &pipelinesv1.AgreedRevision{Revision: "1.1.0", Sequence: 2}
		return p
	}
	waiting := func(f *Facts, status capstanv1.PromotionStatus) *pipelinesv1.Pipeline {
		p := ready(f)
		f.Promotions = []capstanv1.Promotion{promotion(p, 2, "staging", "1.1.0", status)}
		p.Status.Environments["staging"].Promotion = &pipelinesv1.PromotionSummary{Name: f.Promotions[0].Name, Revision: "1.1.0", Phase: string(status.Phase), Message: "soaked 1h10 of 2h", URL: "https://git/1"}
		return p
	}
	opens := ago(-50 * time.Minute)
	gates := capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingGates, Gates: []capstanv1.GateStatus{
		{Name: "soak", State: capstanv1.GateClosed, Reason: "Soaking", NextChangeTime: opens}, {Name: "reject", State: capstanv1.GateOpen},
		{Name: "windows", State: capstanv1.GateClosed, Reason: "Frozen"}, {Name: "checks", State: capstanv1.GateInvalid},
	}}
	for name, tc := range map[string]struct {
		scope Scope
		edit  func(*Facts)
		want  *Wait
	}{
		"nothing": {Everything(), func(*Facts) {}, nil},
		"due":     {Everything(), func(f *Facts) { ready(f) }, &Wait{Mark: Mark{Busy, "Ready to promote"}, Revision: "1.1.0"}},
		"suspended": {Everything(), func(f *Facts) { ready(f).Spec.Suspend = true },
			&Wait{Mark: Mark{Idle, "Newer"}, Revision: "1.1.0", Text: "is not promoted: the Pipeline is suspended"}},
		"only shown": {Everything(), func(f *Facts) { ready(f).Spec.Promotion = nil },
			&Wait{Mark: Mark{Idle, "Newer"}, Revision: "1.1.0", Text: "is not promoted: the Pipeline has no promotion into staging"}},
		"not ready": {Everything(), func(f *Facts) { ready(f).Status.Environments["dev"].Targets[0].Ready = false },
			&Wait{Mark: Mark{Idle, "Newer"}, Revision: "1.1.0", Text: "is not promoted: the targets of dev are not all ready with it, or cannot be observed"}},
		"rejected": {Everything(), func(f *Facts) { ready(f).Spec.Reject = []string{"1.1.0"} },
			&Wait{Mark: Mark{Idle, "Newer"}, Revision: "1.1.0", Text: "is not promoted: spec.reject of the Pipeline contains it"}},
		"promotions not visible": {blind, func(f *Facts) { ready(f) }, &Wait{Mark: Mark{Idle, "Newer"}, Revision: "1.1.0", Text: "runs in dev"}},
		"gates": {Everything(), func(f *Facts) { waiting(f, gates) }, &Wait{
			Mark: Mark{Busy, "Awaiting gates"}, Revision: "1.1.0", URL: "https://git/1", MoreGates: 1,
			Gates: []Gate{{Mark: Mark{Busy, "Closed"}, Name: "soak", Reason: "Soaking", Change: opens.Time}, {Mark: Mark{Busy, "Closed"}, Name: "windows", Reason: "Frozen"}},
		}},
		"gates not visible": {blind, func(f *Facts) { waiting(f, gates) }, &Wait{Mark: Mark{Busy, "Awaiting gates"}, Revision: "1.1.0", Text: "soaked 1h10 of 2h", URL: "https://git/1"}},
		"approval": {approver, func(f *Facts) {
			waiting(f, capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingApproval}).Status.Environments["staging"].WaitingApproval.Revision = "1.1.0"
		}, &Wait{Mark: Mark{Asking, "Awaiting approval"}, Revision: "1.1.0", Text: "soaked 1h10 of 2h", URL: "https://git/1", Approve: "/promotions/apps/shop-staging-2/approve"}},
		"approval of others": {Everything(), func(f *Facts) {
			waiting(f, capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingApproval}).Status.Environments["staging"].WaitingApproval.Revision = "1.1.0"
		}, &Wait{Mark: Mark{Asking, "Awaiting approval"}, Revision: "1.1.0", Text: "soaked 1h10 of 2h", URL: "https://git/1"}},
		"ended": {Everything(), func(f *Facts) {
			p := waiting(f, capstanv1.PromotionStatus{Phase: capstanv1.PhaseSuperseded})
			f.Promotions[0].Spec.App, f.Promotions[0].Spec.Source.Sequence = p.Spec.AppRef, 2
		}, &Wait{Mark: Mark{Idle, "Newer"}, Revision: "1.1.0", Text: "is not promoted: its promotion has ended; retry it to promote it again"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			f := facts()
			tc.edit(f)
			staging := railOf(g, f, tc.scope).Stops[1]
			g.Expect(staging.Wait).To(Equal(tc.want))
			g.Expect(staging.Same).To(Equal(tc.want == nil), "an arrow is whole if the revision is the same, and nothing waits")
		})
	}
}

// Several targets are counted. A revision that most of them run is that of the environment.
func TestRailCountsTargets(t *testing.T) {
	g := NewWithT(t)
	f := facts()
	p := &f.Pipelines[0]
	env, status := &p.Spec.Environments[1], p.Status.Environments["staging"]
	for i := range 13 {
		env.Targets = append(env.Targets, pipelinesv1.Target{Namespace: fmt.Sprint("shop-", i)})
		status.Targets = append(status.Targets, pipelinesv1.TargetStatus{Ready: i > 1, Revision: "1.1.0", Reason: "Upgrading"})
	}
	staging := railOf(g, f, Everything()).Stops[1]
	g.Expect(staging).To(And(HaveField("Revision", "1.1.0"), HaveField("Others", 1), HaveField("Ready", &Share{N: 12, Of: 14}), HaveField("Same", false),
		HaveField("Mark", Mark{Warning, "Not ready"}), HaveField("Note", "Upgrading")))
	g.Expect(staging.Ready.Percent()).To(Equal(85))
	cell := cellsOf(f, Everything())[1]
	g.Expect(cell.First()).To(HaveLen(shownTargets))
	g.Expect(cell.First()[0].Mark.Word).To(Equal("Not ready"), "the worst of many are shown")
	g.Expect(cell.Rest()).To(HaveLen(14 - shownTargets))
}

func TestShare(t *testing.T) {
	g := NewWithT(t)
	for _, tc := range []struct{ n, of, percent int }{{0, 0, 0}, {0, 3, 0}, {1, 3, 33}, {1, 1000, 1}, {999, 1000, 99}, {1000, 1000, 100}, {5, 3, 100}, {-1, 3, 0}} {
		g.Expect(Share{tc.n, tc.of}.Percent()).To(Equal(tc.percent), "%+v", tc)
	}
}

// The list has pages, an order and filters; a value that no Pipeline has filters nothing.
func TestPipelinesPages(t *testing.T) {
	g := NewWithT(t)
	f := facts()
	f.Pipelines = nil
	const pipelines = 2*railsPerPage + 3
	for i := range pipelines {
		p := pipeline("apps", fmt.Sprintf("app-%02d", i))
		p.UID = types.UID(p.Name)
		f.Pipelines = append(f.Pipelines, p)
	}
	worst, other := &f.Pipelines[pipelines-1], &f.Pipelines[7]
	worst.Status.Environments["prod"].Targets[0].Error = "no"
	other.Spec.Environments[1].Name = "canary"
	shown := func(q Query) []string {
		var all []string
		for _, r := range data[Rail](Pipelines(f, Everything(), q), "rows") {
			all = append(all, r.Name)
		}
		return all
	}
	first := shown(Query{})
	g.Expect(first).To(HaveLen(railsPerPage))
	g.Expect(first[0]).To(Equal(worst.Name), "worst first")
	g.Expect(shown(Query{Sort: "name"})[0]).To(Equal("app-00"))
	g.Expect(shown(Query{Page: 3})).To(HaveLen(3))
	g.Expect(shown(Query{Page: 99})).To(HaveLen(3), "the last page")
	g.Expect(shown(Query{Environment: "canary"})).To(Equal([]string{other.Name}))
	g.Expect(shown(Query{State: "Error"})).To(Equal([]string{worst.Name}))
	for _, q := range []Query{{Namespace: "nowhere"}, {State: "Nonsense"}, {Environment: "nowhere"}, {Sort: "nonsense"}} {
		g.Expect(shown(q)).To(Equal(first), "%+v", q)
	}
	page := Pipelines(f, Everything(), Query{Search: "nothing", Sort: "name"})
	g.Expect(data[Empty](page, "rows")).To(HaveExactElements(HaveField("Filtered", true)))
	g.Expect(data[Pager](Pipelines(f, Everything(), Query{Page: 2, Sort: "name"}), "pager")).To(HaveExactElements(
		Pager{From: railsPerPage + 1, To: 2 * railsPerPage, Total: pipelines, What: "Pipelines", Newer: "/pipelines?sort=name", Older: "/pipelines?page=3&sort=name"}))
	g.Expect(data[PipelinesSummary](page, "summary")[0]).To(And(HaveField("Pipelines", pipelines), HaveField("Counts", HaveExactElements(
		Count{Mark{Bad, "Error"}, 1, "/pipelines?state=Error"}, HaveField("N", pipelines-1)))), "a filter changes no count")
	frame := page.Frame.(PipelinesFrame)
	g.Expect(frame.Filters.Environments).To(Equal([]string{"canary", "dev", "prod", "staging"}))
	g.Expect(frame.Filters.Sort).To(Equal(sortByName))

	// The names of environments that a viewer may not see are no choice of the filter, and find nothing.
	f.Pipelines = append(f.Pipelines, pipeline("other", "secret"))
	f.Pipelines[pipelines].Spec.Environments[0].Name = "hidden"
	apps := Everything()
	apps.Pipelines = Namespaces{Names: []string{"apps"}}
	limited := Pipelines(f, apps, Query{Environment: "hidden"})
	g.Expect(limited.Frame.(PipelinesFrame).Filters.Environments).NotTo(ContainElement("hidden"))
	g.Expect(data[Rail](limited, "rows")).To(HaveLen(railsPerPage))
}

// The filter of environments offers the names of the most Pipelines, and the chosen one.
func TestMostUsedEnvironments(t *testing.T) {
	g := NewWithT(t)
	count := map[string]int{"dev": 300, "rare": 1}
	for i := range 100 {
		count[fmt.Sprintf("e%03d", i)] = 2
	}
	g.Expect(mostUsed(count, "")).To(And(HaveLen(maxEnvironments), ContainElement("dev"), Not(ContainElement("rare"))))
	g.Expect(mostUsed(count, "rare")).To(And(HaveLen(maxEnvironments+1), ContainElement("rare")))
}
