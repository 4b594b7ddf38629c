package view

import (
	"testing"

	. "github.com/onsi/gomega"
)

// A GitopsCluster stands for the Cluster that it references, if that exists.
func TestActual(t *testing.T) {
	g := NewWithT(t)
	gitops := func(name string) Cluster { return Cluster{Kind: "GitopsCluster", Namespace: "fleet", Name: name} }
	f := &Facts{Objects: []Object{
		{Cluster: cluster("prod")},
		{Cluster: gitops("alias"), Of: cluster("prod")},
		{Cluster: gitops("dangling"), Of: cluster("gone")},
		{Cluster: gitops("own")},
	}}
	for of, want := range map[Cluster]Cluster{
		gitops("alias"):    cluster("prod"),
		gitops("dangling"): gitops("dangling"),
		gitops("own"):      gitops("own"),
		gitops("prod"):     gitops("prod"), // It has the name of a Cluster, and does not exist.
		cluster("prod"):    cluster("prod"),
		cluster("gone"):    cluster("gone"),
		{}:                 {},
	} {
		g.Expect(f.actual(of)).To(Equal(want), of.Kind+" "+of.String())
	}
	_, found := f.object(gitops("alias"))
	g.Expect(found).To(BeTrue())
	_, found = f.object(gitops("nowhere"))
	g.Expect(found).To(BeFalse())
}

// A cluster is visible to those who may list its ClusterConnection, if it has one, or its own object; the right to the other
// kind, or in another namespace, shows nothing.
func TestSeesCluster(t *testing.T) {
	g := NewWithT(t)
	gitops := Cluster{Kind: "GitopsCluster", Namespace: "fleet", Name: "prod"}
	f := facts() // With a connection to the Cluster.
	f.Objects = []Object{{Cluster: cluster("prod")}, {Cluster: gitops}}
	elsewhere := Namespaces{Names: []string{"other"}}
	for name, tc := range map[string]struct {
		scope          Scope
		capi, byGitops bool
	}{
		"nothing":                   {Scope{}, false, false},
		"ClusterConnections":        {Scope{Clusters: fleetOnly}, true, false},
		"Clusters":                  {Scope{Objects: map[string]Namespaces{"Cluster": fleetOnly}}, true, false},
		"GitopsClusters":            {Scope{Objects: map[string]Namespaces{"GitopsCluster": fleetOnly}}, false, true},
		"in another namespace":      {Scope{Clusters: elsewhere, Objects: map[string]Namespaces{"Cluster": elsewhere, "GitopsCluster": elsewhere}}, false, false},
		"everything":                {Everything(), true, true},
		"Pipelines and node groups": {Scope{Pipelines: Namespaces{All: true}, NodeGroups: Namespaces{All: true}}, false, false},
	} {
		of := f.fleet(tc.scope)
		g.Expect(of.sees(cluster("prod"))).To(Equal(tc.capi), name)
		g.Expect(of.sees(gitops)).To(Equal(tc.byGitops), name)
		g.Expect(of.sees(Cluster{})).To(Equal(tc.scope.Clusters.All), name)
	}
	g.Expect(Scope{Clusters: fleetOnly}.SeesObject(cluster("prod"))).To(BeFalse(), "a connection is not the object")
}

// Scopes that differ in one kind have different keys: their viewers see different pages.
func TestScopeKeys(t *testing.T) {
	g := NewWithT(t)
	keys := map[string]bool{Scope{}.Key(): true}
	for _, s := range []Scope{
		{Clusters: fleetOnly}, {Objects: map[string]Namespaces{"Cluster": fleetOnly}}, {Objects: map[string]Namespaces{"GitopsCluster": fleetOnly}}, {Pipelines: fleetOnly}, {Promotions: fleetOnly},
		{Events: fleetOnly}, {Backends: fleetOnly}, {NodeGroups: fleetOnly}, {MachineSets: fleetOnly}, {Instances: fleetOnly}, {ManagedPools: fleetOnly}, {Approve: fleetOnly},
	} {
		keys[s.Key()] = true
	}
	g.Expect(keys).To(HaveLen(13))
}

// Who may list only GitopsClusters sees one that references a Cluster, with its applications.
func TestGitopsClusterOfHiddenCluster(t *testing.T) {
	g := NewWithT(t)
	alias := Cluster{Kind: "GitopsCluster", Namespace: "fleet", Name: "alias"}
	f := facts()
	f.Objects = []Object{{Cluster: cluster("prod")}, {Cluster: alias, Of: cluster("prod")}}
	scope := Scope{Objects: map[string]Namespaces{"GitopsCluster": fleetOnly}, Pipelines: Namespaces{All: true}}
	page := Clusters(f, scope, Query{})
	g.Expect(names(page)).To(Equal([]string{"alias"}))
	g.Expect(cardOf(page, "alias").Apps.Total).To(Equal(2))
	detail, seen := ClusterDetail(f, scope, alias)
	g.Expect(seen).To(BeTrue())
	g.Expect(data[App](detail, "apps")).To(HaveLen(2))
}
