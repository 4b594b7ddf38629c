package view

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

func healthOf(f *Facts, scope Scope, name string) (ClusterRow, bool) {
	for _, r := range f.fleet(scope).rows() {
		if r.Cluster.Name == name {
			return r, true
		}
	}
	return ClusterRow{}, false
}

// A cluster is good only if its connection, applications, nodes, instances and credential are: each of them alone makes it bad, and
// the map and the table say which.
func TestHealthIsTheWorst(t *testing.T) {
	group := func(ready, desired int64) NodeGroup {
		return NodeGroup{Kind: "MachineDeployment", Namespace: "fleet", Name: "workers", Cluster: "dev", Ready: ready, Desired: desired, Capacity: []string{"cpu: 8"}}
	}
	machine := func(state string) Instances {
		return Instances{Kind: "AWSMachine", Namespace: "fleet", Name: "a", Cluster: "dev", State: state, Instance: "i-1"}
	}
	expires := func(f *Facts, in time.Duration) {
		f.Connections[0].Status.CredentialExpiryTime = ago(-in)
	}
	for name, tc := range map[string]struct {
		edit   func(*Facts)
		want   Mark
		aspect int
		why    string
	}{
		"all-is-well":    {func(*Facts) {}, Mark{Good, "Ready"}, aspectConnection, ""},
		"with-nodes":     {func(f *Facts) { f.NodeGroups = []NodeGroup{group(3, 3)}; f.Instances = []Instances{machine("running")} }, Mark{Good, "Ready"}, aspectConnection, ""},
		"scaled-to-zero": {func(f *Facts) { f.NodeGroups = []NodeGroup{group(0, 0)} }, Mark{Good, "Ready"}, aspectConnection, ""},
		"unreachable": {func(f *Facts) {
			heard(f, func(h *Observed) { h.State, h.Reason = capstanv1.ConnectionUnreachable, "ProbesFailed" })
		}, Mark{Bad, "Unreachable"}, aspectConnection, "ProbesFailed"},
		"application-error":   {func(f *Facts) { f.Pipelines[0].Status.Environments["dev"].Targets[0].Error = "gone" }, Mark{Bad, appsFail}, aspectApplications, "1 of 2 ready"},
		"application-unready": {func(f *Facts) { f.Pipelines[0].Status.Environments["dev"].Targets[0].Ready = false }, Mark{Warning, appsNotReady}, aspectApplications, "1 of 2 ready"},
		"application-stale":   {func(f *Facts) { f.Pipelines[0].Status.Environments["dev"].Targets[0].Stale = true }, Mark{Stale, appsStale}, aspectApplications, "1 of 2 ready, 1 stale"},
		"promotion-failed": {func(f *Facts) {
			f.Pipelines[0].Status.Environments["dev"].Promotion = &pipelinesv1.PromotionSummary{Phase: "Failed"}
		}, Mark{Warning, promotionsFailed}, aspectApplications, "1 promotion failed or rejected"},
		"no-node":         {func(f *Facts) { f.NodeGroups = []NodeGroup{group(0, 3)} }, Mark{Bad, noNodeReady}, aspectNodes, "0 of 3 ready in 1 group, 1 group without a ready node"},
		"node-missing":    {func(f *Facts) { f.NodeGroups = []NodeGroup{group(2, 3)} }, Mark{Warning, nodesMissing}, aspectNodes, "2 of 3 ready in 1 group"},
		"instance-fails":  {func(f *Facts) { f.Instances = []Instances{machine("spot-interruption-terminate")} }, Mark{Bad, instancesFail}, aspectInstances, "1 of 1 machine"},
		"instance-leaves": {func(f *Facts) { f.Instances = []Instances{machine("shutting-down")} }, Mark{Warning, instancesLeave}, aspectInstances, "1 of 1 machine"},
		"expired":         {func(f *Facts) { expires(f, -time.Minute) }, Mark{Bad, credentialExpired}, aspectCredential, ""},
		"expires-soon":    {func(f *Facts) { expires(f, 3*day) }, Mark{Warning, credentialWeek}, aspectCredential, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			f := facts()
			tc.edit(f)
			row, found := healthOf(f, Everything(), "dev")
			g.Expect(found).To(BeTrue())
			g.Expect(row.Mark).To(Equal(tc.want))
			g.Expect(row.Health[tc.aspect].Mark).To(Equal(tc.want))
			g.Expect(row.Why).To(Equal(tc.why))
			g.Expect(clusterWords).To(ContainElement(tc.want.Word), "it can be filtered by")
			if tc.want.Tone < Good {
				shown := Clusters(f, Everything(), Query{State: tc.want.Word})
				g.Expect(names(shown)).To(ContainElement("dev"))
				g.Expect(names(Clusters(f, Everything(), Query{Tab: tabUnwell}))).To(ContainElement("dev"))
			}
			squares := data[Square](Overview(f, Everything(), Query{}), "map")
			g.Expect(squares).To(ContainElement(And(HaveField("Name", "fleet/dev"), HaveField("Mark", tc.want))))
		})
	}
}

