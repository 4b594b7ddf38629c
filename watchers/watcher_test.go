package watchers_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/capstan-hub/capstan/index"
	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/watchers"
	"github.com/capstan-hub/capstan/watchers/apps"
)

// C4, over a watch: missing, unready, ready, another revision, deleted.
func TestTransitions(t *testing.T) {
	w := newWorld(t, nil)
	w.follow("p", object("web"))
	w.expect("web", func(g Gomega, o index.Observation) { g.Expect(o.Found).To(BeFalse()) })
	w.release("web", "1.0.0", false)
	w.expect("web", func(g Gomega, o index.Observation) {
		g.Expect(o.Found).To(BeTrue())
		g.Expect(o.Ready).To(BeFalse())
		g.Expect(o.Message).To(ContainSubstring("as told"))
	})
	w.release("web", "1.0.0", true)
	w.expect("web", func(g Gomega, o index.Observation) {
		g.Expect(o.Ready).To(BeTrue())
		g.Expect(o.Revision).To(Equal("1.0.0"))
	})
	w.release("web", "1.1.0", true)
	w.expect("web", func(g Gomega, o index.Observation) { g.Expect(o.Revision).To(Equal("1.1.0")) })
	w.g.Expect(w.remote.Resource(helmGVR).Namespace("default").Delete(t.Context(), "web", metav1.DeleteOptions{})).To(Succeed())
	w.expect("web", func(g Gomega, o index.Observation) { g.Expect(o.Found).To(BeFalse()) })
}

// A heartbeat in a workload cluster wakes nobody; a changed revision does, once.
func TestHeartbeatWakesNobody(t *testing.T) {
	w := newWorld(t, nil)
	w.release("beat", "1.0.0", true)
	w.follow("p", object("beat"))
	w.expect("beat", func(g Gomega, o index.Observation) { g.Expect(o.Revision).To(Equal("1.0.0")) })
	before, observed := w.wakes.liveOf("p"), w.metric("capstan_observations_total")
	c := w.remote.Resource(helmGVR).Namespace("default")
	for i := range 5 {
		u, err := c.Get(t.Context(), "beat", metav1.GetOptions{})
		w.g.Expect(err).NotTo(HaveOccurred())
		u.SetAnnotations(map[string]string{"beat": string(rune('a' + i))})
		_, err = c.Update(t.Context(), u, metav1.UpdateOptions{})
		w.g.Expect(err).NotTo(HaveOccurred())
	}
	w.g.Eventually(func() float64 { return w.metric("capstan_observations_total") }).Should(BeNumerically(">=", observed+5), "they were seen")
	w.g.Expect(w.wakes.liveOf("p")).To(Equal(before), "and woke nobody")
	w.release("beat", "1.1.0", true)
	w.g.Eventually(func() int { return w.wakes.liveOf("p") }).Should(Equal(before + 1))
}

// C10: a watch ends only when its last user goes, also when what is followed never
// existed; and comes back with the next.
func TestWatchEndsWithItsLastUser(t *testing.T) {
	w := newWorld(t, nil)
	w.release("gc", "1.0.0", true)
	w.follow("first", object("gc"))
	w.follow("second", object("never-there"))
	w.expect("gc", func(g Gomega, o index.Observation) { g.Expect(o.Revision).To(Equal("1.0.0")) })
	w.expect("never-there", func(g Gomega, o index.Observation) { g.Expect(o.Found).To(BeFalse()) })
	informers := func() float64 { return w.metric("capstan_informers") }
	w.g.Expect(informers()).To(BeEquivalentTo(1), "one for both")
	w.unfollow("first")
	w.g.Consistently(informers, "1s").Should(BeEquivalentTo(1), "the second still uses it")
	w.unfollow("second")
	w.g.Eventually(informers).Should(BeZero())
	w.follow("third", object("gc"))
	w.expect("gc", func(g Gomega, o index.Observation) { g.Expect(o.Revision).To(Equal("1.0.0")) })
}

