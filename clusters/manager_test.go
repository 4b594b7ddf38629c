package clusters_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/playground/leaks"
)

// TestLife: a cluster from before its creation to after its removal, and every way its
// Secret can be wrong on the way.
func TestLife(t *testing.T) {
	management.Get(t)
	workload.Get(t)
	leaks.AtEnd(t) // The test is not parallel: no other Manager runs.
	w := newWorld(t, nil)
	w.start()
	g, name := w.g, w.clusterName("prod")
	ref := w.ref("Cluster", "prod")

	g.Eventually(func() error { _, err := w.manager.Resolve(ref); return err }).Should(MatchError(clusters.ErrNotFound))
	w.manager.Demand(name, "pipeline")
	w.manager.Demand(name, "pipeline")
	g.Expect(w.reaches("prod", capstanv1.ConnectionRemoved, clusters.ReasonClusterGone).Message).To(ContainSubstring("does not exist"))
	_, err := w.manager.Resolve(ref)
	g.Expect(err).To(MatchError(clusters.ErrNotFound))
	_, err = w.shown("cluster.prod")
	g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "there is nothing to own it")

	object := w.createCluster("prod")
	missing := w.reaches("prod", capstanv1.ConnectionAuthFailed, clusters.ReasonSecretMissing)
	g.Expect(missing.Message).To(And(ContainSubstring(w.namespace+"/prod-kubeconfig"), ContainSubstring(`"value"`)))
	g.Eventually(func() int { return w.listener.referenceChanges(ref) }).Should(BeNumerically(">=", 1))
	g.Expect(w.manager.Resolve(ref)).To(Equal(name))
	_, err = w.manager.Connection(name)
	g.Expect(err).To(MatchError(clusters.ErrNotConnected))

	w.secret("prod-kubeconfig", "other", []byte("x"))
	g.Eventually(func() string { s, _ := w.manager.Snapshot(name); return s.Message }).Should(ContainSubstring("has no key"))
	w.secret("prod-kubeconfig", "value", []byte{})
	g.Expect(w.reaches("prod", capstanv1.ConnectionAuthFailed, clusters.ReasonKubeconfigRefused).Message).To(ContainSubstring("is empty"))
	w.secret("prod-kubeconfig", "value", []byte("apiVersion: v1\nkind: Config\ncurrent-context: nowhere"))
	shown := w.shows("cluster.prod", capstanv1.ConnectionAuthFailed, clusters.ReasonKubeconfigRefused)
	g.Expect(shown.Status.Conditions).To(ContainElement(HaveField("Status", metav1.ConditionFalse)))

	w.secret("prod-kubeconfig", "value", w.kubeconfig(""))
	ready := w.reaches("prod", capstanv1.ConnectionReady, clusters.ReasonConnected)
	g.Expect(ready.Epoch).To(BeEquivalentTo(1))
	g.Expect(ready.LastContact).NotTo(BeZero())
	w.identified("prod")
	version, err := discovery.NewDiscoveryClientForConfigOrDie(workload.Get(t).Config()).ServerVersion()
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func() string {
		return w.shows("cluster.prod", capstanv1.ConnectionReady, clusters.ReasonConnected).Status.KubernetesVersion
	}).Should(Equal(version.GitVersion))
	shown, err = w.shown("cluster.prod")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(shown.Spec.ClusterRef.Name).To(Equal("prod"))
	g.Expect(shown.OwnerReferences).To(ConsistOf(HaveField("UID", object.GetUID())))
	g.Expect(shown.Labels).To(HaveKeyWithValue("capstan.dev/cluster-kind", "Cluster"))
	g.Expect(shown.Status.Server).To(Equal(strings.TrimSuffix(workload.Get(t).Config().Host, "/")))
	g.Expect(shown.Status.CredentialExpiryTime.Time).To(BeTemporally("~", time.Now().Add(time.Hour), 10*time.Minute))
	g.Expect(shown.Status.CredentialIssuedTime.Time).To(BeTemporally("~", time.Now(), 10*time.Minute))
	g.Expect(shown.Status.Conditions).To(ContainElement(And(HaveField("Type", "Ready"), HaveField("Status", metav1.ConditionTrue))))

	connection, err := w.manager.Connection(name)
	g.Expect(err).NotTo(HaveOccurred())
	config := connection.Config()
	g.Expect(config.BearerToken + string(config.KeyData) + string(config.CertData)).To(BeEmpty())
	g.Expect(config.RateLimiter).NotTo(BeNil())
	reader, err := client.New(config, client.Options{HTTPClient: connection.HTTPClient()})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(reader.List(t.Context(), &corev1.NamespaceList{})).To(Succeed())
	g.Expect(reader.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "written"}})).To(MatchError(ContainSubstring("only reads")))

	// The Secret goes: traffic stops at once; it comes back as it was: it goes on.
	kept := &corev1.Secret{}
	g.Expect(w.hub.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "prod-kubeconfig"}, kept)).To(Succeed())
	g.Expect(w.hub.Delete(t.Context(), kept.DeepCopy())).To(Succeed())
	w.reaches("prod", capstanv1.ConnectionAuthFailed, clusters.ReasonSecretMissing)
	w.secret("prod-kubeconfig", "value", kept.Data["value"])
	g.Expect(w.reaches("prod", capstanv1.ConnectionReady, clusters.ReasonConnected).Epoch).To(BeEquivalentTo(1))

	// The cluster goes while demanded: Removed is shown; without demand nothing is.
	g.Expect(w.hub.Delete(t.Context(), object)).To(Succeed())
	w.reaches("prod", capstanv1.ConnectionRemoved, clusters.ReasonClusterGone)
	g.Eventually(connection.Context().Done()).Should(BeClosed())
	w.shows("cluster.prod", capstanv1.ConnectionRemoved, clusters.ReasonClusterGone)
	w.manager.Release(name, "pipeline")
	g.Eventually(func() bool { _, known := w.manager.Snapshot(name); return known }).Should(BeFalse())
	g.Eventually(func() bool { _, err := w.shown("cluster.prod"); return apierrors.IsNotFound(err) }).Should(BeTrue())

	g.Expect(w.listener.of(name)).To(HaveExactElements(
		"Unused>Removed/ClusterGone",
		"Removed>Connecting/ReadingCredentials",
		"Connecting>AuthFailed/SecretMissing",
		"AuthFailed>AuthFailed/KubeconfigRefused",
		"AuthFailed>Connecting/Dialling",
		"Connecting>Ready/Connected",
		"Ready>AuthFailed/SecretMissing",
		"AuthFailed>Connecting/Dialling",
		"Connecting>Ready/Connected",
		"Ready>Removed/ClusterGone",
	))
}

