package view

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// largest is a fleet of 1,000 clusters, 300 Pipelines of 20 environments with two targets each, and 20,000 promotions; every tenth of
// these is a rollback.
func largest() *Facts {
	const clusters, pipelines, stages, promotions = 1000, 300, 20, 20_000
	f := &Facts{Now: now, Leads: true, Observed: map[Cluster]Observed{}, Past: map[Cluster]Past{}}
	ref := func(i int) *pipelinesv1.CrossNamespaceClusterReference {
		return &pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Namespace: fmt.Sprintf("team-%02d", i%30), Name: fmt.Sprintf("cluster-%04d", i)}
	}
	for i := range clusters {
		c := ClusterOf(ref(i), "")
		f.Objects = append(f.Objects, Object{Cluster: c, Labels: map[string]string{"tier": fmt.Sprint(i % 5)}})
		f.Connections = append(f.Connections, capstanv1.ClusterConnection{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "cluster." + c.Name},
			Spec:       capstanv1.ClusterConnectionSpec{ClusterRef: *ref(i)},
			Status:     capstanv1.ClusterConnectionStatus{State: capstanv1.ConnectionReady, Reason: "Connected", KubernetesVersion: "v1.36.3", LastTransitionTime: ago(time.Hour)},
		})
		f.Observed[c] = Observed{State: capstanv1.ConnectionReady, Reason: "Connected", Since: now.Add(-time.Hour), LastContact: now}
		f.Past[c] = Past{}.Observe(Good, SlotOf(now)-PastSlots)
		f.NodeGroups = append(f.NodeGroups, NodeGroup{Kind: "MachineDeployment", Namespace: c.Namespace, Name: c.Name, Cluster: c.Name, Ready: 3, Desired: 3})
		for n := range 5 {
			f.Instances = append(f.Instances, Instances{Kind: "AWSMachine", Namespace: c.Namespace, Name: fmt.Sprint(c.Name, "-", n), Cluster: c.Name, State: "running", Instance: fmt.Sprintf("i-%d-%d", i, n)})
		}
	}
	slices.SortFunc(f.Objects, func(a, b Object) int { return a.Cluster.compare(b.Cluster) })
	for i := range pipelines {
		p := pipelinesv1.Pipeline{
			ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("team-%02d", i%30), Name: fmt.Sprintf("app-%03d", i), UID: types.UID(fmt.Sprint(i))},
			Spec:       pipelinesv1.PipelineSpec{AppRef: pipelinesv1.LocalAppReference{Kind: "HelmRelease", Name: fmt.Sprintf("app-%03d", i)}},
			Status:     pipelinesv1.PipelineStatus{Environments: map[string]*pipelinesv1.EnvironmentStatus{}},
		}
		for e := range stages {
			env := fmt.Sprintf("stage-%02d", e)
			p.Spec.Environments = append(p.Spec.Environments, pipelinesv1.Environment{Name: env, Targets: []pipelinesv1.Target{
				{Namespace: "apps", ClusterRef: ref((3*i + e) % clusters)}, {Namespace: "apps", ClusterRef: ref((7*i + e) % clusters)},
			}})
			seen := pipelinesv1.TargetStatus{Ready: true, Revision: fmt.Sprintf("1.%d.0", i), ObservedTime: ago(time.Hour)}
			p.Status.Environments[env] = &pipelinesv1.EnvironmentStatus{
				Targets: []pipelinesv1.TargetStatus{seen, seen}, Agreed: &pipelinesv1.AgreedRevision{Revision: seen.Revision, Sequence: 1},
				Promotion: &pipelinesv1.PromotionSummary{Name: fmt.Sprintf("%s-%s-1", p.Name, env), Revision: seen.Revision, Phase: string(capstanv1.PhaseSucceeded)},
			}
		}
		f.Pipelines = append(f.Pipelines, p)
	}
	for i := range promotions {
		p := &f.Pipelines[i%pipelines]
		number := int64(i/pipelines/stages + 1)
		env := p.Spec.Environments[i/pipelines%stages].Name
		one := promotion(p, number, env, fmt.Sprintf("1.%d.0", i), capstanv1.PromotionStatus{
			Phase: capstanv1.PhaseSucceeded, StartTime: ago(2 * time.Hour), CarriedOutTime: ago(90 * time.Minute), FinishTime: ago(time.Duration(i) * time.Minute), Attempt: &capstanv1.Attempt{Number: 1},
		})
		one.CreationTimestamp = *ago(time.Duration(i) * time.Minute)
		if i%10 == 0 {
			one.Spec.RollbackOf = &capstanv1.RollbackReference{Name: "former", Number: 1}
		}
		f.Promotions = append(f.Promotions, one)
	}
	return f
}

// The time to build each page of the largest fleet, without rendering it.
func BenchmarkPages(b *testing.B) {
	f, all := largest(), Everything()
	all.Nameless, all.Approve, all.Patch, all.Override, all.Request = false, Namespaces{All: true}, Namespaces{All: true}, Namespaces{All: true}, Namespaces{All: true}
	for name, page := range map[string]func(){
		"overview":      func() { Overview(f, all, Query{}) },
		"clusters":      func() { Clusters(f, all, Query{}) },
		"cluster":       func() { ClusterDetail(f, all, f.Objects[0].Cluster) },
		"pipelines":     func() { Pipelines(f, all, Query{}) },
		"pipeline":      func() { Pipeline(f, all, "team-00", "app-000") },
		"promotions":    func() { Promotions(f, all, Query{}) },
		"rollbacks":     func() { Promotions(f, all, Query{Search: "rollback"}) },
		"causes":        func() { Promotions(f, all, Query{Group: groupCause}) },
		"delivery":      func() { DeliveryPage(f, all, Query{}) },
		"namespaces":    func() { DeliveryPage(f, all, Query{Tab: tabNamespaces}) },
		"instances":     func() { InstanceEvents(f, all, Query{}) },
		"backends":      func() { Backends(f, all, Query{}) },
		"search":        func() { Search(f, all, Query{Search: "app"}) },
		"search-phrase": func() { Search(f, all, Query{Search: "stage-03 succeeded"}) },
		"promote":       func() { ActionPage(f, all, "pipelines", []string{"team-00", "app-000", "promote", "stage-05"}) },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				page()
			}
		})
	}
}
