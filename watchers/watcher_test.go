package watchers_test

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/index"
	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/playground/leaks"
	"github.com/capstan-hub/capstan/watchers"
	"github.com/capstan-hub/capstan/watchers/apps"
)

// TestApplicationStatusIsRecordedFaithfully (C4): missing, created, ready, upgraded,
// failed, deleted.
func TestApplicationStatusIsRecordedFaithfully(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	cluster := w.admin("prod", home)
	app := w.release(cluster, "web")
	_, _, f := w.index.Last(app)
	w.g.Expect(f.Reason).To(Equal(index.NotWatched))
	w.use("shop", app)
	w.g.Eventually(w.sight(app)).Should(Equal(absent))
	w.g.Expect(w.wakes.of("shop", true)).To(BeNumerically(">=", 1))

	u := w.createRelease(w.hub, w.namespace, "web")
	w.g.Eventually(w.sight(app)).Should(Equal(unready("")))
	w.deploy(w.hub, u, "6.6.0")
	w.g.Eventually(w.sight(app)).Should(Equal(ready("6.6.0")))
	seen, _, _ := w.index.Last(app)
	w.g.Expect(seen.Digest).To(Equal("0cc9a8446c95"))
	w.g.Expect(seen.At).To(BeTemporally("~", time.Now(), patience))

	w.g.Expect(w.hub.Patch(t.Context(), u, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"interval":"5m"}}`)))).To(Succeed())
	w.g.Eventually(w.sight(app)).Should(Equal(unready("6.6.0")))
	w.deploy(w.hub, u, "6.6.1")
	w.g.Eventually(w.sight(app)).Should(Equal(ready("6.6.1")))

	w.g.Expect(w.hub.Delete(t.Context(), u)).To(Succeed())
	w.g.Eventually(w.sight(app)).Should(Equal(absent))
	u = w.createRelease(w.hub, w.namespace, "web")
	w.g.Eventually(w.sight(app)).Should(Equal(unready("")))

	w.g.Eventually(func(g Gomega) { // It is written a moment later.
		shown, err := w.reported("prod", apps.HelmRelease)()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(shown.Synced).To(BeTrue())
		g.Expect(shown.Version).To(Equal("v2"))
	}).Should(Succeed())
	w.g.Expect(w.hub.Delete(t.Context(), u)).To(Succeed())
}

// TestKustomization (C5), in the management cluster.
func TestKustomization(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	app := index.Object{Kind: index.Kind(apps.Kustomization), Namespace: w.namespace, Name: "web"}
	w.use("shop", app)
	w.g.Eventually(w.sight(app)).Should(Equal(absent))
	u := w.createKustomization("")
	w.g.Eventually(w.sight(app)).Should(Equal(unready("")))
	w.applied(u, "main@sha1:abc")
	w.g.Eventually(w.sight(app)).Should(Equal(ready("main@sha1:abc")))
}

// createKustomization creates the Kustomization "web" in the home cluster, as applied at
// the revision if that is not empty.
func (w *world) createKustomization(revision string) *unstructured.Unstructured {
	w.t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"interval": "10m", "prune": true, "sourceRef": map[string]any{"kind": "GitRepository", "name": "web"},
	}}}
	u.SetAPIVersion("kustomize.toolkit.fluxcd.io/v1")
	u.SetKind("Kustomization")
	u.SetNamespace(w.namespace)
	u.SetName("web")
	w.g.Expect(w.hub.Create(w.t.Context(), u)).To(Succeed())
	if revision != "" {
		w.applied(u, revision)
	}
	return u
}

// applied writes the status of a Kustomization that is applied at the revision.
func (w *world) applied(u *unstructured.Unstructured, revision string) {
	w.t.Helper()
	w.status(w.hub, u, map[string]any{
		"observedGeneration": u.GetGeneration(), "lastAppliedRevision": revision,
		"conditions": []any{map[string]any{"type": "Ready", "status": "True", "reason": "ReconciliationSucceeded", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}},
	})
}

// TestInformersEndWithTheLastUser (C10): after the linger, also if the target never existed.
func TestInformersEndWithTheLastUser(t *testing.T) {
	home.Get(t)
	leaks.AtEnd(t) // The test is not parallel: no other Watcher runs.
	w := newWorld(t, func(o *watchers.Options) { o.Timings.Linger = time.Second })
	cluster := w.admin("prod", home)
	app, never := w.release(cluster, "web"), w.release(cluster, "never")
	informers := func() float64 { return w.meter("capstan_informers") }
	used := func() bool {
		s, known := w.manager.Snapshot(cluster)
		return known && s.State != capstanv1.ConnectionUnused
	}
	u := w.createRelease(w.hub, w.namespace, "web")
	w.use("a", app)
	w.use("b", app, never)
	w.g.Eventually(w.sight(never)).Should(Equal(absent))
	w.g.Eventually(w.sight(app)).Should(Equal(unready("")))
	w.g.Expect(informers()).To(BeEquivalentTo(1), "one informer serves all")

	w.use("b")
	w.g.Consistently(informers, 1500*time.Millisecond).Should(BeEquivalentTo(1), "a still uses it")
	w.use("a")
	w.g.Expect(w.index.Stats()).To(Equal(index.Stats{}))
	w.use("a", app)
	w.g.Eventually(w.sight(app)).Should(Equal(unready("")), "within the linger nothing is lost")
	w.g.Expect(w.meter("capstan_relists_total")).To(BeZero())
	w.g.Expect(informers()).To(BeEquivalentTo(1))

	w.use("a")
	w.g.Eventually(informers).Should(BeZero())
	w.g.Eventually(used).Should(BeFalse(), "the connection is released too")
	w.g.Expect(w.freshness(app).Reason).To(Equal(index.NotWatched))
	w.use("a", app)
	w.g.Eventually(w.sight(app)).Should(Equal(unready("")), "and all comes back")
	w.g.Expect(w.hub.Delete(t.Context(), u)).To(Succeed())
}

// TestOneUserAfterAnother: a Pipeline demands an application that the index has just
// removed. Nothing changes in the cluster, and the application is observed again.
func TestOneUserAfterAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	app := w.release(w.admin("prod", home), "web")
	w.deploy(w.hub, w.createRelease(w.hub, w.namespace, "web"), "1.0.0")
	w.use("a", app)
	w.g.Eventually(w.sight(app)).Should(Equal(ready("1.0.0")))
	w.index.RemovePipeline(client.ObjectKey{Namespace: w.namespace, Name: "a"})
	w.use("b", app)
	w.use("a")
	w.g.Eventually(w.sight(app)).Should(Equal(ready("1.0.0")))
}

// TestCredentialsOfOneNamespace: if a list of all is forbidden, each namespace is watched,
// and a namespace that is forbidden does not affect another.
func TestCredentialsOfOneNamespace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	mine, other := w.namespace, w.newNamespace(home)
	user := "limited-" + mine
	grant := func(namespace string) {
		t.Helper()
		w.g.Expect(w.hub.Create(t.Context(), &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "watch"},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{apps.HelmRelease.Group}, Resources: []string{"helmreleases"}, Verbs: []string{"get", "list", "watch"}}},
		})).To(Succeed())
		w.g.Expect(w.hub.Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "watch"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "watch"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		})).To(Succeed())
	}
	grant(mine)
	raw, err := home.Get(t).UserKubeconfig("", user)
	w.g.Expect(err).NotTo(HaveOccurred())
	cluster := w.cluster("prod", raw)
	app := w.release(cluster, "web")
	forbidden := app
	forbidden.Namespace = other
	w.deploy(w.hub, w.createRelease(w.hub, mine, "web"), "1.0.0")
	w.deploy(w.hub, w.createRelease(w.hub, other, "web"), "2.0.0")

	w.use("shop", app)
	w.g.Eventually(w.sight(app)).Should(Equal(ready("1.0.0")))
	w.use("bank", forbidden)
	w.g.Eventually(w.sight(forbidden)).Should(Equal(sight{Reason: watchers.ReasonForbidden}))
	w.g.Expect(w.freshness(forbidden).Message).To(And(
		ContainSubstring(other), ContainSubstring("prod"), ContainSubstring("get, list and watch HelmRelease.helm.toolkit.fluxcd.io"), ContainSubstring("config/rbac/workload")))
	w.g.Consistently(w.sight(app), 300*time.Millisecond).Should(Equal(ready("1.0.0")))
	w.g.Eventually(func() (string, error) { k, err := w.reported("prod", apps.HelmRelease)(); return k.Reason, err }).Should(Equal(watchers.ReasonForbidden))

	nowhere := app
	nowhere.Namespace = ""
	w.use("nowhere", nowhere)
	w.g.Consistently(w.sight(app), 300*time.Millisecond).Should(Equal(ready("1.0.0")), "a demand in no namespace is not held against the others")

	grant(other)
	w.g.Eventually(w.sight(forbidden)).Should(Equal(ready("2.0.0")))
	w.g.Eventually(func() (bool, error) { k, err := w.reported("prod", apps.HelmRelease)(); return k.Synced, err }).Should(BeTrue())
}

// TestKindIsNotInstalled: only that kind is affected, until the CRD is installed.
func TestKindIsNotInstalled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	bare.Install(t, "kustomize-controller")
	cluster := w.admin("edge", bare)
	app := w.release(cluster, "web")
	other := index.Object{Cluster: string(cluster), Kind: index.Kind(apps.Kustomization), Namespace: w.namespace, Name: "web"}
	w.use("shop", app)
	w.use("bank", other)
	w.g.Eventually(w.sight(app)).Should(Equal(sight{Reason: watchers.ReasonNotInstalled}))
	w.g.Expect(w.freshness(app).Message).To(And(ContainSubstring("HelmRelease"), ContainSubstring(string(cluster)), ContainSubstring("install its CRD")))
	w.g.Eventually(w.sight(other)).Should(Equal(absent))
	w.g.Eventually(func() (string, error) { k, err := w.reported("edge", apps.HelmRelease)(); return k.Reason, err }).Should(Equal(watchers.ReasonNotInstalled))
	bare.Install(t, "helm-controller")
	w.g.Eventually(w.sight(app)).Should(Equal(absent))
}

// TestDemandedLater: an object that is stored as its key is read separately when it is
// demanded. Then its changes are observed.
func TestDemandedLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	cluster := w.admin("prod", home)
	first, second := w.release(cluster, "first"), w.release(cluster, "second")
	w.deploy(w.hub, w.createRelease(w.hub, w.namespace, "first"), "1.0.0")
	u := w.createRelease(w.hub, w.namespace, "second")
	w.deploy(w.hub, u, "2.0.0")
	w.use("a", first)
	w.g.Eventually(w.sight(first)).Should(Equal(ready("1.0.0")))
	w.use("b", second)
	w.g.Eventually(w.sight(second)).Should(Equal(ready("2.0.0")))
	w.g.Expect(w.meter("capstan_relists_total")).To(BeZero())
	w.g.Expect(w.meter("capstan_informers")).To(BeEquivalentTo(1))
	w.deploy(w.hub, u, "2.0.1")
	w.g.Eventually(w.sight(second)).Should(Equal(ready("2.0.1")))
}

// TestDemandRacesCreation: an object that is created while it is demanded is observed, in
// either order.
func TestDemandRacesCreation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	cluster := w.admin("prod", home)
	w.use("a", w.release(cluster, "none"))
	w.g.Eventually(w.sight(w.release(cluster, "none"))).Should(Equal(absent))
	var all []index.Object
	for i := range 40 {
		app := w.release(cluster, fmt.Sprintf("app-%d", i))
		all = append(all, app)
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.use(app.Name, app)
		}()
		w.deploy(w.hub, w.createRelease(w.hub, w.namespace, app.Name), "1.0.0")
		<-done
	}
	for _, app := range all {
		w.g.Eventually(w.sight(app)).Should(Equal(ready("1.0.0")))
	}
}

// TestEqualObservationsWakeNothing: only changed observations wake Pipelines.
func TestEqualObservationsWakeNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	app := w.release(w.admin("prod", home), "web")
	u := w.createRelease(w.hub, w.namespace, "web")
	w.deploy(w.hub, u, "1.0.0")
	w.use("shop", app)
	w.g.Eventually(w.sight(app)).Should(Equal(ready("1.0.0")))
	seen, _, _ := w.index.Last(app)
	equal := w.meter("capstan_observations_total", "result", "equal")
	w.wakes.take()
	for i := range 20 {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{"heartbeat":"%d"}}}`, i)
		w.g.Expect(w.hub.Patch(t.Context(), u, client.RawPatch("application/merge-patch+json", []byte(patch)))).To(Succeed())
	}
	w.g.Eventually(func() float64 { return w.meter("capstan_observations_total", "result", "equal") - equal }).Should(BeNumerically(">=", 20))
	w.g.Expect(w.wakes.of("shop", false)).To(BeZero()) // An initial one may come late.
	again, _, _ := w.index.Last(app)
	w.g.Expect(again.At).To(Equal(seen.At))
}