// TestSameNameAnotherCluster: a Cluster that is deleted and made anew while the hub
// does not watch is not taken for the old one.
func TestSameNameAnotherCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.start()
	old := w.connected("prod", "")
	object := w.newCluster("prod")
	w.g.Expect(w.hub.Delete(t.Context(), object)).To(Succeed())
	w.createCluster("prod")
	w.g.Eventually(old.Context().Done()).Should(BeClosed())
	w.g.Eventually(func() int64 { s, _ := w.manager.Snapshot(w.clusterName("prod")); return s.Epoch }).Should(BeEquivalentTo(2))
	w.reaches("prod", capstanv1.ConnectionReady, clusters.ReasonConnected)
	w.g.Eventually(func() (int, error) { o, err := w.shown("cluster.prod"); return len(o.OwnerReferences), err }).Should(Equal(1))
}

// TestOldClusterAPI: a management cluster that serves Cluster as v1beta1 only.
func TestOldClusterAPI(t *testing.T) {
	t.Parallel()
	w := newWorldOn(t, oldManagement, nil)
	w.start()
	object := w.newCluster("prod")
	object.SetAPIVersion("cluster.x-k8s.io/v1beta1")
	delete(object.Object, "spec")
	w.g.Expect(w.hub.Create(t.Context(), object)).To(Succeed())
	w.secret("prod-kubeconfig", "value", w.kubeconfig(""))
	w.manager.Demand(w.clusterName("prod"), "test")
	w.reaches("prod", capstanv1.ConnectionReady, clusters.ReasonConnected)
	shown := w.shows("cluster.prod", capstanv1.ConnectionReady, clusters.ReasonConnected)
	w.g.Expect(shown.OwnerReferences).To(ConsistOf(HaveField("APIVersion", "cluster.x-k8s.io/v1beta1")))
}

