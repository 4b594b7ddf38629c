package view

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/useraction"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(-d)} }

func cluster(name string) Cluster { return Cluster{Kind: "Cluster", Namespace: "fleet", Name: name} }

// facts returns three clusters, one Pipeline of team apps over them and one of team other.
func facts() *Facts {
	f := &Facts{Leads: true, Now: now, Observed: map[Cluster]Observed{}}
	for _, name := range []string{"dev", "staging", "prod"} {
		f.Connections = append(f.Connections, capstanv1.ClusterConnection{
			ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "cluster." + name},
			Spec:       capstanv1.ClusterConnectionSpec{ClusterRef: pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Namespace: "fleet", Name: name}},
			Status: capstanv1.ClusterConnectionStatus{
				State: capstanv1.ConnectionReady, Reason: "Connected", LastTransitionTime: ago(time.Hour), KubernetesVersion: "v1.36.3", CredentialExpiryTime: ago(-30 * day),
			},
		})
		f.Observed[cluster(name)] = Observed{State: capstanv1.ConnectionReady, Reason: "Connected", Since: now.Add(-time.Hour), LastContact: now.Add(-10 * time.Second)}
	}
	f.Pipelines = []pipelinesv1.Pipeline{pipeline("apps", "shop"), pipeline("other", "billing")}
	return f
}

func pipeline(namespace, name string) pipelinesv1.Pipeline {
	p := pipelinesv1.Pipeline{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name)},
		Spec:       pipelinesv1.PipelineSpec{AppRef: pipelinesv1.LocalAppReference{Kind: "HelmRelease", Name: name}},
		Status:     pipelinesv1.PipelineStatus{Environments: map[string]*pipelinesv1.EnvironmentStatus{}},
	}
	for _, env := range []string{"dev", "staging", "prod"} {
		p.Spec.Environments = append(p.Spec.Environments, pipelinesv1.Environment{Name: env, Targets: []pipelinesv1.Target{
			{Namespace: name, ClusterRef: &pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Namespace: "fleet", Name: env}},
		}})
		p.Status.Environments[env] = &pipelinesv1.EnvironmentStatus{
			Targets: []pipelinesv1.TargetStatus{{Ready: true, Revision: "1.0.0", ObservedTime: ago(time.Hour)}},
			Agreed:  &pipelinesv1.AgreedRevision{Revision: "1.0.0", Sequence: 1},
		}
	}
	return p
}

func promotion(p *pipelinesv1.Pipeline, number int64, env, revision string, status capstanv1.PromotionStatus) capstanv1.Promotion {
	return capstanv1.Promotion{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: fmt.Sprintf("%s-%s-%d", p.Name, env, number), CreationTimestamp: *ago(time.Hour - time.Duration(number)*time.Minute)},
		Spec: capstanv1.PromotionSpec{
			Pipeline: capstanv1.PipelineReference{Name: p.Name, UID: p.UID}, Environment: env, Number: number, Revision: revision, Manual: true,
			Source: capstanv1.PromotionSource{Environment: "dev", Sequence: number}, From: &capstanv1.PromotionBase{Revisions: []string{"1.0.0"}},
		},
		Status: status,
	}
}

func data[T any](p Page, list string) []T {
	var all []T
	for _, b := range p.Blocks {
		if d, ok := b.Data.(T); ok && b.List == list {
			all = append(all, d)
		}
	}
	return all
}

// cellsOf returns the environments on the page of the first Pipeline.
func cellsOf(f *Facts, scope Scope) []Cell {
	page, _ := Pipeline(f, scope, "apps", "shop")
	return data[Cell](page, "environments")
}

func cardOf(p Page, name string) ClusterRow {
	for _, c := range data[ClusterRow](p, "rows") {
		if c.Cluster.Name == name {
			return c
		}
	}
	return ClusterRow{}
}