// TestLiveChangesGoAhead: an initial list wakes each Pipeline once, as initial, for any
// number of its applications. A change wakes it as live.
func TestLiveChangesGoAhead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	cluster := w.admin("prod", home)
	var all []index.Object
	var u *unstructured.Unstructured
	for i := range 10 {
		all = append(all, w.release(cluster, fmt.Sprintf("app-%d", i)))
		u = w.createRelease(w.hub, w.namespace, all[i].Name)
		w.deploy(w.hub, u, "1.0.0")
	}
	w.use("shop", all...)
	for _, app := range all {
		w.g.Eventually(w.sight(app)).Should(Equal(ready("1.0.0")))
	}
	// Connecting, not synced, synced: no more, and none for each application.
	w.g.Eventually(func() int { return w.wakes.of("shop", true) }).Should(BeNumerically(">=", 1))
	w.g.Expect(w.wakes.of("shop", true)).To(BeNumerically("<=", 3))
	w.g.Expect(w.wakes.of("shop", false)).To(BeZero())
	w.wakes.take()
	w.deploy(w.hub, u, "1.0.1")
	w.g.Eventually(func() int { return w.wakes.of("shop", false) }).Should(Equal(1)) // An initial one may come late.
}

// TestAStormIsFolded: changes of one cluster above its limit are folded, and the last one is
// not lost.
func TestAStormIsFolded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	app := w.release(w.admin("prod", home), "web")
	u := w.createRelease(w.hub, w.namespace, "web")
	w.use("shop", app)
	w.g.Eventually(w.sight(app)).Should(Equal(unready("")))
	w.wakes.take()
	const changes = 400
	began := time.Now()
	for i := range changes {
		w.deploy(w.hub, u, fmt.Sprintf("1.0.%d", i))
	}
	last := fmt.Sprintf("1.0.%d", changes-1)
	w.g.Eventually(w.sight(app)).Should(Equal(ready(last)))
	allowed := 100 + 50*time.Since(began).Seconds() + 50
	w.g.Eventually(func() int { w.wakes.mu.Lock(); defer w.wakes.mu.Unlock(); return len(w.wakes.calls) }).Should(BeNumerically(">", 0))
	w.g.Expect(len(w.wakes.take())).To(BeNumerically("<=", allowed))
}

