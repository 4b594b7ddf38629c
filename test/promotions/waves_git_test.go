package promotions_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/strategy/pullrequest/failures"
)

// clusterManifest is the manifest of prod with a marker that names a cluster; without one if the name is empty.
func (w *world) clusterManifest(cluster, version string) string {
	marker := fmt.Sprintf(`{"$promotion": "%s:web:prod", "cluster": "%s"}`, w.ns, cluster)
	if cluster == "" {
		marker = fmt.Sprintf(`{"$promotion": "%s:web:prod"}`, w.ns)
	}
	return "kind: HelmRelease\nspec:\n  version: \"" + version + "\" # " + marker + "\n"
}

// G41 and waves with a real Gitea. One manifest for all clusters: the first wave fails with WaveNotSeparable, which names a
// cluster, and nothing is pushed. When each cluster has a manifest of its own, each wave has a pull request that changes those of its
// clusters. A cluster is named with its namespace or without, and a marker without a cluster belongs to the last wave.
func TestG41WavesOnGitea(t *testing.T) {
	t.Parallel()
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	server, robot := startedGitea(t)
	hosted := newOnGitea(t, w, server, robot, "prod")
	p := w.newPipeline("web", w.pull(nil), "dev", "prod")
	p.Spec.Environments[1].Targets, p.Spec.Environments[1].Waves = prodTargets(), rings()
	for name, set := range threeRings() {
		w.label(name, set)
	}
	g.Expect(w.c.Create(ctx, p)).To(Succeed())
	h := w.hub("hub", w.c, nil)
	h.settle(ctx)
	w.runs("dev", "1.0")
	for name := range threeRings() {
		w.runs(name, "1.0")
	}
	h.settle(ctx)
	w.runs("dev", "1.1")
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod/canary", capstanv1.PhaseFailed)
	failed := w.newest(ctx, "prod/canary")
	g.Expect(failed.Status.Reason).To(Equal(failures.ReasonWaveNotSeparable))
	g.Expect(failed.Status.Message).To(And(ContainSubstring("no YAML file on branch main of"), ContainSubstring("has a marker for "+w.ns+"/eu-0"),
		ContainSubstring(`# {"$promotion": "`+w.ns+`:web:prod", "cluster": "eu-0"}`)))
	g.Expect(hosted.PullRequests()).To(BeEmpty())
	g.Expect(w.into(ctx, "prod/early")).To(BeEmpty())

	of := map[string]string{"eu-0": "eu-0", "eu-1": w.ns + "/eu-1", "eu-2": "eu-2", "rest": ""}
	path := func(name string) string { return "clusters/" + name + "/web.yaml" }
	for name, cluster := range of {
		_, err := hosted.repository.Commit(ctx, "main", path(name), "a manifest for "+name, func(string) string { return w.clusterManifest(cluster, "1.0") })
		g.Expect(err).NotTo(HaveOccurred())
	}
	_, err := hosted.repository.Commit(ctx, "main", manifestOf("prod"), "no manifest for all", func(string) string { return "kind: Nothing\n" })
	g.Expect(err).NotTo(HaveOccurred())
	h.live(ctx, 2*time.Hour, 10*time.Minute) // It is tried again.
	w.expectPhase(ctx, g, "prod/canary", capstanv1.PhaseAwaitingMerge)
	for n, wave := range []struct {
		name           string
		changed, other []string
		clusters       []string
	}{
		{"canary", []string{"eu-0"}, []string{"eu-1", "eu-2", "rest"}, []string{"eu-0"}},
		{"early", []string{"eu-0", "eu-1", "eu-2"}, []string{"rest"}, []string{"eu-1", "eu-2"}},
		{"rest", []string{"eu-0", "eu-1", "eu-2", "rest"}, nil, []string{"eu-3", "eu-4"}},
	} {
		w.expectPhase(ctx, g, "prod/"+wave.name, capstanv1.PhaseAwaitingMerge)
		all := hosted.PullRequests()
		g.Expect(all).To(HaveLen(n+1), "one for each wave")
		for _, pr := range all {
			if strings.Contains(pr.Title, "prod/"+wave.name) {
				g.Expect(pr.Title).To(Equal(fmt.Sprintf("Promote %s/web in prod/%s to 1.1", w.ns, wave.name)))
				hosted.merge(pr.Number)
			}
		}
		for _, name := range wave.changed {
			g.Expect(hosted.read(path(name))).To(Equal(w.clusterManifest(of[name], "1.1")), name)
		}
		for _, name := range wave.other {
			g.Expect(hosted.read(path(name))).To(Equal(w.clusterManifest(of[name], "1.0")), name)
		}
		h.rest(ctx)
		w.expectPhase(ctx, g, "prod/"+wave.name, capstanv1.PhaseAwaitingRollout)
		for _, name := range wave.clusters {
			w.runs(name, "1.1")
		}
		h.rest(ctx)
		w.expectPhase(ctx, g, "prod/"+wave.name, capstanv1.PhaseSucceeded)
	}
}