// A cluster without a connection is listed, a GitopsCluster is a part of the Cluster that it references, and the management cluster
// is one of the clusters.
func TestEveryClusterIsListed(t *testing.T) {
	g := NewWithT(t)
	f := facts()
	lonely, alias := cluster("lonely"), Cluster{Kind: "GitopsCluster", Namespace: "fleet", Name: "dev-alias"}
	f.Objects = []Object{{Cluster: cluster("dev"), Labels: map[string]string{"tier": "test"}}, {Cluster: lonely}, {Cluster: alias, Of: cluster("dev")}}
	f.Pipelines[0].Spec.Environments[0].Targets[0].ClusterRef = &pipelinesv1.CrossNamespaceClusterReference{Kind: alias.Kind, Namespace: alias.Namespace, Name: alias.Name}
	f.Observed[alias] = f.Observed[cluster("dev")]

	rows := f.fleet(Everything()).rows()
	var all []string
	for _, r := range rows {
		all = append(all, r.Cluster.Name)
	}
	g.Expect(all).To(Equal([]string{"", "dev", "lonely", "prod", "staging"}))
	g.Expect(rows[0]).To(And(HaveField("Link", ManagementPath), HaveField("Mark", Mark{Good, "Ready"})))
	g.Expect(rows[1].Apps).To(Equal(Apps{Ready: 2, Total: 2}), "one of them through the GitopsCluster")
	g.Expect(rows[2]).To(And(HaveField("Mark", Mark{Idle, notConnected}), HaveField("Apps", Apps{})))

	for _, c := range []Cluster{cluster("dev"), alias} {
		page, found := ClusterDetail(f, Everything(), c)
		g.Expect(found).To(BeTrue())
		g.Expect(data[App](page, "apps")).To(HaveLen(2), "%v", c)
		g.Expect(data[ClusterHead](page, "head")[0].Aliases).To(Equal([]string{"fleet/dev-alias"}))
	}
	page, _ := ClusterDetail(f, Everything(), alias)
	g.Expect(page.Frame).To(Equal(ClusterFrame{Cluster: alias, Of: cluster("dev"), OfLink: clusterPath(cluster("dev"))}))
	page, found := ClusterDetail(f, Everything(), lonely)
	g.Expect(found).To(BeTrue())
	g.Expect(data[ClusterHead](page, "head")[0].Mark).To(Equal(Mark{Idle, notConnected}))
	_, found = ClusterDetail(f, Everything(), Cluster{})
	g.Expect(found).To(BeTrue())
	_, found = ClusterDetail(f, Everything(), cluster("nobody"))
	g.Expect(found).To(BeFalse())

	grouped := Clusters(f, Everything(), Query{Group: "label:tier"})
	g.Expect(data[ClusterGroup](grouped, "rows")).To(Equal([]ClusterGroup{{"tier = test", 1}, {"without label tier", 4}}))
	g.Expect(data[ClusterGroup](Clusters(f, Everything(), Query{Group: "label:unknown"}), "rows")).To(BeEmpty(), "it is ignored")
}

// Who may list Clusters and not ClusterConnections sees that they exist, and nothing of their connections.
func TestConnectionsAreTheirOwnRight(t *testing.T) {
	g := NewWithT(t)
	f := facts()
	f.Objects = []Object{{Cluster: cluster("dev")}}
	heard(f, func(h *Observed) {
		h.State, h.Reason, h.Message = capstanv1.ConnectionAuthFailed, "Unauthorized", "secret"
	})
	scope := Scope{Objects: map[string]Namespaces{"Cluster": {Names: []string{"fleet"}}}}
	rows := f.fleet(scope).rows()
	g.Expect(rows).To(HaveLen(1), "neither the management cluster, nor those of which only the connection exists")
	for _, r := range rows {
		g.Expect(r).To(And(HaveField("Mark", Mark{Idle, notVisible}), HaveField("Reason", ""), HaveField("Message", ""), HaveField("Version", ""), HaveField("Expiry", time.Time{})))
	}
	page, found := ClusterDetail(f, scope, cluster("dev"))
	g.Expect(found).To(BeTrue())
	g.Expect(data[ClusterHead](page, "head")[0]).To(And(HaveField("Conditions", BeEmpty()), HaveField("Server", "")))
	_, found = ClusterDetail(f, Scope{}, cluster("dev"))
	g.Expect(found).To(BeFalse())
}
