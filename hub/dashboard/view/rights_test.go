package view

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// foreign is in the name of each object of another tenant.
const foreign = "zebra"

// tenant adds objects of each kind, all of a namespace, with a name.
func tenant(f *Facts, name string) {
	c := Cluster{Kind: "Cluster", Namespace: name, Name: name + "-dev"}
	f.Connections = append(f.Connections, capstanv1.ClusterConnection{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "cluster." + c.Name},
		Spec:       capstanv1.ClusterConnectionSpec{ClusterRef: pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Namespace: name, Name: c.Name}},
		Status:     capstanv1.ClusterConnectionStatus{State: capstanv1.ConnectionUnreachable, Reason: "ProbesFailed", Message: name + " does not answer", LastTransitionTime: ago(time.Hour), Server: "https://" + name},
	})
	f.Observed[c] = Observed{State: capstanv1.ConnectionUnreachable, Reason: "ProbesFailed", Message: name + " does not answer", Since: now.Add(-time.Hour), Version: "v1." + name}
	f.Past[c] = Past{}.Observe(Bad, SlotOf(now))
	f.Objects = append(f.Objects, Object{Cluster: c, Labels: map[string]string{"tenant-" + name: name}}, Object{Cluster: Cluster{Kind: "GitopsCluster", Namespace: name, Name: name + "-alias"}, Of: c})

	p := pipeline(name, name+"-shop")
	for i := range p.Spec.Environments {
		env := &p.Spec.Environments[i]
		status := p.Status.Environments[env.Name]
		delete(p.Status.Environments, env.Name)
		env.Name = name + "-" + env.Name
		env.Targets[0].ClusterRef = &pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Name: c.Name}
		p.Status.Environments[env.Name] = status
	}
	prod := p.Spec.Environments[2].Name
	p.Status.Environments[prod].Promotion = &pipelinesv1.PromotionSummary{Name: p.Name + "-" + prod + "-1", Phase: "AwaitingApproval", Revision: "2." + name}
	f.Promotions = append(f.Promotions,
		promotion(&p, 1, prod, "2."+name, capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingApproval, StartTime: ago(time.Hour)}),
		promotion(&p, 2, prod, "1."+name, capstanv1.PromotionStatus{Phase: capstanv1.PhaseFailed, Reason: "Failed" + name, StartTime: ago(time.Hour), FinishTime: ago(time.Minute), Attempt: &capstanv1.Attempt{Number: 1}}),
		promotion(&p, 3, prod, "0."+name, capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded, StartTime: ago(time.Hour), FinishTime: ago(time.Minute), Attempt: &capstanv1.Attempt{Number: 1}}))
	f.Pipelines = append(f.Pipelines, p)
	f.NodeGroups = append(f.NodeGroups, NodeGroup{Kind: "MachineDeployment", Namespace: name, Name: name + "-workers", Cluster: c.Name, Desired: 3},
		NodeGroup{Kind: kindMachineSet, Namespace: name, Name: name + "-set", Cluster: c.Name, Desired: 1})
	f.Instances = append(f.Instances, Instances{Kind: "AWSMachine", Namespace: name, Name: name + "-m", Cluster: c.Name, State: "launch-failed", Instance: "i-" + name})
	f.Backends = append(f.Backends, eventingv1.EventingBackend{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name + "-bus"}, Spec: eventingv1.EventingBackendSpec{Type: "nats"},
		Status: eventingv1.EventingBackendStatus{EventingReady: ptr.To(false), Delivery: &eventingv1.Delivery{Waiting: 7}},
	})
	f.BackendPast[BackendKey{name, name + "-bus"}] = BackendPast{}.Observe(eventingv1.Delivery{Waiting: 7}, now)
	f.Events = append(f.Events, &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name + "-e"}, Action: actionInstances, Reason: "ScalingActivityFailed", Type: "Warning", Note: name + " has no capacity",
		EventTime: metav1.NewMicroTime(now.Add(-time.Minute)), Regarding: corev1.ObjectReference{Kind: "AWSMachine", Namespace: name, Name: name + "-m"},
	})
}

func tenants(names ...string) *Facts {
	f := &Facts{Leads: true, Now: now, PastSince: now, Observed: map[Cluster]Observed{}, Past: map[Cluster]Past{}, BackendPast: map[BackendKey]BackendPast{}}
	for _, name := range names {
		tenant(f, name)
	}
	slices.SortFunc(f.Objects, func(a, b Object) int { return a.Cluster.compare(b.Cluster) })
	return f
}

