package view

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// searched returns facts with objects of all kinds, in namespaces fleet, apps and other.
func searched() *Facts {
	f := facts()
	f.Pipelines[1].Spec.Environments[2].Name = "production-eu"
	f.Pipelines[1].Status.Environments["production-eu"] = &pipelinesv1.EnvironmentStatus{
		Targets: []pipelinesv1.TargetStatus{{Ready: true, Revision: "7.7.7"}, {Ready: true, Revision: "7.7.8"}},
	}
	f.Observed[cluster("staging")] = Observed{State: capstanv1.ConnectionUnreachable, Reason: "ProbesFailed"}
	done := promotion(&f.Pipelines[0], 1, "prod", "1.1.0", capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded, Approval: &capstanv1.ApprovalRecord{By: "Ann Example"}})
	failed := promotion(&f.Pipelines[1], 1, "prod", "9.9.9", capstanv1.PromotionStatus{Phase: capstanv1.PhaseFailed, Reason: "MergeConflict"})
	back := promotion(&f.Pipelines[0], 2, "prod", "1.0.0", capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingGates})
	back.Spec.RollbackOf = &capstanv1.RollbackReference{Number: 1, Name: done.Name}
	back.Spec.Request = &capstanv1.RequestReference{Name: "back", By: "bob", Reason: "incident 4711"}
	f.Promotions = []capstanv1.Promotion{done, failed, back}
	f.NodeGroups = []NodeGroup{{Kind: "MachineDeployment", Namespace: "fleet", Name: "workers-a", Cluster: "prod", Ready: 1, Desired: 3}}
	f.Instances = []Instances{{Kind: "AWSMachine", Namespace: "fleet", Name: "m-1", Cluster: "prod", State: "terminating", Instance: "i-0abc"}}
	f.Backends = []eventingv1.EventingBackend{{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "queue"}, Spec: eventingv1.EventingBackendSpec{Type: "sqs"}}}
	return f
}

// found returns the names of the hits of each group.
func found(f *Facts, scope Scope, search string) map[string][]string {
	all := map[string][]string{}
	for _, hits := range data[Hits](Search(f, scope, Query{Search: search}), "results") {
		for _, h := range hits.Shown {
			all[hits.Title] = append(all[hits.Title], h.Name)
		}
	}
	return all
}

// Each text of each kind is found, in any case, and all words must match.
func TestSearchFinds(t *testing.T) {
	f := searched()
	shop, billing := []string{"apps/shop"}, []string{"other/billing"}
	forward, failed, back := []string{"apps/shop into prod: 1.1.0"}, []string{"other/billing into prod: 9.9.9"}, []string{"apps/shop into prod: 1.0.0"}
	for search, want := range map[string]map[string][]string{
		"ProbesFAILED":      {"Clusters": {"fleet/staging"}},
		"unreachable":       {"Clusters": {"fleet/staging"}},
		"1.36":              {"Clusters": {"fleet/staging", "fleet/prod", "fleet/dev"}},
		"production-eu":     {"Pipelines": billing},
		"7.7.8":             {"Pipelines": billing},
		"BILL eu":           {"Pipelines": billing},
		"eu helmrelease":    {"Pipelines": billing},
		"ann":               {"Promotions": forward},
		"approved ann":      {"Promotions": forward},
		"mergeconflict":     {"Promotions": failed},
		"9.9.9":             {"Promotions": failed},
		"rollback 4711 bob": {"Promotions": back},
		"workers":           {"Node groups": {"fleet/workers-a"}},
		"i-0ABC":            {"Machines and pools": {"fleet/m-1"}},
		"fleet/m-1":         {"Machines and pools": {"fleet/m-1"}},
		"terminating prod":  {"Machines and pools": {"fleet/m-1"}},
		"sqs":               {"Event backends": {"other/queue"}},
		"shop 7.7.8":        {},
		"nothing":           {},
		"apps/shop":         {"Pipelines": shop, "Promotions": {back[0], forward[0]}},
	} {
		t.Run(search, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(found(f, Everything(), search)).To(Equal(want))
		})
	}
}

