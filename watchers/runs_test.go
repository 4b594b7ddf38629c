package watchers_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/watchers"
	"github.com/capstan-hub/capstan/watchers/apps"
)

// TestDeletedBetweenRuns: an application that was deleted while no informer ran is observed
// to be absent, although the index still has it.
func TestDeletedBetweenRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	proxy, err := controlplane.NewProxy(home.Get(t).Config().Host)
	w.g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = proxy.Close() })
	raw, err := home.Get(t).Kubeconfig(proxy.URL())
	w.g.Expect(err).NotTo(HaveOccurred())
	app := w.release(w.cluster("prod", raw), "web")
	u := w.createRelease(w.hub, w.namespace, "web")
	w.deploy(w.hub, u, "1.0.0")
	w.use("shop", app)
	w.g.Eventually(w.sight(app)).Should(Equal(ready("1.0.0")))

	proxy.Set(controlplane.Swallow) // The deletion is not delivered.
	w.g.Expect(w.hub.Delete(t.Context(), u)).To(Succeed())
	raw, err = home.Get(t).Kubeconfig("") // The same cluster at another address: a new epoch.
	w.g.Expect(err).NotTo(HaveOccurred())
	w.kubeconfig("prod", raw)
	w.g.Eventually(w.sight(app)).Should(Equal(absent))
}

// rebuilt returns another UID for every cluster.
type rebuilt struct {
	*clusters.Manager
	uid atomic.Value
}

func (r *rebuilt) Snapshot(name multicluster.ClusterName) (clusters.Snapshot, bool) {
	s, known := r.Manager.Snapshot(name)
	if uid, ok := r.uid.Load().(string); ok && s.ClusterUID != "" {
		s.ClusterUID = uid
	}
	return s, known
}

// TestClusterRebuiltInPlace: another cluster answers at the same address, with the
// same CA. The connection stays, and all is listed again, without an error.
func TestClusterRebuiltInPlace(t *testing.T) {
	t.Parallel()
	r := &rebuilt{}
	w := newWorld(t, func(o *watchers.Options) {
		manager, ok := o.Clusters.(*clusters.Manager)
		NewWithT(t).Expect(ok).To(BeTrue())
		r.Manager, o.Clusters = manager, r
		o.Timings.TransientRetry = patience // It is not waited for.
	})
	app := w.release(w.admin("prod", home), "web")
	u := w.createRelease(w.hub, w.namespace, "web")
	w.deploy(w.hub, u, "1.0.0")
	w.use("shop", app)
	w.g.Eventually(w.sight(app)).Should(Equal(ready("1.0.0")))
	for i := range 5 { // The loop and the keeper race.
		lists := w.meter("capstan_lists_total")
		r.uid.Store(fmt.Sprintf("another-%d", i))
		w.g.Eventually(func() float64 { return w.meter("capstan_lists_total") }).Should(BeNumerically(">", lists))
		w.g.Eventually(w.sight(app)).Should(Equal(ready("1.0.0")))
	}
	w.deploy(w.hub, u, "1.0.1")
	w.g.Eventually(w.sight(app)).Should(Equal(ready("1.0.1")))
}

// TestServerOfClusterChanges: the watch over the old connection continues, fresh, until the
// watch over the new one is synced, for any time that takes. Then one watch is left.
func TestServerOfClusterChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	app := w.release(w.admin("prod", home), "web")
	gone := w.release(multicluster.ClusterName(app.Cluster), "gone")
	u, other := w.createRelease(w.hub, w.namespace, "web"), w.createRelease(w.hub, w.namespace, "gone")
	w.deploy(w.hub, u, "1.0.0")
	w.deploy(w.hub, other, "1.0.0")
	w.use("shop", app, gone)
	w.g.Eventually(w.sight(app)).Should(Equal(ready("1.0.0")))
	w.g.Eventually(w.sight(gone)).Should(Equal(ready("1.0.0")))

	// A user who may identify the cluster, but not list.
	user := "mover-" + w.namespace
	w.grant(user, "", "namespaces")
	w.g.Eventually(func() (bool, error) { // The API server applies the grant a moment later.
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "namespaces", Name: metav1.NamespaceSystem},
		}}
		err := w.hub.Create(t.Context(), review)
		return review.Status.Allowed, err
	}).Should(BeTrue())
	proxy, err := controlplane.NewProxy(home.Get(t).Config().Host)
	w.g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = proxy.Close() })
	raw, err := home.Get(t).UserKubeconfig(proxy.URL(), user)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.kubeconfig("prod", raw)
	w.g.Eventually(func() int64 { s, _ := w.manager.Snapshot(multicluster.ClusterName(app.Cluster)); return s.Epoch }).Should(BeEquivalentTo(2))
	w.deploy(w.hub, u, "1.0.1")
	w.g.Eventually(w.sight(app)).Should(Equal(ready("1.0.1")), "over the old server")
	w.g.Expect(w.hub.Delete(t.Context(), other)).To(Succeed())
	w.g.Eventually(w.sight(gone)).Should(Equal(absent))
	w.g.Eventually(func() float64 { return w.meter("capstan_informers") }).Should(BeEquivalentTo(2))

	lists := w.meter("capstan_lists_total")
	w.grant(user, apps.HelmRelease.Group, "helmreleases")
	w.g.Eventually(func() float64 { return w.meter("capstan_lists_total") }).Should(BeNumerically(">", lists))
	w.g.Eventually(func() float64 { return w.meter("capstan_informers") }).Should(BeEquivalentTo(1), "the old one ended")
	w.g.Eventually(w.sight(app)).Should(Equal(ready("1.0.1")))
	w.deploy(w.hub, u, "1.0.2")
	w.g.Eventually(w.sight(app)).Should(Equal(ready("1.0.2")), "over the new server")
	proxy.Set(controlplane.Swallow)
	w.g.Eventually(func() bool { return w.sight(app)().Fresh }).Should(BeFalse(), "nothing is left of the old")
}

// grant lets a user read a resource everywhere.
func (w *world) grant(user, group, resource string) {
	w.t.Helper()
	name := user + "-" + resource
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{"get", "list", "watch"}}},
	}
	w.g.Expect(w.hub.Create(w.t.Context(), role)).To(Succeed())
	w.g.Expect(w.hub.Create(w.t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})).To(Succeed())
}