// In a namespace, a user may list all kinds, none, or one of them.
func scopesOf(namespace string) map[string]Scope {
	in := Namespaces{Names: []string{namespace}}
	all := Scope{
		Clusters: in, Objects: map[string]Namespaces{"Cluster": in, "GitopsCluster": in}, Pipelines: in, Promotions: in, Events: in, Backends: in, NodeGroups: in, MachineSets: in, Instances: in, ManagedPools: in,
		Approve: in, Patch: in, Override: in, Suspend: in, Request: in,
	}
	return map[string]Scope{
		"everything of a namespace": all, "nothing": {}, "connections": {Clusters: in}, "Clusters": {Objects: map[string]Namespaces{"Cluster": in}}, "GitopsClusters": {Objects: map[string]Namespaces{"GitopsCluster": in}},
		"Pipelines": {Pipelines: in}, "promotions": {Promotions: in}, "Events": {Events: in}, "backends": {Backends: in}, "node groups": {NodeGroups: in},
		"MachineSets": {MachineSets: in}, "machines": {Instances: in}, "Pipelines and clusters": {Pipelines: in, Clusters: in},
	}
}

// pagesOf are all pages, with groups, tabs and searches.
func pagesOf(f *Facts, scope Scope) map[string]Page {
	all := map[string]Page{
		"overview": Overview(f, scope, Query{}), "overview by state": Overview(f, scope, Query{Group: groupState}), "overview by label": Overview(f, scope, Query{Group: "label:tenant-" + foreign}),
		"clusters": Clusters(f, scope, Query{}), "clusters by namespace": Clusters(f, scope, Query{Group: groupNamespace}), "clusters by label": Clusters(f, scope, Query{Group: "label:tenant-" + foreign}),
		"clusters that need attention": Clusters(f, scope, Query{Tab: tabUnwell}),
		"pipelines":                    Pipelines(f, scope, Query{}), "promotions": Promotions(f, scope, Query{}), "promotions by cause": Promotions(f, scope, Query{Group: groupCause}),
		"failed promotions": Promotions(f, scope, Query{Tab: tabFailed}), "instances": InstanceEvents(f, scope, Query{}), "machines": InstanceEvents(f, scope, Query{State: "launch-failed"}),
		"backends": Backends(f, scope, Query{}), "about": AboutPage(f, scope, "v1", nil), "delivery": DeliveryPage(f, scope, Query{}),
		"delivery of namespaces": DeliveryPage(f, scope, Query{Tab: tabNamespaces}),
	}
	for _, text := range []string{"shop", "dev", "i-", "bus", "e"} {
		all["search for "+text] = Search(f, scope, Query{Search: text})
	}
	return all
}

// A viewer sees the same as if the objects that the viewer may not list did not exist: in lists, counts, groups, filters, pictures,
// figures and searches.
func TestPagesAreThoseOfTheVisibleObjects(t *testing.T) {
	both, own := tenants("apps", foreign), tenants("apps")
	for name, scope := range scopesOf("apps") {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			alone := pagesOf(own, scope)
			for title, page := range pagesOf(both, scope) {
				said, err := json.Marshal(page)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(string(said)).NotTo(ContainSubstring(foreign+"-"), title)
				g.Expect(page.Blocks).To(Equal(alone[title].Blocks), title)
				g.Expect(reflect.DeepEqual(page.Frame, alone[title].Frame)).To(BeTrue(), "%s: %+v, not %+v", title, page.Frame, alone[title].Frame)
			}
			for _, c := range []Cluster{{Kind: "Cluster", Namespace: foreign, Name: foreign + "-dev"}, {Kind: "GitopsCluster", Namespace: foreign, Name: foreign + "-alias"}} {
				_, found := ClusterDetail(both, scope, c)
				g.Expect(found).To(BeFalse())
			}
			_, found := Pipeline(both, scope, foreign, foreign+"-shop")
			g.Expect(found).To(BeFalse())
			ownPage, found := ClusterDetail(both, scope, Cluster{Kind: "Cluster", Namespace: "apps", Name: "apps-dev"})
			ownAlone, foundAlone := ClusterDetail(own, scope, Cluster{Kind: "Cluster", Namespace: "apps", Name: "apps-dev"})
			g.Expect(found).To(Equal(foundAlone))
			g.Expect(ownPage).To(Equal(ownAlone))
			pipelinePage, found := Pipeline(both, scope, "apps", "apps-shop")
			pipelineAlone, foundAlone := Pipeline(own, scope, "apps", "apps-shop")
			g.Expect(found).To(Equal(foundAlone))
			g.Expect(pipelinePage).To(Equal(pipelineAlone))
		})
	}
}

// Who may list nothing reads that, and nowhere that all is well.
func TestNothingIsVisible(t *testing.T) {
	g := NewWithT(t)
	f := tenants("apps")
	verdict := data[Verdict](Overview(f, Scope{}, Query{}), "verdict")[0]
	g.Expect(verdict.Mark).To(Equal(Mark{Idle, notVisible}))
	for title, page := range pagesOf(f, Scope{}) {
		said, err := json.Marshal(page)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(said)).NotTo(Or(ContainSubstring("Nothing waits for you"), ContainSubstring("well"), ContainSubstring("apps")), title)
	}
}