// TestOutage: observations stay, marked as stale. After the outage nothing is listed again,
// and the changes during the outage are observed, without the next regular check.
func TestOutage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *watchers.Options) { o.Timings.Check = time.Hour })
	proxy, err := controlplane.NewProxy(home.Get(t).Config().Host)
	w.g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = proxy.Close() })
	raw, err := home.Get(t).Kubeconfig(proxy.URL())
	w.g.Expect(err).NotTo(HaveOccurred())
	app := w.release(w.cluster("prod", raw), "web")
	healthy := w.release(w.admin("other", home), "web")
	u := w.createRelease(w.hub, w.namespace, "web")
	w.deploy(w.hub, u, "1.0.0")
	w.use("shop", app)
	w.use("bank", healthy)
	w.g.Eventually(w.sight(app)).Should(Equal(ready("1.0.0")))
	w.g.Eventually(w.sight(healthy)).Should(Equal(ready("1.0.0")))

	proxy.Set(controlplane.Swallow)
	w.g.Eventually(func() bool { return w.freshness(app).Fresh }).Should(BeFalse())
	w.g.Eventually(func() string { return w.freshness(app).Reason }).Should(Equal(watchers.ReasonUnreachable))
	w.g.Expect(w.freshness(app).Message).To(ContainSubstring("prod"))
	seen, known, _ := w.index.Last(app)
	w.g.Expect(known).To(BeTrue())
	w.g.Expect(seen.Revision).To(Equal("1.0.0"))
	w.deploy(w.hub, u, "1.0.1")
	w.g.Eventually(w.sight(healthy)).Should(Equal(ready("1.0.1")), "another cluster's trouble is its own")
	w.g.Expect(w.sight(app)().Revision).To(Equal("1.0.0"))

	proxy.Set(controlplane.Pass)
	w.g.Eventually(w.sight(app)).Should(Equal(ready("1.0.1")))
}