// The best name comes first, then the worst state; ten are shown, and all are counted.
func TestSearchOrder(t *testing.T) {
	g := NewWithT(t)
	f := &Facts{Leads: true, Now: now}
	add := func(name string, state capstanv1.ConnectionState, reason string) {
		f.Connections = append(f.Connections, capstanv1.ClusterConnection{
			ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "cluster." + name},
			Spec:       capstanv1.ClusterConnectionSpec{ClusterRef: pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Name: name}},
			Status:     capstanv1.ClusterConnectionStatus{State: state, Reason: reason},
		})
	}
	add("a", capstanv1.ConnectionUnreachable, "eu")
	add("west-eu", capstanv1.ConnectionReady, "")
	add("north-eu", capstanv1.ConnectionUnreachable, "")
	add("eu-1", capstanv1.ConnectionReady, "")
	add("EU", capstanv1.ConnectionReady, "")
	g.Expect(found(f, Everything(), "eu")["Clusters"]).To(Equal([]string{"fleet/EU", "fleet/eu-1", "fleet/north-eu", "fleet/west-eu", "fleet/a"}))
	for i := range 20 {
		add(fmt.Sprintf("z-%02d-eu", i), capstanv1.ConnectionReady, "")
	}
	hits := data[Hits](Search(f, Everything(), Query{Search: "eu", State: "Ready", Page: 3}), "results")[0]
	g.Expect(hits).To(And(HaveField("N", 25), HaveField("Shown", HaveLen(maxHits)), HaveField("All", ClustersPath+"?q=eu")))
	g.Expect(data[ClusterRow](Clusters(f, Everything(), Query{Search: "eu"}), "rows")).To(HaveLen(hits.N), "the linked page shows as many")
}

// Objects outside the Scope are in no result and in no count, and give no link.
func TestSearchScope(t *testing.T) {
	g := NewWithT(t)
	f := searched()
	apps := Namespaces{Names: []string{"apps"}}
	scope := Scope{Pipelines: apps, Promotions: apps}
	for _, search := range []string{"o", "1", "fleet", "i", "e", "s"} {
		said, err := json.Marshal(Search(f, scope, Query{Search: search}))
		g.Expect(err).NotTo(HaveOccurred())
		for _, foreign := range []string{"other/", "billing", "9.9.9", "7.7.", "MergeConflict", "m-1", "workers", "queue", "ProbesFailed", "fleet/"} {
			g.Expect(string(said)).NotTo(ContainSubstring(foreign), search)
		}
	}
	counts := func(scope Scope, search string) map[string]int {
		all := map[string]int{}
		for _, hits := range data[Hits](Search(f, scope, Query{Search: search}), "results") {
			all[hits.Title] = hits.N
		}
		return all
	}
	g.Expect(counts(scope, "prod")).To(Equal(map[string]int{"Pipelines": 1, "Promotions": 2}))
	g.Expect(counts(Everything(), "prod")).To(Equal(map[string]int{"Clusters": 1, "Pipelines": 2, "Promotions": 3, "Machines and pools": 1, "Node groups": 1}))
	g.Expect(data[Hidden](Search(f, scope, Query{}), "results")).To(Equal([]Hidden{{Limits: []Limit{
		{What: "clusters, machines and pools, node groups, event backends", Needs: []string{NeedClusters, NeedInstances, NeedNodeGroups, NeedBackends}},
		{What: "Pipelines, promotions", In: []string{"apps"}},
	}}}))

	machines := Scope{Instances: Namespaces{All: true}}
	hit := data[Hits](Search(f, machines, Query{Search: "m-1"}), "results")[0].Shown[0]
	g.Expect(hit.Link).To(BeEmpty(), "the cluster's page does not exist for this viewer")
	promotions := Scope{Promotions: Namespaces{All: true}}
	hit = data[Hits](Search(f, promotions, Query{Search: "9.9.9"}), "results")[0].Shown[0]
	g.Expect(hit.Link).To(Equal("/promotions?namespace=other&q=billing+prod+9.9.9"), "the Pipeline's page does not exist for this viewer")
	g.Expect(data[Hits](Search(f, Scope{}, Query{Search: "o"}), "results")).To(BeEmpty())
}