// TestClusterAPIUpgrade: the version in which Cluster is watched is served no more,
// and another is.
func TestClusterAPIUpgrade(t *testing.T) {
	t.Parallel()
	upgraded := controlplane.Share("capstan", "cluster-api-old", "cluster-controller")
	defer func() { NewWithT(t).Expect(upgraded.Get(t).Stop()).To(Succeed()) }()
	proxy, err := controlplane.NewProxy(upgraded.Get(t).Config().Host)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	w := newWorldOn(t, upgraded, func(o *clusters.Options) { o.Local.Host = proxy.URL() })
	stop := w.start()
	defer func() { _ = proxy.Close(); stop() }()
	old := w.newCluster("old")
	old.SetAPIVersion("cluster.x-k8s.io/v1beta1")
	delete(old.Object, "spec")
	w.g.Expect(w.hub.Create(t.Context(), old)).To(Succeed())
	w.g.Eventually(func() error { _, err := w.manager.Resolve(w.ref("Cluster", "old")); return err }).Should(Succeed())

	upgraded.Install(t, "cluster-api")
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	crd.SetName("clusters.cluster.x-k8s.io")
	w.g.Expect(w.hub.Patch(t.Context(), crd, client.RawPatch(types.JSONPatchType, []byte(
		`[{"op":"test","path":"/spec/versions/0/name","value":"v1beta1"},{"op":"replace","path":"/spec/versions/0/served","value":false}]`)))).To(Succeed())
	proxy.Set(controlplane.Refuse) // or the watch would go on for minutes
	w.g.Eventually(func() error { return w.hub.Create(t.Context(), w.newCluster("new")) }).Should(Succeed())
	proxy.Set(controlplane.Pass)
	w.g.Eventually(func() error { _, err := w.manager.Resolve(w.ref("Cluster", "new")); return err }).Should(Succeed())
	w.g.Expect(w.manager.Resolve(w.ref("Cluster", "old"))).To(Equal(w.clusterName("old")), "what was known stays")
}

