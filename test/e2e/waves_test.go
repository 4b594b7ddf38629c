package e2e

import (
	"strings"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/playground/git"
)

// web is an application of dev, and of the fleet live: the clusters staging, which is its canary, and prod.
const web, live = "web", "live"

// fleetManifest returns the manifest of web in a cluster of live.
func fleetManifest(cluster, revision string) string {
	plain := manifest(dev, web, revision)
	if cluster == dev {
		return plain
	}
	return strings.Replace(plain, "tag: "+revision, "tag: "+revision+` # {"$promotion": "`+appsNamespace+":"+web+":"+live+`", "cluster": "`+cluster+`"}`, 1)
}

// revisionGoesInWaves: the clusters of an environment are selected by a label, and get a revision in two waves, each by a pull
// request that changes the manifest of its own cluster. The hub is killed in between.
func (w *world) revisionGoesInWaves() {
	const revision = "1.1.0"
	for cluster, set := range map[string]map[string]string{staging: {"tier": live, "ring": "0"}, prod: {"tier": live}} {
		c := &clusterv1.Cluster{}
		w.g.Expect(w.admin.Get(w.Context(), client.ObjectKey{Namespace: fleetNamespace, Name: cluster}, c)).To(Succeed())
		c.Labels = set
		w.g.Expect(w.admin.Update(w.Context(), c)).To(Succeed())
	}
	for _, cluster := range environments {
		_, err := w.repository.Commit(w.Context(), git.Main, manifestPath(cluster, web), "Add web to "+cluster, func(string) string { return fleetManifest(cluster, firstRevision) })
		w.g.Expect(err).NotTo(HaveOccurred())
	}
	shopPipeline := &pipelinesv1.Pipeline{}
	w.g.Expect(w.admin.Get(w.Context(), client.ObjectKey{Namespace: appsNamespace, Name: shop}, shopPipeline)).To(Succeed())
	selected := func(set map[string]string) metav1.LabelSelector { return metav1.LabelSelector{MatchLabels: set} }
	ring := selected(map[string]string{"ring": "0"})
	w.g.Expect(w.admin.Create(w.Context(), &pipelinesv1.Pipeline{
		ObjectMeta: metav1.ObjectMeta{Namespace: appsNamespace, Name: web},
		Spec: pipelinesv1.PipelineSpec{
			AppRef:    pipelinesv1.LocalAppReference{APIVersion: helmv2.GroupVersion.String(), Kind: helmv2.HelmReleaseKind, Name: web},
			Promotion: shopPipeline.Spec.Promotion,
			Environments: []pipelinesv1.Environment{
				{Name: dev, Targets: []pipelinesv1.Target{{Namespace: web, ClusterRef: &pipelinesv1.CrossNamespaceClusterReference{
					Kind: pipelinesv1.ClusterKindCluster, Namespace: fleetNamespace, Name: dev,
				}}}},
				{
					Name:    live,
					Targets: []pipelinesv1.Target{{Namespace: web, Clusters: &pipelinesv1.ClusterSelector{Namespace: fleetNamespace, Selector: selected(map[string]string{"tier": live})}}},
					Waves:   []pipelinesv1.Wave{{Name: "canary", Selector: &ring, Soak: &pipelinesv1.Soak{For: "3s"}}, {Name: "rest"}},
				},
			},
		},
	})).To(Succeed())
	canary, rest := pipelinesv1.StageName(live, "canary"), pipelinesv1.StageName(live, "rest")
	w.startHub(direct...)
	w.hubReady()
	for _, env := range []string{dev, canary, rest} {
		w.g.Eventually(func() error { return w.agreed(web, env, firstRevision) }).Should(Succeed())
	}

	_, err := w.repository.Commit(w.Context(), git.Main, manifestPath(dev, web), "Release web "+revision, func(string) string { return fleetManifest(dev, revision) })
	w.g.Expect(err).NotTo(HaveOccurred())
	for n, wave := range []struct{ stage, cluster string }{{canary, staging}, {rest, prod}} {
		p := expected{web, wave.stage, revision}
		pr := w.open(p)
		w.g.Expect(w.repository.Read(w.Context(), pr.Head.Ref, manifestPath(wave.cluster, web))).To(Equal(fleetManifest(wave.cluster, revision)))
		if wave.cluster == staging {
			w.g.Expect(w.repository.Read(w.Context(), pr.Head.Ref, manifestPath(prod, web))).To(Equal(fleetManifest(prod, firstRevision)), "the canary changes no other manifest")
			w.g.Expect(w.promotionsOf(w.g, expected{web, rest, revision})).To(BeEmpty(), "no wave begins before the one before it succeeded")
		}
		w.g.Expect(w.repository.Merge(w.Context(), pr.Index)).To(Succeed())
		w.kill(n+1, 500*time.Millisecond)
		w.g.Eventually(func(g Gomega) {
			found := w.promotionsOf(g, p)
			g.Expect(found).To(HaveExactElements(HaveField("Status.Phase", capstanv1.PhaseSucceeded)), w.ledger(p))
			w.installed(g, web, wave.cluster, revision)
		}).Should(Succeed())
	}
	w.g.Expect(w.pullRequests("Promote "+appsNamespace+"/"+web+" in")).To(HaveLen(2), "one for each wave")
	w.stopHub()
}

// pullRequests returns the titles of all pull requests with a prefix.
func (w *world) pullRequests(prefix string) []string {
	w.Helper()
	all, err := w.repository.PullRequests(w.Context())
	w.g.Expect(err).NotTo(HaveOccurred())
	var titles []string
	for _, pr := range all {
		if strings.HasPrefix(pr.Title, prefix) {
			titles = append(titles, pr.Title)
		}
	}
	return titles
}