// A stale observation is never shown as ready, for any earlier state.
func TestStaleIsNeverGood(t *testing.T) {
	dev := cluster("dev")
	for name, tc := range map[string]struct {
		edit func(*Facts)
		// connection and target of dev.
		connection, target Mark
	}{
		"fresh":        {func(*Facts) {}, Mark{Good, "Ready"}, Mark{Good, "Ready"}},
		"just-in-time": {func(f *Facts) { heard(f, func(h *Observed) { h.LastContact = now.Add(-FreshFor + time.Millisecond) }) }, Mark{Good, "Ready"}, Mark{Good, "Ready"}},
		"silent":       {func(f *Facts) { heard(f, func(h *Observed) { h.LastContact = now.Add(-FreshFor) }) }, Mark{Stale, "Stale"}, Mark{Stale, "Stale"}},
		"degraded":     {func(f *Facts) { heard(f, func(h *Observed) { h.State = capstanv1.ConnectionDegraded }) }, Mark{Warning, "Degraded"}, Mark{Good, "Ready"}},
		"degraded-and-stale": {func(f *Facts) {
			heard(f, func(h *Observed) { h.State = capstanv1.ConnectionDegraded })
			f.Pipelines[0].Status.Environments["dev"].Targets[0].Stale = true
		}, Mark{Warning, "Degraded"}, Mark{Stale, "Stale"}},
		"degraded-and-silent": {func(f *Facts) {
			heard(f, func(h *Observed) { h.State, h.LastContact = capstanv1.ConnectionDegraded, now.Add(-FreshFor) })
		}, Mark{Warning, "Degraded"}, Mark{Stale, "Stale"}},
		"unreachable": {func(f *Facts) { heard(f, func(h *Observed) { h.State = capstanv1.ConnectionUnreachable }) }, Mark{Bad, "Unreachable"}, Mark{Stale, "Stale"}},
		"refused":     {func(f *Facts) { heard(f, func(h *Observed) { h.State = capstanv1.ConnectionAuthFailed }) }, Mark{Bad, "Auth failed"}, Mark{Stale, "Stale"}},
		"connecting":  {func(f *Facts) { heard(f, func(h *Observed) { h.State = capstanv1.ConnectionConnecting }) }, Mark{Busy, "Connecting"}, Mark{Stale, "Stale"}},
		"hub-says-so": {func(f *Facts) { f.Pipelines[0].Status.Environments["dev"].Targets[0].Stale = true }, Mark{Good, "Ready"}, Mark{Stale, "Stale"}},
		"stale-error": {func(f *Facts) {
			s := &f.Pipelines[0].Status.Environments["dev"].Targets[0]
			s.Stale, s.Error = true, "gone"
		}, Mark{Good, "Ready"}, Mark{Stale, "Stale"}},
		"error":        {func(f *Facts) { f.Pipelines[0].Status.Environments["dev"].Targets[0].Error = "not found" }, Mark{Good, "Ready"}, Mark{Bad, "Error"}},
		"not-ready":    {func(f *Facts) { f.Pipelines[0].Status.Environments["dev"].Targets[0].Ready = false }, Mark{Good, "Ready"}, Mark{Warning, "Not ready"}},
		"nothing-runs": {func(f *Facts) { f.Pipelines[0].Status.Environments["dev"].Targets[0] = pipelinesv1.TargetStatus{} }, Mark{Good, "Ready"}, Mark{Idle, "Runs nothing"}},
		"unseen":       {func(f *Facts) { f.Pipelines[0].Status.Environments["dev"] = nil }, Mark{Good, "Ready"}, Mark{Idle, "Not observed yet"}},
		"standby":      {func(f *Facts) { f.Observed, f.Leads = nil, false }, Mark{Good, "Ready"}, Mark{Good, "Ready"}},
		"standby-sees": {func(f *Facts) {
			f.Observed, f.Leads = nil, false
			f.Connections[0].Status.State = capstanv1.ConnectionUnreachable
		}, Mark{Bad, "Unreachable"}, Mark{Stale, "Stale"}},
		"leaderless":    {func(f *Facts) { f.Observed, f.Leads, f.Leaderless = nil, false, true }, Mark{Stale, "Stale"}, Mark{Stale, "Stale"}},
		"never-written": {func(f *Facts) { f.Observed = nil; f.Connections[0].Status = capstanv1.ClusterConnectionStatus{} }, Mark{Stale, "Unknown"}, Mark{Stale, "Stale"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			f := facts()
			tc.edit(f)
			g.Expect(clusterWords).To(ContainElement(tc.connection.Word), "it can be filtered by")
			g.Expect(pipelineWords).To(ContainElement(tc.target.Word), "it can be filtered by")
			g.Expect(cardOf(Clusters(f, Everything(), Query{}), "dev").Health[aspectConnection].Mark).To(Equal(tc.connection))
			g.Expect(data[Rail](Pipelines(f, Everything(), Query{Namespace: "apps"}), "rows")[0].Stops[0].Mark).To(Equal(tc.target))
			g.Expect(cellsOf(f, Everything())[0].Targets[0].Mark).To(Equal(tc.target))
			detail, ok := ClusterDetail(f, Everything(), dev)
			g.Expect(ok).To(BeTrue())
			apps := data[App](detail, "apps")
			g.Expect(slices.ContainsFunc(apps, func(a App) bool { return a.Name == "shop" && a.Mark == tc.target })).To(BeTrue())
		})
	}
}