// TestGitopsClusters: with a Secret, by way of a Cluster, and what blocks; first
// without the CRD.
func TestGitopsClusters(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.start()
	g := w.g
	ref := w.ref("GitopsCluster", "g")
	g.Eventually(func() error { _, err := w.manager.Resolve(ref); return err }).Should(MatchError(clusters.ErrNotFound))
	_, err := w.manager.Resolve(ref)
	g.Expect(err.Error()).To(ContainSubstring("CustomResourceDefinition is not installed"))

	management.Install(t, "cluster-controller")
	create := func(name string, spec map[string]any) clusters.Ref {
		g.Expect(w.hub.Create(t.Context(), w.newGitopsCluster(name, spec))).To(Succeed())
		return w.ref("GitopsCluster", name)
	}
	named := func(name string) map[string]any { return map[string]any{"name": name} }
	create("g", map[string]any{"secretRef": named("g-kc")})
	g.Eventually(func() error { _, err := w.manager.Resolve(ref); return err }).Should(Succeed())
	g.Expect(w.manager.Resolve(ref)).To(BeEquivalentTo(w.ref("GitopsCluster", "g").ClusterName()), "no condition blocks nothing")
	notified := func(ref clusters.Ref, after int) { // A listener is called after the change that Resolve shows.
		t.Helper()
		g.Eventually(func() int { return w.listener.referenceChanges(ref) }).Should(BeNumerically(">", after))
	}
	notified(ref, 0)

	// Its Secret's key is kubeconfig; value serves, too.
	w.manager.Demand(ref.ClusterName(), "test")
	w.secret("g-kc", "value", w.kubeconfig(""))
	w.nameReaches(ref.ClusterName(), capstanv1.ConnectionReady, clusters.ReasonConnected)
	w.shows("gitopscluster.g", capstanv1.ConnectionReady, clusters.ReasonConnected)
	w.secret("g-kc", "kubeconfig", []byte("rubbish"))
	w.nameReaches(ref.ClusterName(), capstanv1.ConnectionAuthFailed, clusters.ReasonKubeconfigRefused)
	w.secret("g-kc", "kubeconfig", w.kubeconfig(""))
	w.nameReaches(ref.ClusterName(), capstanv1.ConnectionReady, clusters.ReasonConnected)

	// capiClusterRef is the Cluster.
	points := create("points", map[string]any{"capiClusterRef": named("prod")})
	g.Eventually(func() error { _, err := w.manager.Resolve(points); return err }).Should(MatchError(ContainSubstring("Cluster " + w.namespace + "/prod, which")))
	notified(points, 0)
	before := w.listener.referenceChanges(points)
	w.createCluster("prod")
	g.Eventually(func() error { _, err := w.manager.Resolve(points); return err }).Should(Succeed())
	g.Expect(w.manager.Resolve(points)).To(Equal(w.clusterName("prod")))
	g.Expect(w.manager.Objects()).To(HaveExactElements(
		And(HaveField("Ref", w.ref("Cluster", "prod")), HaveField("Of", clusters.Ref{})),
		And(HaveField("Ref", ref), HaveField("Of", clusters.Ref{})),
		And(HaveField("Ref", points), HaveField("Of", w.ref("Cluster", "prod")))))
	notified(points, before)

	// An explicit Ready=False blocks, and the end is notified.
	object := w.newGitopsCluster("g", nil)
	set := func(status string) {
		patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q,"reason":"X","message":"because","lastTransitionTime":"2030-01-01T00:00:00Z"}]}}`, status)
		g.Expect(w.hub.Status().Patch(t.Context(), object.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(patch)))).To(Succeed())
	}
	blocked := w.listener.referenceChanges(ref)
	set("False")
	g.Eventually(func() error { _, err := w.manager.Resolve(ref); return err }).Should(And(MatchError(clusters.ErrNotReady), MatchError(ContainSubstring("because"))))
	notified(ref, blocked)
	before = w.listener.referenceChanges(ref)
	set("True")
	notified(ref, before)
	g.Eventually(func() (multicluster.ClusterName, error) { return w.manager.Resolve(ref) }).Should(Equal(ref.ClusterName()))

	none := create("none", map[string]any{})
	g.Eventually(func() error { _, err := w.manager.Resolve(none); return err }).Should(MatchError(clusters.ErrInvalid))
}

// TestManagementCluster: the name "" is a connection like others, always demanded.
func TestManagementCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	connection, err := w.manager.Connection(clusters.LocalName)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(w.manager.Resolve(clusters.Ref{})).To(Equal(clusters.LocalName))
	stop := w.start()
	w.nameReaches(clusters.LocalName, capstanv1.ConnectionReady, clusters.ReasonConnected)
	reader, err := client.New(connection.Config(), client.Options{HTTPClient: connection.HTTPClient()})
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(reader.List(t.Context(), &corev1.NamespaceList{})).To(Succeed())
	w.g.Expect(connection.LastContact()).NotTo(BeZero())
	var all capstanv1.ClusterConnectionList
	w.g.Expect(w.hub.List(t.Context(), &all, client.InNamespace(w.namespace))).To(Succeed())
	w.g.Expect(all.Items).To(BeEmpty())
	stop()
	w.g.Expect(connection.Context().Err()).To(HaveOccurred())
}

// TestSelfManagedLabel: the label is a demand.
func TestSelfManagedLabel(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *clusters.Options) { o.Timings.Linger = 300 * time.Millisecond })
	w.start()
	name := w.clusterName("pivoted")
	w.secret("pivoted-kubeconfig", "value", w.kubeconfig(""))
	object := w.newCluster("pivoted")
	object.SetLabels(map[string]string{clusters.SelfManagedLabel: "true"})
	w.g.Expect(w.hub.Create(t.Context(), object)).To(Succeed())
	w.reaches("pivoted", capstanv1.ConnectionReady, clusters.ReasonConnected)
	w.g.Expect(w.manager.SelfManaged(name)).To(BeTrue())
	w.g.Expect(w.manager.SelfManaged(clusters.LocalName)).To(BeTrue(), "the management cluster's own")
	w.g.Expect(w.manager.SelfManaged(w.clusterName("other"))).To(BeFalse(), "there is none")
	w.g.Expect(w.manager.SelfManaged("no name")).To(BeFalse())

	object.SetLabels(nil)
	w.g.Expect(w.hub.Patch(t.Context(), object, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":null}}`)))).To(Succeed())
	w.reaches("pivoted", capstanv1.ConnectionUnused, clusters.ReasonNotDemanded)
	w.shows("cluster.pivoted", capstanv1.ConnectionUnused, clusters.ReasonNotDemanded)
	w.g.Expect(w.manager.SelfManaged(name)).To(BeFalse())
	_, err := w.manager.Connection(name)
	w.g.Expect(err).To(MatchError(clusters.ErrNotConnected))

	// A cluster that was never demanded is not shown.
	w.createCluster("other")
	w.g.Consistently(func() bool { _, err := w.shown("cluster.other"); return apierrors.IsNotFound(err) }, "300ms").Should(BeTrue())
}

