package promotions_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/hub/pipeline"
	"github.com/capstan-hub/capstan/index"
	"github.com/capstan-hub/capstan/watchers"
)

// demanded records what a hub demands, and which references it resolves.
type demanded struct {
	resolved []string
	demands  []watchers.Demand
}

func (d *demanded) Resolve(ref clusters.Ref) (multicluster.ClusterName, error) {
	d.resolved = append(d.resolved, ref.Kind+"/"+ref.Namespace+"/"+ref.Name)
	return ref.ClusterName(), nil
}
func (*demanded) Select(string, string, labels.Selector) ([]clusters.Ref, error) { return nil, nil }
func (*demanded) Labels(clusters.Ref) (labels.Set, error)                        { return nil, nil }
func (*demanded) WaitForObjects(context.Context) error                           { return nil }
func (d *demanded) SetDemand(_ string, demands []watchers.Demand)                { d.demands = demands }

func (*demanded) Confirm(watchers.Demand) {}

func (d *demanded) SetDemands(map[string][]watchers.Demand) {}

// With --no-cross-namespace-refs a Pipeline sees neither the clusters nor, in the management
// cluster, the applications of other namespaces. Its other environments continue.
func TestNoCrossNamespaceRefs(t *testing.T) {
	t.Parallel()
	const other = "another-team"
	cluster := func(kind, namespace string) *pipelinesv1.CrossNamespaceClusterReference {
		return &pipelinesv1.CrossNamespaceClusterReference{Kind: kind, Namespace: namespace, Name: "prod"}
	}
	for name, tc := range map[string]struct {
		// target of prod; NS stands for the Pipeline's namespace.
		target func(ns string) pipelinesv1.Target
		// refused is the message; empty if the target is allowed.
		refused string
	}{
		"management cluster, own namespace": {func(ns string) pipelinesv1.Target { return pipelinesv1.Target{Namespace: ns} }, ""},
		"management cluster, another namespace": {func(string) pipelinesv1.Target { return pipelinesv1.Target{Namespace: other} },
			`environment "prod": invalid target: targets[0] is namespace another-team of the management cluster, where --no-cross-namespace-refs allows only the Pipeline's own namespace NS; set targets[0].namespace to NS, add a clusterRef, or move the Pipeline to another-team`},
		"Cluster, own namespace": {func(ns string) pipelinesv1.Target {
			return pipelinesv1.Target{Namespace: "shop", ClusterRef: cluster("Cluster", ns)}
		}, ""},
		"Cluster, no namespace": {func(string) pipelinesv1.Target {
			return pipelinesv1.Target{Namespace: "shop", ClusterRef: cluster("Cluster", "")}
		}, ""},
		"Cluster, another namespace": {func(string) pipelinesv1.Target {
			return pipelinesv1.Target{Namespace: "shop", ClusterRef: cluster("Cluster", other)}
		}, `environment "prod": invalid target: targets[0] is in Cluster another-team/prod, but --no-cross-namespace-refs allows only clusters of the Pipeline's own namespace NS; move the Pipeline or the cluster`},
		"Secret, own namespace": {func(string) pipelinesv1.Target {
			return pipelinesv1.Target{Namespace: "shop", ClusterRef: cluster("Secret", "")}
		}, ""},
		"Secret, another namespace": {func(string) pipelinesv1.Target {
			return pipelinesv1.Target{Namespace: "shop", ClusterRef: cluster("Secret", other)}
		}, `environment "prod": invalid target: targets[0] is in Secret another-team/prod, but --no-cross-namespace-refs allows only clusters of the Pipeline's own namespace NS; move the Pipeline or the cluster`},
		"ClusterProfile, another namespace": {func(string) pipelinesv1.Target {
			return pipelinesv1.Target{Namespace: "shop", ClusterRef: cluster("ClusterProfile", other)}
		}, `environment "prod": invalid target: targets[0] is in ClusterProfile another-team/prod, but --no-cross-namespace-refs allows only clusters of the Pipeline's own namespace NS; move the Pipeline or the cluster`},
		"GitopsCluster, own namespace": {func(string) pipelinesv1.Target {
			return pipelinesv1.Target{Namespace: "shop", ClusterRef: cluster("GitopsCluster", "")}
		}, ""},
		"GitopsCluster, another namespace": {func(string) pipelinesv1.Target {
			return pipelinesv1.Target{Namespace: "shop", ClusterRef: cluster("GitopsCluster", other)}
		}, `environment "prod": invalid target: targets[0] is in GitopsCluster another-team/prod, but --no-cross-namespace-refs allows only clusters of the Pipeline's own namespace NS; move the Pipeline or the cluster`},
	} {
		for _, flag := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, %t", name, flag), func(t *testing.T) {
				t.Parallel()
				g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
				p := w.newPipeline("web", notify(false), "dev", "staging", "prod")
				p.Spec.Environments[2].Targets[0] = tc.target(w.ns)
				g.Expect(w.c.Create(ctx, p)).To(Succeed())
				asked := &demanded{}
				r := pipeline.New(pipeline.Options{
					Client: w.c, APIReader: w.c, Clusters: asked, Watchers: asked, Index: w.x, NoCrossNamespaceRefs: flag,
					AppKinds: []schema.GroupKind{{Group: "helm.toolkit.fluxcd.io", Kind: "HelmRelease"}},
					Recorder: events.NewFakeRecorder(1000), Clock: w.clock,
				})
				h := &hubUnder{w: w, pipelines: r}
				reconcile := func() { h.settlePipelines(ctx); h.settlePipelines(ctx); h.settlePipelines(ctx) }
				reconcile()
				place := index.Object{Cluster: string(asked.lastCluster()), Kind: helm, Namespace: p.Spec.Environments[2].Targets[0].Namespace, Name: "web"}
				w.runs("dev", "1.1")
				w.runs("staging", "1.0")
				w.x.SetFreshness(place.Cluster, helm, index.Freshness{Fresh: true})
				w.x.Observe(place, index.Observation{Found: true, Ready: true, Revision: "1.0", At: w.clock.Now()})
				reconcile()

				g.Expect(w.into(ctx, "staging")).To(HaveLen(1), "the other environments continue")
				now := w.pipeline(ctx, "web")
				ready := meta.FindStatusCondition(now.Status.Conditions, pipelinesv1.ReadyCondition)
				target := now.Status.Environments["prod"].Targets[0]
				if tc.refused == "" || !flag {
					g.Expect(ready.Reason).To(Equal(pipelinesv1.ReconciliationSucceededReason), ready.Message)
					g.Expect(asked.demands).To(HaveLen(3))
					g.Expect(target.Revision).To(Equal("1.0"))
					return
				}
				message := strings.ReplaceAll(tc.refused, "NS", w.ns)
				g.Expect(ready.Reason).To(Equal(pipelinesv1.InvalidSpecReason))
				g.Expect(ready.Message).To(Equal(message))
				g.Expect(meta.FindStatusCondition(now.Status.Conditions, pipelinesv1.StalledCondition).Message).To(Equal(message))
				g.Expect(target.Error).To(Equal(message))
				g.Expect(target.Revision).To(BeEmpty(), "nothing of another namespace is shown")
				g.Expect(asked.demands).To(HaveLen(2), "nothing of another namespace is watched")
				g.Expect(asked.resolved).NotTo(ContainElement(ContainSubstring("/"+other+"/")), "nor is it looked up")
			})
		}
	}
}

// lastCluster is that of the last demand: prod's, if it is allowed.
func (d *demanded) lastCluster() multicluster.ClusterName {
	if len(d.demands) == 0 {
		return ""
	}
	return d.demands[len(d.demands)-1].Cluster
}