func heard(f *Facts, edit func(*Observed)) {
	h := f.Observed[cluster("dev")]
	edit(&h)
	f.Observed[cluster("dev")] = h
}

// A heartbeat changes no page. A cluster that does not respond changes it, with the time of
// the last contact.
func TestHeartbeatIsNoChange(t *testing.T) {
	g := NewWithT(t)
	f := facts()
	before, overview := Clusters(f, Everything(), Query{}), Overview(f, Everything(), Query{})
	heard(f, func(h *Observed) { h.LastContact = now })
	f.Now = now.Add(time.Second)
	g.Expect(Clusters(f, Everything(), Query{})).To(Equal(before))
	g.Expect(Overview(f, Everything(), Query{})).To(Equal(overview))
	f.Now = now.Add(FreshFor)
	g.Expect(cardOf(Clusters(f, Everything(), Query{}), "dev").Mark).To(Equal(Mark{Stale, "Stale"}))
	detail, _ := ClusterDetail(f, Everything(), cluster("dev"))
	g.Expect(data[ClusterHead](detail, "head")[0].Contact).To(Equal(Contact{Known: true, At: now}))
	for _, shown := range []any{cellsOf(f, Everything())[0].Targets[0], data[Rail](Pipelines(f, Everything(), Query{Namespace: "apps"}), "rows")[0].Stops[0]} {
		g.Expect(shown).To(And(HaveField("Revision", "1.0.0"), HaveField("At", now), HaveField("Note", "its cluster does not respond")))
	}
}

// A target that is not ready shows why: the application's own reason, or that of its cluster,
// whose message only those see who may see the cluster.
func TestTargetShowsWhyItIsNotReady(t *testing.T) {
	g := NewWithT(t)
	f := facts()
	target := func(scope Scope) Target {
		return cellsOf(f, scope)[0].Targets[0]
	}
	seen := &f.Pipelines[0].Status.Environments["dev"].Targets[0]
	seen.Ready, seen.Reason, seen.Message = false, "UpgradeFailed", "timed out"
	g.Expect(target(Everything())).To(And(HaveField("Mark.Word", "Not ready"), HaveField("Note", "UpgradeFailed: timed out")))
	seen.Reason = ""
	g.Expect(target(Everything()).Note).To(Equal("timed out"))

	f.Observed[cluster("dev")] = Observed{State: capstanv1.ConnectionAuthFailed, Reason: "Unauthorized", Message: "the API server answers 401"}
	g.Expect(target(Everything()).Note).To(Equal("its cluster is Auth failed (Unauthorized: the API server answers 401)"))
	blind := Everything()
	blind.Clusters = Namespaces{}
	g.Expect(target(blind).Note).To(Equal("timed out"))
	seen.Message = ""
	g.Expect(target(blind).Note).To(Equal("its cluster cannot be observed at present"), "the state of the connection is not for this viewer")
}

// Clusters are sorted worst first, and each is counted once, by state.
func TestFleet(t *testing.T) {
	g := NewWithT(t)
	f := facts()
	f.Observed[cluster("staging")] = Observed{State: capstanv1.ConnectionUnreachable, Reason: "ProbesFailed"}
	f.Observed[cluster("dev")] = Observed{State: capstanv1.ConnectionReady, LastContact: now.Add(-time.Minute)}
	f.Pipelines[0].Status.Environments["prod"].Promotion = &pipelinesv1.PromotionSummary{Name: "x", Phase: "AwaitingApproval"}
	f.Pipelines[1].Status.Environments["prod"].Promotion = &pipelinesv1.PromotionSummary{Name: "y", Phase: "Failed"}
	page := Clusters(f, Everything(), Query{})
	g.Expect(names(page)).To(Equal([]string{"staging", "dev", "prod"}))
	g.Expect(cardOf(page, "prod").Moves).To(Equal(Moves{Waiting: 1, Failed: 1}))
	g.Expect(cardOf(page, "prod").Apps).To(Equal(Apps{Ready: 2, Total: 2}))
	g.Expect(cardOf(page, "dev").Apps).To(Equal(Apps{Stale: 2, Total: 2}))
	summary := data[ClustersSummary](page, "summary")[0]
	g.Expect(summary.Worst).To(Equal(Mark{Bad, "Unreachable"}))
	g.Expect(summary.Counts).To(Equal([]Count{
		{Mark{Bad, "Unreachable"}, 1, "/clusters?state=Unreachable"}, {Mark{Stale, "Stale"}, 1, "/clusters?state=Stale"},
		{Mark{Warning, promotionsFailed}, 1, "/clusters?state=Promotions+failed"}, {Mark{Good, "Ready"}, 1, "/clusters?state=Ready"},
	}))

	for _, tc := range []struct {
		q    Query
		want []string
	}{
		{Query{State: "Stale"}, []string{"dev"}},
		{Query{Search: "PROD"}, []string{"prod"}},
		{Query{Search: "probes"}, []string{"staging"}},
		{Query{Namespace: "elsewhere"}, nil},
	} {
		filtered := Clusters(f, Everything(), tc.q)
		g.Expect(names(filtered)).To(Equal(tc.want), "%+v", tc.q)
		g.Expect(data[ClustersSummary](filtered, "summary")).To(Equal([]ClustersSummary{summary}), "a filter changes no count")
	}
	g.Expect(data[Empty](Clusters(f, Everything(), Query{Namespace: "elsewhere"}), "rows")).To(Equal([]Empty{{Filtered: true, Columns: clusterColumns, What: "clusters", Clear: "/clusters", Text: "No cluster exists yet."}}))
}