// TestLocalOnly: the management cluster is connected, and no other, for any demand.
func TestLocalOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *clusters.Options) { o.LocalOnly = true })
	w.start()
	w.secret("pivoted-kubeconfig", "value", w.kubeconfig(""))
	object := w.newCluster("pivoted")
	object.SetLabels(map[string]string{clusters.SelfManagedLabel: "true"})
	w.g.Expect(w.hub.Create(t.Context(), object)).To(Succeed())
	w.nameReaches(clusters.LocalName, capstanv1.ConnectionReady, clusters.ReasonConnected)
	w.g.Consistently(func(g Gomega) {
		_, err := w.manager.Connection(w.clusterName("pivoted"))
		g.Expect(err).To(MatchError(clusters.ErrNotConnected))
		var all capstanv1.ClusterConnectionList
		g.Expect(w.hub.List(t.Context(), &all, client.InNamespace(w.namespace))).To(Succeed())
		g.Expect(all.Items).To(BeEmpty())
	}, "500ms").Should(Succeed())
	w.g.Expect(w.manager.SelfManaged(clusters.LocalName)).To(BeTrue())
	w.g.Expect(w.manager.SelfManaged(w.clusterName("pivoted"))).To(BeFalse())
}

// TestLinger: owners are a set, and the connection outlives the last by five
// minutes, on the hub's clock.
func TestLinger(t *testing.T) {
	t.Parallel()
	clock := testclock.NewFakeClock(time.Now())
	w := newWorld(t, func(o *clusters.Options) { o.Clock, o.Timings = clock, clusters.Timings{} })
	w.start()
	tick := func(step time.Duration) func() capstanv1.ConnectionState {
		return func() capstanv1.ConnectionState {
			clock.Step(step)
			s, _ := w.manager.Snapshot(w.clusterName("prod"))
			return s.State
		}
	}
	w.createCluster("prod")
	w.secret("prod-kubeconfig", "value", w.kubeconfig(""))
	for _, owner := range []string{"a", "b", "a"} {
		w.manager.Demand(w.clusterName("prod"), owner)
	}
	w.g.Eventually(tick(time.Millisecond)).Should(Equal(capstanv1.ConnectionReady))
	connection, err := w.manager.Connection(w.clusterName("prod"))
	w.g.Expect(err).NotTo(HaveOccurred())

	w.manager.Release(w.clusterName("prod"), "a")
	w.manager.Release(w.clusterName("prod"), "a")
	clock.Step(10 * time.Minute)
	w.g.Consistently(tick(0), "200ms").Should(Equal(capstanv1.ConnectionReady), "b is left")

	w.manager.Release(w.clusterName("prod"), "b")
	clock.Step(5*time.Minute - 2*time.Second)
	w.g.Consistently(tick(0), "200ms").Should(Equal(capstanv1.ConnectionReady), "it lingers")
	w.manager.Demand(w.clusterName("prod"), "c")
	clock.Step(time.Minute)
	w.g.Consistently(tick(0), "200ms").Should(Equal(capstanv1.ConnectionReady), "demanded again")
	w.g.Expect(connection.Context().Err()).NotTo(HaveOccurred(), "and it is the same connection")

	w.manager.Release(w.clusterName("prod"), "c")
	clock.Step(5 * time.Minute)
	// The keeper may set its timer after the step.
	w.g.Eventually(tick(time.Second)).Should(Equal(capstanv1.ConnectionUnused))
	w.g.Expect(connection.Context().Err()).To(HaveOccurred())
	w.g.Eventually(func() capstanv1.ConnectionState {
		clock.Step(time.Second)
		o, _ := w.shown("cluster.prod")
		return o.Status.State
	}).Should(Equal(capstanv1.ConnectionUnused))
}