// All kinds of services: two clusters of different waves at one value are an error, and so is a cluster without a marker. A
// correction is found.
func TestMarkersOfWaves(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		manifest func(w *world) string
		reason   string
		says     string
	}{
		"two waves at one value": {func(w *world) string {
			return fmt.Sprintf("kind: HelmRelease\nspec:\n  # {\"$promotion\": \"%s:web:prod\", \"cluster\": \"eu-1\"}\n  version: \"1.0\" # {\"$promotion\": \"%s:web:prod\", \"cluster\": \"eu-0\"}\n", w.ns, w.ns)
		}, failures.ReasonTwoMarkers, `:web:prod" with the cluster "eu-1", but can belong to one environment, and to one of its waves, only`},
		"another cluster":          {func(w *world) string { return w.clusterManifest("eu-00", "1.0") }, failures.ReasonWaveNotSeparable, "/eu-0. Give each cluster"},
		"a cluster elsewhere":      {func(w *world) string { return w.clusterManifest("other/eu-0", "1.0") }, failures.ReasonWaveNotSeparable, "/eu-0. Give each cluster"},
		"no cluster and two waves": {func(w *world) string { return w.clusterManifest("", "1.0") }, failures.ReasonWaveNotSeparable, "/eu-0. Give each cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
			newForge(t, w, pipelinesv1.GitHub)
			w.forge.Commit("main", "manifests", map[string]string{"clusters/web.yaml": tc.manifest(w)})
			p := w.newPipeline("web", w.pull(nil), "dev", "prod")
			p.Spec.Environments[1].Targets, p.Spec.Environments[1].Waves = prodTargets(), rings()
			w.label("eu-0", ring(0))
			w.label("eu-1", ring(1))
			g.Expect(w.c.Create(ctx, p)).To(Succeed())
			h := w.hub("hub", w.c, nil)
			h.settle(ctx)
			for _, one := range []string{"dev", "eu-0", "eu-1"} {
				w.runs(one, "1.0")
			}
			h.settle(ctx)
			w.runs("dev", "1.1")
			h.settle(ctx)
			w.expectPhase(ctx, g, "prod/canary", capstanv1.PhaseFailed)
			failed := w.newest(ctx, "prod/canary")
			g.Expect(failed.Status.Reason).To(Equal(tc.reason), failed.Status.Message)
			g.Expect(failed.Status.Message).To(ContainSubstring(tc.says))
			g.Expect(w.hosted.PullRequests()).To(BeEmpty())
			g.Expect(w.forge.File("main", "clusters/web.yaml")).To(Equal(tc.manifest(w)))

			w.forge.Commit("main", "manifests", map[string]string{"clusters/web.yaml": w.clusterManifest("eu-0", "1.0")})
			h.live(ctx, 2*time.Hour, 10*time.Minute)
			w.expectPhase(ctx, g, "prod/canary", capstanv1.PhaseAwaitingMerge)
		})
	}
}

// A promotion failed because a cluster of its wave has no marker. When that cluster, or another one, is in another wave or is
// gone, the promotion is made again for those that are left, and nothing is pushed for the others.
func TestTheClustersOfAFailedPromotionChange(t *testing.T) {
	t.Parallel()
	mark := func(w *world) {
		w.forge.Commit("main", "markers", map[string]string{"clusters/eu-0.yaml": w.clusterManifest("eu-0", "1.0")})
	}
	for name, tc := range map[string]struct {
		change func(w *world)
		left   string
		merged bool
	}{
		"the one without a marker is gone":         {func(w *world) { w.label("eu-0", nil) }, "eu-2", true},
		"the one without a marker moved":           {func(w *world) { w.label("eu-0", ring(1)) }, "eu-2", true},
		"another one moved":                        {func(w *world) { w.label("eu-2", ofProd) }, "eu-0", false},
		"another one moved, and the marker is set": {func(w *world) { w.label("eu-2", ofProd); mark(w) }, "eu-0", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
			newForge(t, w, pipelinesv1.GitHub)
			p := w.newPipeline("web", w.pull(nil), "dev", "prod")
			p.Spec.Promotion.Strategy.PullRequest.AutoMerge = true
			p.Spec.Environments[1].Targets, p.Spec.Environments[1].Waves = prodTargets(), rings()
			w.label("eu-0", ring(0))
			w.label("eu-2", ring(0))
			w.label("eu-1", ring(1))
			w.forge.Commit("main", "manifests", map[string]string{"clusters/eu-1.yaml": w.clusterManifest("eu-1", "1.0"), "clusters/eu-2.yaml": w.clusterManifest("eu-2", "1.0")})
			g.Expect(w.c.Create(ctx, p)).To(Succeed())
			h := w.hub("hub", w.c, nil)
			h.settle(ctx)
			for _, one := range []string{"dev", "eu-0", "eu-1", "eu-2"} {
				w.runs(one, "1.0")
			}
			h.settle(ctx)
			w.runs("dev", "1.1")
			h.settle(ctx)
			w.expectPhase(ctx, g, "prod/canary", capstanv1.PhaseFailed)
			g.Expect(w.newest(ctx, "prod/canary").Status.Reason).To(Equal(failures.ReasonWaveNotSeparable))

			tc.change(w)
			h.settle(ctx)
			h.live(ctx, 3*time.Hour, 10*time.Minute)
			g.Expect(w.into(ctx, "prod/canary")).To(HaveLen(2))
			g.Expect(w.newest(ctx, "prod/canary").Spec.Wave.Clusters).To(Equal([]string{w.ns + "/" + tc.left}))
			phase, at := capstanv1.PhaseFailed, "1.0"
			if tc.merged {
				phase = capstanv1.PhaseAwaitingRollout
			}
			w.expectPhase(ctx, g, "prod/canary", phase)
			if tc.left == "eu-2" {
				at = "1.1"
			}
			g.Expect(w.forge.File("main", "clusters/eu-2.yaml")).To(Equal(w.clusterManifest("eu-2", at)))
			g.Expect(w.forge.File("main", "clusters/eu-1.yaml")).To(Equal(w.clusterManifest("eu-1", "1.0")))
		})
	}
}