func names(p Page) []string {
	var all []string
	for _, c := range data[ClusterRow](p, "rows") {
		if !c.Cluster.Local() {
			all = append(all, c.Cluster.Name)
		}
	}
	return all
}

// Nothing outside the Scope is on any page: not as an entry, not in a count, not in a
// filter, and not as a name.
func TestScope(t *testing.T) {
	f := facts()
	f.Promotions = []capstanv1.Promotion{
		promotion(&f.Pipelines[0], 1, "prod", "1.1.0", capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingApproval}),
		promotion(&f.Pipelines[1], 1, "prod", "9.9.9", capstanv1.PromotionStatus{Phase: capstanv1.PhaseFailed, Reason: "secret-reason"}),
	}
	f.Pipelines[1].Status.Environments["prod"].Promotion = &pipelinesv1.PromotionSummary{Name: "y", Phase: "Failed", Revision: "9.9.9"}
	f.Events = []*eventsv1.Event{{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "e"}, Regarding: corev1.ObjectReference{Kind: "ClusterConnection", Name: "cluster.prod"}, Reason: "secret-event"}}
	apps := Namespaces{Names: []string{"apps"}}
	scope := Scope{Pipelines: apps, Promotions: apps, Clusters: Namespaces{Names: []string{"fleet"}}}
	for name, page := range map[string]func() (Page, bool){
		"fleet":      func() (Page, bool) { return Clusters(f, scope, Query{}), true },
		"pipelines":  func() (Page, bool) { return Pipelines(f, scope, Query{}), true },
		"promotions": func() (Page, bool) { return Promotions(f, scope, Query{}), true },
		"about":      func() (Page, bool) { return AboutPage(f, scope, "v1", nil), true },
		"cluster":    func() (Page, bool) { return ClusterDetail(f, scope, cluster("prod")) },
		"pipeline":   func() (Page, bool) { return Pipeline(f, scope, "apps", "shop") },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p, ok := page()
			g.Expect(ok).To(BeTrue())
			said, err := json.Marshal(p)
			g.Expect(err).NotTo(HaveOccurred())
			for _, foreign := range []string{"other", "billing", "9.9.9", "secret-", "Failed\",\"N", `"Failed":1`} {
				g.Expect(string(said)).NotTo(ContainSubstring(foreign))
			}
		})
	}
	g := NewWithT(t)
	_, ok := Pipeline(f, scope, "other", "billing")
	g.Expect(ok).To(BeFalse())
	g.Expect(data[AboutFacts](AboutPage(f, scope, "v1", nil), "about")[0]).To(And(HaveField("Pipelines", 1), HaveField("Promotions", 1), HaveField("Clusters", 3)))

	// Who may not see clusters sees that a target is stale, without its cluster's page or reason.
	f.Observed[cluster("dev")] = Observed{State: capstanv1.ConnectionAuthFailed, Reason: "Unauthorized", Message: "secret-message"}
	blind := Scope{Pipelines: apps}
	target := cellsOf(f, blind)[0].Targets[0]
	g.Expect(target).To(And(HaveField("Mark", Mark{Stale, "Stale"}), HaveField("ClusterLink", "")))
	_, ok = ClusterDetail(f, blind, cluster("dev"))
	g.Expect(ok).To(BeFalse())
	g.Expect(data[Empty](Clusters(f, blind, Query{}), "rows")[0].Need).To(Equal(NeedClusters))
	g.Expect(data[Rail](Pipelines(f, blind, Query{}), "rows")[0].Stops[2].Wait).To(BeNil())
}