// TestAnotherClusterTakesTheName: the observations of the old cluster are removed.
func TestAnotherClusterTakesTheName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	bare.Install(t, "kustomize-controller")
	app := index.Object{Cluster: string(w.admin("prod", home)), Kind: index.Kind(apps.Kustomization), Namespace: w.namespace, Name: "web"}
	w.createKustomization("1.0.0")
	w.use("shop", app)
	w.g.Eventually(w.sight(app)).Should(Equal(ready("1.0.0")))
	raw, err := bare.Get(t).Kubeconfig("")
	w.g.Expect(err).NotTo(HaveOccurred())
	w.kubeconfig("prod", raw)
	w.g.Eventually(w.sight(app)).Should(Equal(absent))
}

// TestSecretComesLater: a cluster that cannot be connected shows the reason, and the next one when a user has
// corrected the first.
func TestSecretComesLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	name := clusters.Ref{Kind: "Cluster", Namespace: w.namespace, Name: "prod"}.ClusterName()
	app := w.release(name, "web")
	w.use("shop", app)
	w.g.Eventually(func() string { return w.freshness(app).Reason }).Should(Equal(watchers.ReasonRemoved))
	w.admin("prod", home)
	w.g.Eventually(w.sight(app)).Should(Equal(absent))
	w.kubeconfig("prod", []byte("apiVersion: v1"))
	w.g.Eventually(func() string { return w.freshness(app).Reason }).Should(Equal(watchers.ReasonAuthFailed))
	refused := w.freshness(app).Message
	w.g.Expect(refused).To(ContainSubstring("prod"))
	w.kubeconfig("prod", []byte("{"))
	w.g.Eventually(func() string { return w.freshness(app).Message }).ShouldNot(Equal(refused))
	w.g.Expect(w.freshness(app).Reason).To(Equal(watchers.ReasonAuthFailed))
}