// TestAdopts: what an earlier hub left behind is taken over.
func TestAdopts(t *testing.T) {
	t.Parallel()
	first := newWorld(t, nil)
	stop := first.start()
	for _, name := range []string{"kept", "unused", "gone"} {
		first.connected(name, "")
		first.g.Eventually(func() string {
			return first.shows("cluster."+name, capstanv1.ConnectionReady, clusters.ReasonConnected).Status.KubernetesVersion
		}).ShouldNot(BeEmpty())
	}
	before, err := first.shown("cluster.kept")
	first.g.Expect(err).NotTo(HaveOccurred())
	stop()
	first.g.Expect(first.hub.Delete(t.Context(), first.newCluster("gone"))).To(Succeed())

	second := newWorld(t, func(o *clusters.Options) { o.Namespaces[0] = first.namespace; o.Timings.Linger = time.Second })
	second.namespace = first.namespace
	second.manager.Demand(second.clusterName("kept"), "test")
	second.start()
	second.shows("cluster.unused", capstanv1.ConnectionUnused, clusters.ReasonNotDemanded)
	second.g.Eventually(func() bool { _, err := second.shown("cluster.gone"); return apierrors.IsNotFound(err) }).Should(BeTrue())
	second.reaches("kept", capstanv1.ConnectionReady, clusters.ReasonConnected)
	second.identified("kept")
	after, err := second.shown("cluster.kept")
	second.g.Expect(err).NotTo(HaveOccurred())
	second.g.Expect(after.ResourceVersion).To(Equal(before.ResourceVersion), "a restart writes nothing where nothing changed")
}

// TestReportedKinds: what watchers say shows, and a kind that fails degrades.
func TestReportedKinds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.start()
	w.connected("prod", "")
	name := w.clusterName("prod")
	kind := capstanv1.WatchedKind{Kind: "HelmRelease.helm.toolkit.fluxcd.io", Version: "v2"}
	report := func(synced bool, reason string) {
		k := kind
		k.Synced, k.Reason, k.Message = synced, reason, "say why"
		w.manager.ReportKinds(name, []capstanv1.WatchedKind{k}, 7)
	}
	report(true, "")
	w.g.Eventually(func() int32 { o, _ := w.shown("cluster.prod"); return o.Status.Apps }).Should(BeEquivalentTo(7))
	report(false, "Forbidden")
	w.g.Expect(w.reaches("prod", capstanv1.ConnectionDegraded, clusters.ReasonKindNotSynced).Message).To(ContainSubstring("HelmRelease.helm.toolkit.fluxcd.io cannot be watched: Forbidden: say why"))
	shown := w.shows("cluster.prod", capstanv1.ConnectionDegraded, clusters.ReasonKindNotSynced)
	w.g.Expect(shown.Status.Kinds).To(ConsistOf(And(HaveField("Synced", false), HaveField("Version", "v2"))))
	report(true, "")
	w.reaches("prod", capstanv1.ConnectionReady, clusters.ReasonConnected)
	report(false, clusters.ReasonSyncing)
	w.g.Eventually(func() []capstanv1.WatchedKind { o, _ := w.shown("cluster.prod"); return o.Status.Kinds }).
		Should(ConsistOf(HaveField("Reason", clusters.ReasonSyncing)))
	w.reaches("prod", capstanv1.ConnectionReady, clusters.ReasonConnected)
	w.g.Eventually(w.recorder.Events).Should(Receive(ContainSubstring("Warning Degraded KindNotSynced")))
}

