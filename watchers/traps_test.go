package watchers_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mccontroller "sigs.k8s.io/multicluster-runtime/pkg/controller"
	mchandler "sigs.k8s.io/multicluster-runtime/pkg/handler"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
	mcsource "sigs.k8s.io/multicluster-runtime/pkg/source"

	"github.com/capstan-hub/capstan/watchers"
)

// The traps of multicluster-runtime that Source avoids. Each test shows the trap with
// multicluster-runtime's own source, and its absence with Source. P3 and P5 are in package
// clusters.

// newController is a multicluster controller that runs, until the test ends. (Before
// it runs, it only notes what it is to engage.)
func newController(t *testing.T, name string, r *reconciled) mccontroller.Controller {
	t.Helper()
	g := NewWithT(t)
	c := stopped(t, name, r)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		g.Eventually(ended, patience).Should(Receive(BeNil()))
	})
	runs := make(chan struct{}, 1)
	g.Eventually(func() chan struct{} {
		g.Expect(c.Watch(source.TypedFunc[mcreconcile.Request](func(context.Context, workqueue.TypedRateLimitingInterface[mcreconcile.Request]) error {
			select {
			case runs <- struct{}{}:
			default:
			}
			return nil
		}))).To(Succeed())
		return runs
	}, patience).Should(Receive())
	return c
}

// stopped is a multicluster controller that does not run.
func stopped(t *testing.T, name string, r *reconciled) mccontroller.Controller {
	t.Helper()
	c, err := mccontroller.NewUnmanaged(name, nil, mccontroller.Options{Reconciler: r, SkipNameValidation: ptr.To(true)})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return c
}

// engage says when Engage has returned.
func engage(ctx context.Context, c mccontroller.Controller, name string, cl cluster.Cluster) chan error {
	done := make(chan error, 1)
	go func() { done <- c.Engage(ctx, multicluster.ClusterName(name), cl) }()
	return done
}

// TestTrapP1: one cluster that may not be listed stops the engagement of all others.
func TestTrapP1(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *watchers.Options) { o.Kinds = kinds })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	built := func(config *rest.Config) cluster.Cluster {
		t.Helper()
		cl, err := cluster.New(config)
		w.g.Expect(err).NotTo(HaveOccurred())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = cl.Start(ctx) }()
		t.Cleanup(func() { cancel(); <-ended })
		return cl
	}
	nobody, err := home.Get(t).UserConfig("nobody")
	w.g.Expect(err).NotTo(HaveOccurred())
	forbidden, healthy := built(nobody), built(home.Get(t).Config())

	theirs := newController(t, "p1-theirs", &reconciled{})
	w.g.Expect(theirs.MultiClusterWatch(mcsource.Kind[client.Object](&corev1.ConfigMap{}, mchandler.TypedEnqueueRequestForObject[client.Object]()))).To(Succeed())
	first := engage(ctx, theirs, "forbidden", forbidden)
	w.g.Consistently(first, 300*time.Millisecond).ShouldNot(Receive(), "the trap: Engage waits")
	second := engage(ctx, theirs, "healthy", healthy)
	w.g.Consistently(second, time.Second).ShouldNot(Receive(), "the trap: and so do all others")
	defer func() {
		cancel()
		w.g.Eventually(first).Should(Receive())
		w.g.Eventually(second).Should(Receive())
	}()

	installCranes(t, home)
	raw, err := home.Get(t).UserKubeconfig("", "nobody")
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(w.hub.Create(t.Context(), newCrane(w.namespace, "p1", nil))).To(Succeed())
	seen := &reconciled{}
	ours := newController(t, "p1-ours", seen)
	w.g.Expect(ours.MultiClusterWatch(w.watcher.Source(crane, watchers.Enqueue))).To(Succeed())
	w.g.Eventually(engage(ctx, ours, string(w.cluster("forbidden", raw)), forbidden)).Should(Receive(BeNil()))
	name := w.admin("healthy", home)
	w.g.Eventually(engage(ctx, ours, string(name), healthy)).Should(Receive(BeNil()))
	w.g.Eventually(seen.has(string(name), "p1")).Should(BeTrue())
}

// TestTrapP7: objects of an initial list are queued before live changes, because their
// priority is lost.
func TestTrapP7(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *watchers.Options) { o.Kinds = kinds })
	installCranes(t, home)
	for i := range 3 {
		w.g.Expect(w.hub.Create(t.Context(), newCrane(w.namespace, fmt.Sprintf("old-%d", i), nil))).To(Succeed())
	}
	name := w.admin("prod", home)
	// priorities of what is queued, by name, for objects of this test.
	drain := func(handle mchandler.TypedEventHandlerFunc[client.Object, mcreconcile.Request]) func() map[string]int {
		q := priorityqueue.New[mcreconcile.Request]("trap")
		t.Cleanup(q.ShutDown)
		s, _, err := w.watcher.Source(crane, handle).ForCluster(name, nil)
		w.g.Expect(err).NotTo(HaveOccurred())
		w.g.Expect(s.Start(t.Context(), q)).To(Succeed())
		all := map[string]int{}
		return func() map[string]int {
			for q.Len() > 0 {
				item, priority, _ := q.GetWithPriority()
				if item.Namespace == w.namespace {
					all[item.Name] = priority
				}
				q.Done(item)
			}
			return all
		}
	}
	theirs, ours := drain(mchandler.TypedEnqueueRequestForObject[client.Object]()), drain(watchers.Enqueue)
	w.g.Eventually(theirs).Should(Equal(map[string]int{"old-0": 0, "old-1": 0, "old-2": 0}), "the trap")
	low := handler.LowPriority
	w.g.Eventually(ours).Should(Equal(map[string]int{"old-0": low, "old-1": low, "old-2": low}))
	w.g.Expect(w.hub.Create(t.Context(), newCrane(w.namespace, "live", nil))).To(Succeed())
	w.g.Eventually(ours).Should(HaveKeyWithValue("live", 0))
}