// TestTooManyObjects: a tenant cannot use much memory of the hub by creating objects.
func TestTooManyObjects(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *watchers.Options) { o.MaxObjects = 3 })
	cluster := w.admin("prod", home)
	app := w.release(cluster, "web")
	for i := range 4 {
		w.createRelease(w.hub, w.namespace, fmt.Sprintf("app-%d", i))
	}
	w.use("shop", app)
	w.g.Eventually(func() index.Freshness { return w.freshness(app) }).Should(And(
		HaveField("Reason", watchers.ReasonTooMany), HaveField("Message", ContainSubstring("more than 3 objects of HelmRelease"))))
}

// TestServedVersion: the version is one that is served, in the order of the Kind.
func TestServedVersion(t *testing.T) {
	t.Parallel()
	versions := []string{"v3", "v1beta1", "v1"}
	w := newWorld(t, func(o *watchers.Options) {
		o.Kinds = func(gk schema.GroupKind) watchers.Kind {
			k := apps.Kind(gk)
			k.Versions = versions
			return k
		}
	})
	installCranes(t, home)
	cluster := w.admin("prod", home)
	app := index.Object{Cluster: string(cluster), Kind: index.Kind(crane), Namespace: w.namespace, Name: "web"}
	w.use("shop", app)
	w.g.Eventually(w.sight(app)).Should(Equal(absent))
	w.g.Eventually(func() (string, error) { k, err := w.reported("prod", crane)(); return k.Version, err }).Should(Equal("v1beta1"))

	u := newCrane(w.namespace, "web", nil)
	u.Object["status"] = map[string]any{"lastAppliedRevision": "7", "conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}
	w.g.Expect(w.hub.Create(t.Context(), u)).To(Succeed())
	w.g.Eventually(w.sight(app)).Should(Equal(ready("7")), "any kind with Ready and lastAppliedRevision")

	versions = []string{"v3"}
	other := app
	other.Cluster = string(w.admin("new", home))
	w.use("bank", other)
	w.g.Eventually(func() string { return w.freshness(other).Reason }).Should(Equal(watchers.ReasonNotServed))
	w.g.Expect(w.freshness(other).Message).To(ContainSubstring("v3"))
}