// TestConcurrentDemands: demands from many goroutines at once neither race nor get
// lost.
func TestConcurrentDemands(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *clusters.Options) { o.Timings.Linger = time.Millisecond })
	w.start()
	w.createCluster("prod")
	w.secret("prod-kubeconfig", "value", w.kubeconfig(""))
	name := w.clusterName("prod")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{}, 8)
	for i := range 8 {
		go func() {
			defer func() { ended <- struct{}{} }()
			owner := fmt.Sprint(i)
			for ctx.Err() == nil {
				w.manager.Demand(name, owner)
				_, _ = w.manager.Resolve(w.ref("Cluster", "prod"))
				_ = w.manager.Snapshots()
				w.manager.ReportKinds(name, []capstanv1.WatchedKind{{Kind: "x", Synced: i%2 == 0}}, i)
				if c, err := w.manager.Connection(name); err == nil {
					_ = c.LastContact()
				}
				w.manager.Release(name, owner)
			}
		}()
	}
	time.AfterFunc(time.Second, cancel)
	for range 8 {
		<-ended
	}
	w.manager.ReportKinds(name, nil, 0)
	w.manager.Demand(name, "last")
	w.reaches("prod", capstanv1.ConnectionReady, clusters.ReasonConnected)
	w.shows("cluster.prod", capstanv1.ConnectionReady, clusters.ReasonConnected)
}

// Clusters of the real API server are selected by their labels, and a listener is told when a cluster gets them, loses
// them or is deleted.
func TestSelect(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(*clusters.Options) {})
	prod := labels.SelectorFromSet(labels.Set{"tier": "prod"})
	namespace := w.newCluster("one").GetNamespace()
	_, err := w.manager.Select("Cluster", namespace, prod)
	w.g.Expect(err).To(MatchError(clusters.ErrNotSynced))
	w.start()
	w.g.Eventually(func() int { return w.listener.referenceChanges(clusters.SelectionRef("Cluster", namespace)) }).Should(Equal(1), "the Clusters were read")
	selected := func() []clusters.Ref {
		all, err := w.manager.Select("Cluster", namespace, prod)
		w.g.Expect(err).NotTo(HaveOccurred())
		return all
	}
	object := w.newCluster("one")
	ref := clusters.Ref{Kind: "Cluster", Namespace: namespace, Name: "one"}
	w.g.Expect(w.hub.Create(t.Context(), object)).To(Succeed())
	w.g.Eventually(func() int { return w.listener.referenceChanges(ref) }).Should(Equal(1))
	w.g.Expect(selected()).To(BeEmpty())
	label := func(value string) {
		t.Helper()
		before := w.listener.referenceChanges(ref)
		w.g.Expect(w.hub.Patch(t.Context(), object, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"tier":`+value+`}}}`)))).To(Succeed())
		w.g.Eventually(func() int { return w.listener.referenceChanges(ref) }).Should(BeNumerically(">", before))
	}
	label(`"prod"`)
	w.g.Expect(selected()).To(ConsistOf(ref))
	label("null")
	w.g.Expect(selected()).To(BeEmpty())
	label(`"prod"`)
	w.g.Expect(w.hub.Delete(t.Context(), object)).To(Succeed())
	w.g.Eventually(selected).Should(BeEmpty())
	none, err := w.manager.Select("GitopsCluster", namespace, prod)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(none).To(BeEmpty())
}