// The list that a group links has as many entries as the group counts.
func TestSearchAgreesWithLists(t *testing.T) {
	f := searched()
	totals := map[string]func(q Query) int{
		ClustersPath:   func(q Query) int { return len(data[ClusterRow](Clusters(f, Everything(), q), "rows")) },
		PipelinesPath:  func(q Query) int { return len(data[Rail](Pipelines(f, Everything(), q), "rows")) },
		PromotionsPath: func(q Query) int { return len(data[Entry](Promotions(f, Everything(), q), "entries")) },
		InstancesPath:  func(q Query) int { return len(data[MachineRow](InstanceEvents(f, Everything(), q), "machines")) },
		BackendsPath:   func(q Query) int { return len(data[Backend](Backends(f, Everything(), q), "entries")) },
	}
	compared := map[string]bool{}
	for _, search := range []string{"prod", "ready", "PROBESFAILED", "dev 1.0", "rollback", "ann", "approved ann", "fleet/prod", "i-0abc", "terminating", "sqs", "queue observed", "cluster", "e", "production-eu", "7.7.8", "other/billing"} {
		t.Run(search, func(t *testing.T) {
			g := NewWithT(t)
			for _, hits := range data[Hits](Search(f, Everything(), Query{Search: search}), "results") {
				if hits.All == "" {
					continue
				}
				u, err := url.Parse(hits.All)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(totals[u.Path](ParseQuery(u.Query()))).To(Equal(hits.N), hits.All)
				compared[u.Path] = true
			}
		})
	}
	NewWithT(t).Expect(compared).To(HaveLen(len(totals)))
}

// A heartbeat changes no result, and a state does.
func TestSearchIsLive(t *testing.T) {
	g := NewWithT(t)
	f := searched()
	before := Search(f, Everything(), Query{Search: "prod"})
	heard(f, func(h *Observed) { h.LastContact = now })
	f.Now = now.Add(time.Second)
	g.Expect(Search(f, Everything(), Query{Search: "prod"})).To(Equal(before))
	f.Observed[cluster("prod")] = Observed{State: capstanv1.ConnectionUnreachable}
	after := Search(f, Everything(), Query{Search: "prod"})
	g.Expect(after.Frame).To(Equal(before.Frame))
	g.Expect(data[Hits](after, "results")[0].Shown[0].Mark).To(Equal(Mark{Bad, "Unreachable"}))
}

// Without words, and without results, the page says what to do.
func TestSearchWithoutResults(t *testing.T) {
	g := NewWithT(t)
	templates := func(q Query) []string {
		var all []string
		for _, b := range Search(searched(), Everything(), q).Blocks {
			all = append(all, b.Template)
		}
		return all
	}
	g.Expect(templates(Query{})).To(Equal([]string{"search-help"}))
	g.Expect(templates(Query{Search: " "})).To(Equal([]string{"search-help"}))
	g.Expect(templates(Query{Search: "\u202e<script>"})).To(Equal([]string{"search-none"}))
}

// Texts in any script and case are compared as Unicode says.
func TestContainsFold(t *testing.T) {
	g := NewWithT(t)
	for _, tc := range []struct {
		text, word string
		want       bool
	}{
		{"Production", "duct", true},
		{"Production", "productions", false},
		{"aab", "ab", true},
		{"", "a", false},
		{"", "", true},
		{"ÄPFEL", "äpfel", true},
		{"xÄPFEL", "äp", true},
		{"αΒγ", "αβγ", true},
		{"naïve", "ve", true},
		{"\xff\xfeabc", "abc", true},
		{"[@`{", "[", true},
		{"@", "`", false},
	} {
		g.Expect(containsFold(tc.text, tc.word)).To(Equal(tc.want), "%q in %q", tc.word, tc.text)
		g.Expect(tc.want).To(Equal(strings.Contains(strings.ToLower(tc.text), tc.word)))
	}
}

// searchBudget is the longest time of one search of a large fleet.
const searchBudget = 20 * time.Millisecond