func TestPipeline(t *testing.T) {
	g := NewWithT(t)
	f := facts()
	p := &f.Pipelines[0]
	p.Status.Environments["dev"].Targets[0].Revision = "1.2.0"
	f.Promotions = []capstanv1.Promotion{
		promotion(p, 1, "staging", "1.1.0", capstanv1.PromotionStatus{Phase: capstanv1.PhaseFailed, Reason: "MarkerNotFound", Attempt: &capstanv1.Attempt{Number: 3, Error: "no"}, URL: "https://git/1"}),
		promotion(p, 2, "staging", "1.2.0", capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingApproval}),
		promotion(&f.Pipelines[1], 3, "staging", "7", capstanv1.PromotionStatus{}),
	}
	scope := Everything()
	scope.Approve = Namespaces{All: true}
	page, ok := Pipeline(f, scope, "apps", "shop")
	g.Expect(ok).To(BeTrue())
	matrix := data[Matrix](page, "matrix")[0]
	g.Expect(matrix.Revisions).To(Equal([]string{"1.2.0", "1.1.0", "1.0.0"}))
	g.Expect(matrix.Rows[0]).To(And(HaveField("Environment", "dev"), HaveField("Cells", HaveLen(3))))
	g.Expect(matrix.Rows[0].Cells[0]).To(Equal(MatrixCell{Revision: "1.2.0", Mark: Mark{Good, "Runs"}, Running: 1, Targets: 1}))
	g.Expect(matrix.Rows[1].Cells[0].Promotion.Approve).To(Equal("/promotions/apps/shop-staging-2/approve"))
	g.Expect(matrix.Rows[1].Cells[1].Promotion).To(And(HaveField("Mark", Mark{Bad, "Failed"}), HaveField("Attempts", int64(3)), HaveField("Failure", "no"), HaveField("URL", "https://git/1")))
	g.Expect(data[Entry](page, "entries")).To(HaveLen(2))
	g.Expect(data[Entry](page, "entries")[0].Number).To(Equal(int64(2)), "what is under way comes first")

	f.Observed[cluster("prod")] = Observed{State: capstanv1.ConnectionUnreachable}
	page, _ = Pipeline(f, scope, "apps", "shop")
	g.Expect(data[Matrix](page, "matrix")[0].Rows[2].Cells[2]).To(And(HaveField("Running", 1), HaveField("Stale", 1), HaveField("Mark", Mark{Stale, "Last observed"})))
}

func TestTimeline(t *testing.T) {
	g := NewWithT(t)
	f := facts()
	for n := range int64(120) {
		p := promotion(&f.Pipelines[0], n+1, "prod", fmt.Sprintf("1.%d.0", n+1), capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded, StartTime: ago(time.Hour), FinishTime: ago(time.Minute)})
		f.Promotions = append(f.Promotions, p)
	}
	f.Promotions[3].Status = capstanv1.PromotionStatus{Phase: capstanv1.PhasePromoting, Conditions: []metav1.Condition{{Type: "Stalled", Status: "True"}}}
	first := Promotions(f, Everything(), Query{Page: 1})
	g.Expect(data[Entry](first, "entries")).To(HaveLen(perPage))
	g.Expect(data[Entry](first, "entries")[0].Mark).To(Equal(Mark{Warning, "Stalled: Promoting"}))
	g.Expect(data[Entry](first, "entries")[1]).To(And(HaveField("Number", int64(120)), HaveField("Took", "59 min")))
	g.Expect(data[Pager](first, "pager")).To(HaveExactElements(And(HaveField("Newer", ""), HaveField("Older", "/promotions?page=2"))))
	last := Promotions(f, Everything(), Query{Page: 3})
	g.Expect(data[Entry](last, "entries")).To(HaveLen(perPage))
	g.Expect(data[Pager](last, "pager")).To(HaveExactElements(And(HaveField("Newer", "/promotions?page=2"), HaveField("Older", ""))))
	g.Expect(Promotions(f, Everything(), Query{Page: 99}).Blocks).To(Equal(Promotions(f, Everything(), Query{Page: 3}).Blocks), "the last page")
	g.Expect(data[Entry](Promotions(f, Everything(), Query{Page: 1, State: "Stalled: Promoting"}), "entries")).To(HaveLen(1))
}

