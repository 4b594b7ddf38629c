package browser

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/hub/dashboard"
	"github.com/capstan-hub/capstan/playground/ports"
)

// A user who may list one namespace sees that namespace in lists, counts and the stream, and
// no other. The pages name the missing permissions.
func TestOwnNamespaceOnly(t *testing.T) {
	pipeline(t, "foreign", "dev", "prod")
	pipelineIn(t, teamNamespace, "own", nil, "dev", "prod")
	b := newTab(t)
	b.signInWith(world.teamToken, "/pipelines")
	own := func() string {
		return seen[string](b, `document.getElementById("pipeline/team/own")?.innerText || ""`)
	}
	b.Eventually(own, patience).Should(ContainSubstring("1.0.0"))
	b.Eventually(b.main, patience).Should(And(ContainSubstring("1 Pipeline"), Not(ContainSubstring("foreign")), Not(ContainSubstring("apps"))))
	b.Expect(eval[int](b, `document.querySelectorAll("[data-list=rows] > [id]").length`)).To(Equal(1))

	// Keep all messages of this user's stream.
	b.do(script(`window.received = ""; window.stream = new EventSource("/stream?page=/pipelines&from=" + document.body.dataset.version);
		for (const name of ["patch", "resync"]) window.stream.addEventListener(name, (e) => { window.received += e.data; }); true`))
	b.Expect(release("foreign", "dev").Deploy(t.Context(), "6.6.6")).To(Succeed())
	b.Eventually(func(g Gomega) {
		p := &pipelinesv1.Pipeline{ObjectMeta: metav1.ObjectMeta{Namespace: appsNamespace, Name: "foreign"}}
		g.Expect(world.admin.Get(t.Context(), client.ObjectKeyFromObject(p), p)).To(Succeed())
		g.Expect(p.Status.Environments["dev"].Targets[0].Revision).To(Equal("6.6.6"))
	}, patience).Should(Succeed(), "the hub has observed it")
	b.Expect(release("own", "dev").Deploy(t.Context(), "1.1.0")).To(Succeed())
	b.Eventually(own, patience).Should(ContainSubstring("1.1.0"))
	b.Eventually(func() string { return seen[string](b, `window.received`) }, patience).Should(ContainSubstring("1.1.0"))
	received := eval[string](b, `window.stream.close(), window.received`)
	b.Expect(received).NotTo(Or(ContainSubstring("foreign"), ContainSubstring("6.6.6")))

	for path, says := range map[string]string{
		"/": "list clusterconnections.capstan.dev", "/pipelines/apps/foreign": "you may not see it", "/clusters/Cluster/fleet/prod": "you may not see it",
		"/promotions": "1 promotion", "/instances": "list awsmachines", "/backends": "list eventingbackends", "/about": "0 clusters, 1 Pipeline",
	} {
		b.open(path)
		b.Eventually(b.main, patience).Should(ContainSubstring(says), path)
		b.Expect(eval[string](b, `document.documentElement.outerHTML.replaceAll(location.href, "")`)).NotTo(Or(ContainSubstring("6.6.6"), ContainSubstring("apps/foreign:")), path)
		b.Expect(eval[string](b, `document.querySelector("main").innerText`)).NotTo(ContainSubstring("apps/foreign"), path)
	}
}

// The map of an empty fleet has the management cluster. A fleet of one and of five hundred
// is shown completely, and an open page is updated. A separate hub, a standby without
// authentication, serves the pages.
func TestFleetSizes(t *testing.T) {
	b := newTab(t)
	address, err := ports.Free()
	b.Expect(err).NotTo(HaveOccurred())
	// Another replica has the lease for longer than the test takes.
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: largeNamespace, Name: hub.LeaseName}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: ptr.To("another"), LeaseDurationSeconds: ptr.To[int32](3600), AcquireTime: ptr.To(metav1.NowMicro()), RenewTime: ptr.To(metav1.NowMicro()),
	}}
	b.Expect(world.admin.Create(t.Context(), lease)).To(Succeed())
	stop, err := launch(hub.Options{
		Config: world.plane.Config(), Namespaces: []string{largeNamespace}, LeaderElect: true, LeaderElectionNamespace: largeNamespace, Logger: logr.Discard(),
		Dashboard: hub.Dashboard{BindAddress: address, Auth: dashboard.AuthNone},
	})
	b.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { b.Expect(stop()).To(Succeed()) })

	b.Eventually(func() error {
		ctx, cancel := context.WithTimeout(b.ctx, actionTime)
		defer cancel()
		return chromedp.Do(ctx, chromedp.Navigate("http://"+address+"/"), chromedp.WaitVisible(chromedp.CSS("main h1")))
	}, patience).Should(Succeed())
	const squares = `document.querySelectorAll(".squares a.mark").length`
	shown := func() int { return seen[int](b, squares) }
	b.Eventually(b.main, patience).Should(And(ContainSubstring("1 cluster, well"), ContainSubstring("Standby replica")))
	b.Expect(eval[int](b, squares)).To(Equal(1), "the management cluster")
	b.do(kept())
	connect(t, 0, 1)
	b.Eventually(shown, patience).Should(Equal(2))
	b.Eventually(b.main, patience).Should(ContainSubstring("large/cluster-000"))
	connect(t, 1, 500)
	b.Eventually(shown, patience).Should(Equal(501))
	b.Eventually(b.main, patience).Should(ContainSubstring("large/cluster-499"))
	b.Expect(eval[bool](b, `window.kept === true`)).To(BeTrue(), "it was not reloaded")
	for _, width := range []int64{zoomed, screen} {
		b.themed("light", width)
		b.do(chromedp.Navigate("http://"+address+"/"), chromedp.WaitVisible(chromedp.CSS(".squares")))
		b.Eventually(shown, patience).Should(Equal(501))
		b.Expect(eval[int](b, `document.scrollingElement.scrollWidth`)).To(BeNumerically("<=", width))
	}
	b.do(chromedp.Navigate("http://"+address+"/clusters?q=cluster-042"), chromedp.WaitVisible(chromedp.CSS(`[data-list="rows"]`)))
	b.Eventually(func() int { return seen[int](b, `document.querySelectorAll("[data-list=rows] > [id]").length`) }, patience).Should(Equal(1), "the search finds one of five hundred")
}

// connect creates ClusterConnections, as the leader does.
func connect(t *testing.T, from, to int) {
	t.Helper()
	const writers = 16
	var group errgroup.Group
	group.SetLimit(writers)
	for i := from; i < to; i++ {
		group.Go(func() error {
			name := fmt.Sprintf("cluster-%03d", i)
			c := &capstanv1.ClusterConnection{
				ObjectMeta: metav1.ObjectMeta{Namespace: largeNamespace, Name: "cluster." + name},
				Spec:       capstanv1.ClusterConnectionSpec{ClusterRef: pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Namespace: largeNamespace, Name: name}},
			}
			if err := world.admin.Create(t.Context(), c); err != nil {
				return err
			}
			c.Status = capstanv1.ClusterConnectionStatus{State: capstanv1.ConnectionReady, Reason: "Connected", KubernetesVersion: "v1.36.3", LastTransitionTime: &metav1.Time{Time: time.Now()}}
			return world.admin.Status().Update(t.Context(), c)
		})
	}
	NewWithT(t).Expect(group.Wait()).To(Succeed())
}
