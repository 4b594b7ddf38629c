package promotions_test

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/hub/pipeline"
	"github.com/capstan-hub/capstan/index"
	"github.com/capstan-hub/capstan/strategy/pullrequest/failures"
)

// one is a target that names a cluster.
func one(name string) pipelinesv1.Target {
	return pipelinesv1.Target{Namespace: "shop", ClusterRef: &pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Name: name}}
}

// behindProd adds an environment behind prod.
func behindProd(name string) func(*pipelinesv1.Pipeline) {
	return func(p *pipelinesv1.Pipeline) {
		p.Spec.Environments = append(p.Spec.Environments, pipelinesv1.Environment{Name: name, Targets: []pipelinesv1.Target{one("last")}})
	}
}

// stalledWith matches a Pipeline whose spec is invalid, with a part of the message.
func stalledWith(text string) OmegaMatcher {
	return HaveField("Status.Conditions", ContainElement(And(HaveField("Type", pipelinesv1.StalledCondition), HaveField("Message", ContainSubstring(text)))))
}

// A name is that of one environment, wave or batch only, also if the wave has no clusters: nothing is promoted until it is corrected.
func TestEachNameOnce(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		waves []pipelinesv1.Wave
		last  string
		want  string
	}{
		"two environments":         {rings(), "prod", `spec.environments[2]: the name "prod" is used twice`},
		"a wave":                   {rings(), "prod/early", `spec.environments[2]: the name "prod/early" is used twice`},
		"a wave without clusters":  {rings(), "prod/canary", `spec.environments[2]: the name "prod/canary" is used twice`},
		"a batch without clusters": {[]pipelinesv1.Wave{{Name: "rest", Batches: 20}}, "prod/rest-20", `spec.environments[2]: the name "prod/rest-20" is used twice`},
		"a wave and a batch":       {[]pipelinesv1.Wave{inRing("rest-2", 0), {Name: "rest", Batches: 2}}, "last", `spec.environments[1].waves[1]: the name "prod/rest-2" is used twice`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, ctx, w, h := wavesOf(t, tc.waves, map[string]labels.Set{"eu-1": ring(1), "eu-3": ring(2)}, behindProd(tc.last))
			w.runs("last", "1.0")
			h.settle(ctx)
			for _, c := range []string{"eu-1", "eu-3"} {
				w.runs(c, "1.1")
				h.settle(ctx)
			}
			h.live(ctx, 10*time.Minute, time.Minute)
			g.Expect(w.promotions(ctx)).To(BeEmpty())
			g.Expect(w.pipeline(ctx, "web")).To(stalledWith(tc.want))
		})
	}
}

// A wave is added that has no clusters, and whose name another environment has: the status of that environment is not shown for the
// wave.
func TestAWaveIsNamedAsAnEnvironment(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := wavesOf(t, nil, map[string]labels.Set{"eu-1": ring(1)}, behindProd("prod/canary"))
	w.runs("last", "1.0")
	h.settle(ctx)
	p := w.pipeline(ctx, "web")
	p.Spec.Environments[1].Waves = rings()
	g.Expect(w.c.Update(ctx, p)).To(Succeed())
	h.settle(ctx)
	shown := w.pipeline(ctx, "web").Shown().Spec.Environments
	g.Expect(shown).To(HaveLen(3))
	g.Expect(shown[2]).To(And(HaveField("Name", "prod/canary"), HaveField("Stage", BeNil())))
}

// The limit of targets is that of the environment. All of its stages are stopped, and it is reported once.
func TestTooManyTargetsInWaves(t *testing.T) {
	t.Parallel()
	all := map[string]labels.Set{"eu-0": ring(0), "eu-1": ring(1)}
	for i := range pipelinesv1.MaxTargets {
		all[fmt.Sprintf("many-%d", i)] = ring(2)
	}
	g, ctx, w, h := wavesOf(t, []pipelinesv1.Wave{inRing("many", 2), inRing("canary", 0), {Name: "rest"}}, all)
	for c := range all {
		if c != "eu-1" {
			w.runs(c, "1.1")
		}
	}
	h.settle(ctx)
	g.Expect(w.promotions(ctx)).To(BeEmpty(), "canary runs another revision than rest")
	g.Expect(w.pipeline(ctx, "web")).To(stalledWith(`environment "prod" has 502 targets, and may have 500: select fewer clusters, or divide them among several Pipelines`))
}

// A target that is listed twice is one of a fleet.
func TestATargetThatIsListedTwice(t *testing.T) {
	t.Parallel()
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	p := w.newPipeline("web", notify(false), "dev", "prod")
	p.Spec.Environments[1].Targets = []pipelinesv1.Target{one("a"), one("a"), one("b")}
	p.Spec.Environments[1].Quorum = &pipelinesv1.Quorum{Ready: "51%"}
	g.Expect(w.c.Create(ctx, p)).To(Succeed())
	h := w.hub("hub", w.c, nil)
	h.settle(ctx)
	w.runs("dev", "1.0")
	w.runs("a", "1.0")
	w.runs("b", "0.9")
	h.settle(ctx)
	g.Expect(w.counts(ctx).Targets).To(Equal(int32(2)))
	g.Expect(w.pipeline(ctx, "web").Status.Environments["prod"].Agreed).To(BeNil(), "one of two clusters is no majority")
}