// The filter has every phase.
func TestPhaseWords(t *testing.T) {
	g := NewWithT(t)
	for _, phase := range []capstanv1.PromotionPhase{"", capstanv1.PhaseAwaitingGates, capstanv1.PhaseAwaitingApproval, capstanv1.PhasePromoting, capstanv1.PhaseAwaitingMerge, capstanv1.PhaseAwaitingRollout,
		capstanv1.PhaseVerifying, capstanv1.PhaseSucceeded, capstanv1.PhaseFailed, capstanv1.PhaseRejected, capstanv1.PhaseSuperseded} {
		g.Expect(promotionWords).To(ContainElement(phaseMark(phase, false).Word))
		if phase != "" && phase != capstanv1.PhaseAwaitingGates && phase != capstanv1.PhaseVerifying { // These do not stall.
			g.Expect(promotionWords).To(ContainElement(phaseMark(phase, true).Word))
		}
		if m := move("apps", &pipelinesv1.EnvironmentStatus{Promotion: &pipelinesv1.PromotionSummary{Phase: string(phase)}}, Everything()); m != nil {
			g.Expect(pipelineWords).To(ContainElement(m.Mark.Word))
		}
	}
}

func TestWho(t *testing.T) {
	g := NewWithT(t)
	p := promotion(&facts().Pipelines[0], 1, "prod", "1", capstanv1.PromotionStatus{})
	g.Expect(who(&p)).To(Equal("needs an approval"))
	p.Spec.Approval = &capstanv1.Approval{By: "ada"}
	g.Expect(who(&p)).To(Equal("approved by ada"))
	p.Status.Approval = &capstanv1.ApprovalRecord{By: "secret:a/b", Method: capstanv1.ApprovalByHTTP}
	g.Expect(who(&p)).To(Equal("approved by secret:a/b (signed call)"))
	p.Spec.Manual, p.Spec.Approval, p.Status.Approval = false, nil, nil
	g.Expect(who(&p)).To(Equal("automatic"))
	p.Spec.Request = &capstanv1.RequestReference{Name: "back", By: "ann"}
	g.Expect(who(&p)).To(Equal("needs no approval"))
}

// The approval of one run is not that of the next.
func TestApprovalOfARetry(t *testing.T) {
	g := NewWithT(t)
	p := promotion(&facts().Pipelines[0], 1, "prod", "1", capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingApproval, Retry: 1})
	p.Spec.Manual, p.Spec.Retry, p.Spec.Approval = true, 1, &capstanv1.Approval{By: "ada"}
	g.Expect(useraction.Approvable(&p)).To(BeTrue())
	g.Expect(who(&p)).To(Equal("needs an approval"))
	p.Spec.Approval = &capstanv1.Approval{By: "ada", Retry: 1}
	g.Expect(useraction.Approvable(&p)).To(BeFalse())
	g.Expect(who(&p)).To(Equal("approved by ada"))
}

// Equal queries have one address, and ParseQuery bounds all values.
func TestQuery(t *testing.T) {
	g := NewWithT(t)
	for _, tc := range []struct{ typed, means string }{
		{"", ""}, {"q=+x+&page=1&other=1", "q=x"}, {"page=-3", ""}, {"page=2&state=Ready&namespace=a", "namespace=a&page=2&state=Ready"}, {"page=99999999999999999999", ""},
	} {
		v, err := url.ParseQuery(tc.typed)
		g.Expect(err).NotTo(HaveOccurred())
		q := ParseQuery(v)
		g.Expect(q.Encode()).To(Equal(tc.means))
		again, _ := url.ParseQuery(q.Encode())
		g.Expect(ParseQuery(again)).To(Equal(q))
	}
	g.Expect(ParseQuery(url.Values{"q": {strings.Repeat("ü", 1000)}}).Search).To(HaveLen(2 * maxSearch))
	g.Expect(ParseQuery(url.Values{"q": {"a\xff"}}).Search).To(Equal("a"))
}

// A promotion that waits shows each gate with its state, reason and times, until it was carried out.
func TestGates(t *testing.T) {
	g := NewWithT(t)
	since, change := metav1.NewTime(time.Unix(1_700_000_000, 0)), metav1.NewTime(time.Unix(1_700_003_600, 0))
	p := &capstanv1.Promotion{Status: capstanv1.PromotionStatus{
		Phase: capstanv1.PhaseAwaitingGates, Reason: "Soaking", ExpectedTime: &change,
		Gates: []capstanv1.GateStatus{
			{Name: "soak", Type: capstanv1.SoakGate, State: capstanv1.GateClosed, Reason: "Soaking", Message: "for 2h", LastTransitionTime: &since, NextChangeTime: &change},
			{Name: "windows", Type: capstanv1.WindowGate, State: capstanv1.GateInvalid, Reason: "InvalidGate"},
		},
	}}
	e := EntryOf(p, Everything())
	g.Expect(e.Mark).To(Equal(Mark{Busy, "Awaiting gates"}))
	g.Expect(e.Expected).To(BeTemporally("==", change.Time))
	g.Expect(e.Gates).To(HaveExactElements(
		Gate{Mark: Mark{Busy, "Closed"}, Name: "soak", Reason: "Soaking", Message: "for 2h", Since: since.Time, Change: change.Time},
		Gate{Mark: Mark{Bad, "Invalid"}, Name: "windows", Reason: "InvalidGate"},
	))
	p.Status.Phase = capstanv1.PhaseSucceeded
	g.Expect(EntryOf(p, Everything()).Gates).To(BeEmpty())
}