// An object that nobody demanded is stored as its key; demanded later, it is read
// by itself: nothing is listed again, and its changes come by the watch.
func TestDemandedLater(t *testing.T) {
	w := newWorld(t, nil)
	w.release("now", "1.0.0", true)
	w.release("later", "2.0.0", true)
	w.follow("p", object("now"))
	w.expect("now", func(g Gomega, o index.Observation) { g.Expect(o.Revision).To(Equal("1.0.0")) })
	lists := w.metric("capstan_lists_total")
	w.follow("q", object("later"))
	w.expect("later", func(g Gomega, o index.Observation) { g.Expect(o.Revision).To(Equal("2.0.0")) })
	w.release("later", "2.1.0", true)
	w.expect("later", func(g Gomega, o index.Observation) { g.Expect(o.Revision).To(Equal("2.1.0")) })
	w.g.Expect(w.metric("capstan_lists_total")).To(Equal(lists))
	// Given up and taken up again before the informer lingered out.
	w.unfollow("q")
	w.follow("q", object("later"))
	w.expect("later", func(g Gomega, o index.Observation) { g.Expect(o.Revision).To(Equal("2.1.0")) })
}

// A kind that is not installed says so and keeps no other kind; installed later, it
// is watched.
func TestKindInstalledLater(t *testing.T) {
	w := newWorld(t, nil)
	missing := index.Object{Kind: index.Kind{Group: apps.Kustomization.Group, Kind: apps.Kustomization.Kind}, Namespace: "default", Name: "k"}
	w.follow("p", missing, object("beside"))
	w.expect("beside", func(g Gomega, o index.Observation) { g.Expect(o.Found).To(BeFalse()) })
	w.g.Eventually(func(g Gomega) {
		_, _, fresh := w.index.Last(missing)
		g.Expect(fresh.Reason).To(Equal(watchers.ReasonNotInstalled))
		g.Expect(fresh.Message).To(ContainSubstring("install its CRD"))
	}).Should(Succeed())
	crds, err := envtest.InstallCRDs(plane.Config(), envtest.CRDInstallOptions{Paths: controlplane.CRDs("kustomize-controller"), ErrorIfPathMissing: true})
	w.g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { uninstall(t, crds) })
	w.g.Eventually(func(g Gomega) {
		o, known, fresh := w.index.Last(missing)
		g.Expect(fresh.Fresh).To(BeTrue(), fresh.Message)
		g.Expect(known).To(BeTrue())
		g.Expect(o.Found).To(BeFalse())
	}).Should(Succeed())
}

func uninstall(t *testing.T, crds []*apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	NewWithT(t).Expect(envtest.UninstallCRDs(plane.Config(), envtest.CRDInstallOptions{CRDs: crds})).To(Succeed())
}

// Credentials that may list one namespace only: it is watched, others say what right
// is missing.
func TestNamespacedCredentials(t *testing.T) {
	g := NewWithT(t)
	c, err := client.New(plane.Config(), client.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	for _, o := range []client.Object{
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "narrow"}, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{helmGVR.Group}, Resources: []string{helmGVR.Resource}, Verbs: []string{"get", "list", "watch"},
		}}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "narrow"},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "narrow"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "narrow"}}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "closed"}},
	} {
		g.Expect(c.Create(t.Context(), o)).To(Succeed())
	}
	config, err := plane.UserConfig("narrow")
	g.Expect(err).NotTo(HaveOccurred())
	w := newWorld(t, config)
	w.release("narrow", "1.0.0", true)
	w.follow("p", object("narrow"))
	w.expect("narrow", func(g Gomega, o index.Observation) { g.Expect(o.Revision).To(Equal("1.0.0")) })
	w.release("narrow", "1.1.0", true)
	w.expect("narrow", func(g Gomega, o index.Observation) { g.Expect(o.Revision).To(Equal("1.1.0")) })
	w.unfollow("p")
	closed := index.Object{Kind: helm, Namespace: "closed", Name: "x"}
	w.follow("q", closed)
	w.g.Eventually(func(g Gomega) {
		_, _, fresh := w.index.Last(closed)
		g.Expect(fresh.Reason).To(Equal(watchers.ReasonForbidden), fresh.Message)
	}).Should(Succeed())
}