// largeFleet has 1,000 clusters, 300 Pipelines of 20 environments with two targets, and 20,000 promotions.
func largeFleet() *Facts {
	const clusters, pipelines, environments, promotions = 1000, 300, 20, 20_000
	f := &Facts{Leads: true, Now: now, Observed: map[Cluster]Observed{}}
	of := func(i int) Cluster {
		return Cluster{Kind: "Cluster", Namespace: fmt.Sprintf("team-%d", i%20), Name: fmt.Sprintf("cluster-%04d", i%clusters)}
	}
	for i := range clusters {
		c := of(i)
		f.Connections = append(f.Connections, capstanv1.ClusterConnection{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "cluster." + c.Name},
			Spec:       capstanv1.ClusterConnectionSpec{ClusterRef: pipelinesv1.CrossNamespaceClusterReference{Kind: c.Kind, Namespace: c.Namespace, Name: c.Name}},
			Status:     capstanv1.ClusterConnectionStatus{State: capstanv1.ConnectionReady, Reason: "Connected", KubernetesVersion: "v1.36.3"},
		})
		f.Observed[c] = Observed{State: capstanv1.ConnectionReady, Reason: "Connected", LastContact: now}
		f.NodeGroups = append(f.NodeGroups, NodeGroup{Kind: "MachineDeployment", Namespace: c.Namespace, Name: c.Name + "-md-0", Cluster: c.Name, Ready: 3, Desired: 3})
		f.Instances = append(f.Instances, Instances{Kind: "AWSMachine", Namespace: c.Namespace, Name: c.Name + "-md-0-x", Cluster: c.Name, State: "running", Instance: fmt.Sprintf("i-%016x", i)})
	}
	for i := range pipelines {
		p := pipelinesv1.Pipeline{
			ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("team-%d", i%20), Name: fmt.Sprintf("app-%03d", i)},
			Spec:       pipelinesv1.PipelineSpec{AppRef: pipelinesv1.LocalAppReference{Kind: "HelmRelease", Name: fmt.Sprintf("app-%03d", i)}},
			Status:     pipelinesv1.PipelineStatus{Environments: map[string]*pipelinesv1.EnvironmentStatus{}},
		}
		for e := range environments {
			env := pipelinesv1.Environment{Name: fmt.Sprintf("env-%02d", e)}
			status := &pipelinesv1.EnvironmentStatus{Agreed: &pipelinesv1.AgreedRevision{Revision: fmt.Sprintf("1.%d.0", i)}}
			for n := range 2 {
				c := of(20*i + e + 500*n)
				env.Targets = append(env.Targets, pipelinesv1.Target{Namespace: "apps", ClusterRef: &pipelinesv1.CrossNamespaceClusterReference{Kind: c.Kind, Namespace: c.Namespace, Name: c.Name}})
				status.Targets = append(status.Targets, pipelinesv1.TargetStatus{Ready: true, Revision: fmt.Sprintf("1.%d.0", i), ObservedTime: ago(time.Hour)})
			}
			p.Spec.Environments = append(p.Spec.Environments, env)
			p.Status.Environments[env.Name] = status
		}
		f.Pipelines = append(f.Pipelines, p)
	}
	for i := range promotions {
		p := promotion(&f.Pipelines[i%pipelines], int64(i), fmt.Sprintf("env-%02d", i%environments), fmt.Sprintf("1.%d.%d", i%pipelines, i), capstanv1.PromotionStatus{
			Phase: capstanv1.PhaseSucceeded, Approval: &capstanv1.ApprovalRecord{By: "release-manager@example.org"},
		})
		f.Promotions = append(f.Promotions, p)
	}
	return f
}

// One search of a large fleet, for a text that all objects have, one that none has, and others. The shortest one counts: on a
// machine that runs other tests, most have a pause.
func BenchmarkSearch(b *testing.B) {
	f := largeFleet()
	for name, search := range map[string]string{"all": "a", "none": "zzz", "words": "app env 1.7", "cluster": "cluster-0420", "revision": "1.33.1"} {
		b.Run(name, func(b *testing.B) {
			shortest := time.Hour
			for b.Loop() {
				began := time.Now()
				Search(f, Everything(), Query{Search: search})
				shortest = min(shortest, time.Since(began))
			}
			b.ReportMetric(float64(shortest.Microseconds()), "shortest-µs")
			if shortest > searchBudget {
				b.Errorf("a search takes %v: it may take %v", shortest, searchBudget)
			}
		})
	}
}

// A MachineSet is found by those who may list MachineSets, and by no others.
func TestSearchFindsNodeGroupsByTheirRight(t *testing.T) {
	g := NewWithT(t)
	f := facts()
	f.NodeGroups = []NodeGroup{{Kind: "MachineSet", Namespace: "fleet", Name: "workers"}}
	found := func(scope Scope) int { return len(data[Hits](Search(f, scope, Query{Search: "workers"}), "results")) }
	g.Expect(found(Scope{MachineSets: fleetOnly})).To(Equal(1))
	g.Expect(found(Scope{NodeGroups: fleetOnly})).To(BeZero())
}