// The checks of a promotion are shown with their verdicts while its gates matter, and from its verification on.
func TestChecks(t *testing.T) {
	g := NewWithT(t)
	since := metav1.NewTime(time.Unix(1_700_000_000, 0))
	p := &capstanv1.Promotion{Status: capstanv1.PromotionStatus{
		Phase: capstanv1.PhaseAwaitingGates, Checks: []capstanv1.CheckStatus{
			{Name: "a", Verdict: capstanv1.CheckPass, Done: true, Value: "0.1", Message: "it passes", LastTransitionTime: &since},
			{Name: "b", Verdict: capstanv1.CheckPass}, {Name: "c", Verdict: capstanv1.CheckFail}, {Name: "d", Verdict: capstanv1.CheckFail, Done: true, Value: "7", Message: "it is false, with the value 7"},
			{Name: "e", Verdict: capstanv1.CheckNoData}, {Name: "f", Verdict: capstanv1.CheckError}, {Name: "g", LastTransitionTime: &since},
		},
	}}
	want := []Check{
		{Mark: Mark{Good, "Passed"}, Name: "a", Value: "0.1", Message: "it passes", Since: since.Time},
		{Mark: Mark{Busy, "Passes"}, Name: "b"}, {Mark: Mark{Warning, "Fails"}, Name: "c"}, {Mark: Mark{Bad, "Failed"}, Name: "d", Message: "it is false, with the value 7"},
		{Mark: Mark{Warning, "No data"}, Name: "e"}, {Mark: Mark{Warning, "Error"}, Name: "f"}, {Mark: Mark{Idle, "Not measured yet"}, Name: "g"},
	}
	g.Expect(EntryOf(p, Everything()).Checks).To(Equal(want))
	p.Status.Phase = capstanv1.PhaseAwaitingRollout
	g.Expect(EntryOf(p, Everything()).Checks).To(BeEmpty(), "those of the gates hold nothing any more")
	p.Status.VerifyTime = &since
	for _, phase := range []capstanv1.PromotionPhase{capstanv1.PhaseVerifying, capstanv1.PhaseFailed, capstanv1.PhaseSucceeded} {
		p.Status.Phase = phase
		g.Expect(EntryOf(p, Everything()).Checks).To(Equal(want), string(phase))
	}
}