// A target that is invalid has its index of the spec, also behind a selector and in waves.
func TestThePathOfAnInvalidTarget(t *testing.T) {
	t.Parallel()
	for _, waves := range [][]pipelinesv1.Wave{nil, rings()} {
		g, ctx, w, _ := wavesOf(t, waves, threeRings(), func(p *pipelinesv1.Pipeline) {
			invalid := one("one")
			invalid.Namespace = ""
			p.Spec.Environments[1].Targets = append(p.Spec.Environments[1].Targets, invalid)
		})
		want := `environment "prod": invalid target: targets[1].namespace is empty: set the application's namespace`
		found := w.pipeline(ctx, "web")
		g.Expect(found).To(stalledWith(want))
		g.Expect(found.Status.Conditions).To(ContainElement(And(HaveField("Type", pipelinesv1.ReadyCondition), HaveField("Message", want))))
		g.Expect(w.promotions(ctx)).To(BeEmpty())
	}
}

// curious notes whose labels are read.
type curious struct {
	anywhere
	read []clusters.Ref
}

func (c *curious) Labels(ref clusters.Ref) (labels.Set, error) {
	c.read = append(c.read, ref)
	return c.anywhere.Labels(ref)
}

// With --no-cross-namespace-refs the wave of a target does not depend on the labels of a cluster of another namespace.
func TestTheWaveOfAForeignCluster(t *testing.T) {
	t.Parallel()
	const other = "another-team"
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	p := w.newPipeline("web", notify(false), "dev", "prod")
	p.Spec.Environments[1].Targets[0] = one("secret")
	p.Spec.Environments[1].Targets[0].ClusterRef.Namespace = other
	p.Spec.Environments[1].Waves = rings()
	g.Expect(w.c.Create(ctx, p)).To(Succeed())
	of := &curious{}
	of.labels = map[clusters.Ref]labels.Set{{Kind: "Cluster", Namespace: other, Name: "secret"}: ring(0)}
	h := &hubUnder{w: w, pipelines: pipeline.New(pipeline.Options{
		Client: w.c, APIReader: w.c, Clusters: of, Watchers: of, Index: w.x, NoCrossNamespaceRefs: true,
		AppKinds: []schema.GroupKind{{Group: helm.Group, Kind: helm.Kind}},
		Recorder: events.NewFakeRecorder(1000), Clock: w.clock,
	})}
	h.settlePipelines(ctx)
	w.runs("dev", "1.1")
	h.settlePipelines(ctx)
	g.Expect(w.pipeline(ctx, "web").Status.Environments).To(And(HaveKey("prod/rest"), Not(HaveKey("prod/canary"))))
	g.Expect(of.read).To(BeEmpty())
}

// Markers with the name of two clusters in different waves belong to none of them. Both are separable when the markers have the
// namespaces.
func TestOneNameInTwoWaves(t *testing.T) {
	t.Parallel()
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	newForge(t, w, pipelinesv1.GitHub)
	w.forge.Commit("main", "manifests", map[string]string{"clusters/web.yaml": w.clusterManifest("eu-0", "1.0")})
	p := w.newPipeline("web", w.pull(nil), "dev", "prod")
	p.Spec.Environments[1].Targets, p.Spec.Environments[1].Waves = prodTargets(), rings()
	p.Spec.Environments[1].Targets[0].Clusters.Namespace = pipelinesv1.AllNamespaces
	w.label("eu-0", ring(0))
	w.label("eu-1", ring(1))
	w.clusters.labels[clusters.Ref{Kind: "Cluster", Namespace: "elsewhere", Name: "eu-0"}] = ring(1)
	g.Expect(w.c.Create(ctx, p)).To(Succeed())
	h := w.hub("hub", w.c, nil)
	h.settle(ctx)
	for _, c := range []string{"dev", "eu-0", "eu-1"} {
		w.runs(c, "1.0")
	}
	elsewhere := index.Object{Cluster: "Cluster/elsewhere/eu-0", Kind: helm, Namespace: "shop", Name: "web"}
	w.x.SetFreshness(elsewhere.Cluster, helm, index.Freshness{Fresh: true})
	w.x.Observe(elsewhere, index.Observation{Found: true, Ready: true, Revision: "1.0", At: w.clock.Now()})
	h.settle(ctx)
	w.runs("dev", "1.1")
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod/canary", capstanv1.PhaseFailed)
	failed := w.newest(ctx, "prod/canary")
	g.Expect(failed.Spec.Wave.Ambiguous).To(Equal([]string{"eu-0"}))
	g.Expect(failed.Status.Reason).To(Equal(failures.ReasonWaveNotSeparable))
	g.Expect(failed.Status.Message).To(ContainSubstring(fmt.Sprintf(`has the cluster eu-0, and another wave has a cluster with this name, too. Write namespace/name in the marker: # {"$promotion": "%s:web:prod", "cluster": "%s/eu-0"}`, w.ns, w.ns)))
	g.Expect(w.hosted.PullRequests()).To(BeEmpty())

	w.forge.Commit("main", "no manifest of the first one", map[string]string{"clusters/web.yaml": w.clusterManifest("elsewhere/eu-0", "1.0")})
	h.live(ctx, 2*time.Hour, 10*time.Minute)
	w.expectPhase(ctx, g, "prod/canary", capstanv1.PhaseFailed)
	g.Expect(w.newest(ctx, "prod/canary").Status.Message).To(ContainSubstring(fmt.Sprintf(`"cluster": "%s/eu-0"}`, w.ns)))

	w.forge.Commit("main", "manifests", map[string]string{"clusters/one.yaml": w.clusterManifest(w.ns+"/eu-0", "1.0")})
	h.live(ctx, 2*time.Hour, 10*time.Minute)
	w.expectPhase(ctx, g, "prod/canary", capstanv1.PhaseAwaitingMerge)
}