// A rollback and a promotion by request say what caused them, and are found by it. The page of the Pipeline
// shows which environment is held, and until when.
func TestRollback(t *testing.T) {
	g := NewWithT(t)
	f := facts()
	p := &f.Pipelines[0]
	p.Spec.Promotion = &pipelinesv1.Promotion{}
	p.Status.Environments["dev"].Agreed = &pipelinesv1.AgreedRevision{Revision: "1.1.0", Sequence: 2}
	p.Status.Environments["dev"].Targets[0].Revision = "1.1.0"
	bad := promotion(p, 2, "staging", "1.1.0", capstanv1.PromotionStatus{Phase: capstanv1.PhaseFailed, Reason: "VerificationFailed"})
	back := promotion(p, 3, "staging", "1.0.0", capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded})
	back.Spec.Source.Sequence, back.Spec.Hold = 0, &capstanv1.Hold{UntilSequence: 2}
	back.Spec.RollbackOf = &capstanv1.RollbackReference{Name: bad.Name, Number: 2}
	back.Spec.Request = &capstanv1.RequestReference{Name: "back", By: "ann", Reason: "incident 4711"}
	f.Promotions = []capstanv1.Promotion{bad, back}
	p.Status.Environments["staging"].Promotion = &pipelinesv1.PromotionSummary{Name: back.Name, Phase: "Succeeded", Revision: "1.0.0"}

	origin := Origin{Number: 2, Revision: "1.1.0", Request: "back", By: "ann", Reason: "incident 4711"}
	for _, search := range []string{"rollback", "ann", "4711"} {
		g.Expect(data[Entry](Promotions(f, Everything(), Query{Search: search}), "entries")).To(HaveExactElements(HaveField("Origin", origin)), search)
	}
	page, _ := Pipeline(f, Everything(), "apps", "shop")
	cells := data[Cell](page, "environments")
	g.Expect(cells[1]).To(And(HaveField("Newer", "1.1.0"), HaveField("Held", &Held{Mark: heldMark, Source: "dev"}), HaveField("Move", BeNil())))
	g.Expect(cells[2].Held).To(BeNil())
	g.Expect(data[Matrix](page, "matrix")[0].Rows[1].Cells[1].Promotion.Origin.Number).To(Equal(int64(2)))

	// In flight and failed, also its cell says so.
	f.Promotions[1].Status.Phase = capstanv1.PhaseFailed
	p.Status.Environments["staging"].Promotion.Phase = "Failed"
	p.Status.Environments["staging"].RollbackAdvice = "it is not rolled back"
	page, _ = Pipeline(f, Everything(), "apps", "shop")
	cells = data[Cell](page, "environments")
	g.Expect(cells[1]).To(And(HaveField("Move.Origin", origin), HaveField("Held", Not(BeNil())), HaveField("Advice", "it is not rolled back")))

	// Without the right to see promotions, nothing of them is shown.
	blind := Everything()
	blind.Promotions = Namespaces{}
	page, _ = Pipeline(f, blind, "apps", "shop")
	cells = data[Cell](page, "environments")
	g.Expect(cells[1]).To(And(HaveField("Held", BeNil()), HaveField("Move.Origin", Origin{})))

	// The hold ends when the source agrees on another revision; the number is all that is left of a deleted promotion.
	p.Status.Environments["dev"].Agreed.Sequence = 3
	f.Promotions = f.Promotions[1:]
	page, _ = Pipeline(f, Everything(), "apps", "shop")
	g.Expect(data[Cell](page, "environments")[1].Held).To(BeNil())
	g.Expect(data[Entry](page, "entries")[0].Origin).To(And(HaveField("Number", int64(2)), HaveField("Revision", "")))
}

// An environment of hundreds of targets shows counts and the worst of its targets. What a search can find is not lost by
// that.
func TestFleetOfHundreds(t *testing.T) {
	g := NewWithT(t)
	f := facts()
	p := &f.Pipelines[0]
	env, status := &p.Spec.Environments[2], p.Status.Environments["prod"]
	env.Targets = []pipelinesv1.Target{{Namespace: "shop", Clusters: &pipelinesv1.ClusterSelector{}}}
	status.Targets = nil
	for i := range pipelinesv1.MaxShownTargets {
		one := pipelinesv1.TargetStatus{Namespace: "shop", Ready: true, Revision: "1.0.0", ObservedTime: ago(time.Hour)}
		one.ClusterAppRef.ClusterRef = &pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Namespace: "fleet", Name: fmt.Sprintf("eu-%d", i)}
		switch i {
		case 50:
			one.Ready, one.Revision, one.Reason = false, "0.9.0", "Broken"
		case 51:
			one.Stale, one.Standing = true, pipelinesv1.TargetLost
		case 52:
			one.Standing, one.Ready = pipelinesv1.TargetJoining, false
		}
		status.Targets = append(status.Targets, one)
	}
	status.Fleet = &pipelinesv1.FleetStatus{Targets: 400, Ready: 397, Required: 398, Revision: "1.0.0", Lost: 1, Joining: 1, Message: "lost: eu-51"}
	*p = *p.Shown()
	f.Pipelines[1].Spec.Environments = nil

	rails := data[Rail](Pipelines(f, Everything(), Query{Search: "eu-77"}), "rows")
	g.Expect(rails).To(HaveLen(1), "a target that is not shown is found")
	g.Expect(rails[0].Stops[2]).To(And(HaveField("Ready", &Share{N: 397, Of: 400}), HaveField("Mark.Word", "Not ready"), HaveField("Note", "Broken")))
	cell := cellsOf(f, Everything())[2]
	var marks []string
	for _, one := range cell.First() {
		marks = append(marks, one.Cluster.Name+" "+one.Mark.Word)
	}
	g.Expect(marks).To(Equal([]string{"eu-50 Not ready", "eu-51 Lost", "eu-52 Joining"}))
	g.Expect(cell.Rest()).To(HaveLen(97))
	g.Expect(*cell.Fleet).To(And(HaveField("Unlisted", 300), HaveField("InLine", 300)))
	detail, found := Pipeline(f, Everything(), "apps", "shop")
	g.Expect(found).To(BeTrue())
	g.Expect(data[Matrix](detail, "matrix")[0].Rows[2].Cells[0]).To(And(HaveField("Targets", 400), HaveField("Running", 399)), "two of them not ready: lost, and joining")
}
