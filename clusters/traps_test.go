package clusters_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mcclusters "sigs.k8s.io/multicluster-runtime/pkg/clusters"
	mccontroller "sigs.k8s.io/multicluster-runtime/pkg/controller"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
)

// The traps of multicluster-runtime that the Manager avoids: each is shown to be
// there, and then not to be here. P1 and P7 are in package watchers.

// TestTrapP3: a cluster that is replaced under its name is removed by the end of the
// one before.
func TestTrapP3(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *clusters.Options) { o.Timings.Handover = 50 * time.Millisecond })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	built := func(agent string) cluster.Cluster {
		config := workload.Get(t).Config()
		config.UserAgent = agent
		cl, err := cluster.New(config)
		w.g.Expect(err).NotTo(HaveOccurred())
		return cl
	}
	theirs := mcclusters.New[cluster.Cluster]()
	theirs.EqualClusters = func(cluster.Cluster, cluster.Cluster) bool { return false }
	w.g.Expect(theirs.AddOrReplace(ctx, "prod", built("one"), nil)).To(Succeed())
	// It races with itself: the replacement is lost now, or refused later.
	w.g.Eventually(func() error {
		if err := theirs.AddOrReplace(ctx, "prod", built("two"), nil); err != nil {
			return err
		}
		var err error
		for range 20 {
			runtime.Gosched()
			if _, err = theirs.Get(ctx, "prod"); err != nil {
				return err
			}
		}
		return nil
	}).Should(HaveOccurred(), "the trap")
	cancel()

	w.manager.SetAware(&aware{engage: func(context.Context, multicluster.ClusterName) error { return nil }})
	w.start()
	old := w.connected("prod", "")
	w.selfManaged("prod", true)
	w.secret("prod-kubeconfig", "value", w.kubeconfig(w.proxy().URL()))
	w.g.Eventually(old.Context().Done()).Should(BeClosed())
	w.reaches("prod", capstanv1.ConnectionReady, clusters.ReasonConnected)
	get := func() error { _, err := w.manager.Get(t.Context(), w.clusterName("prod")); return err }
	w.g.Eventually(get).Should(Succeed())
	w.g.Consistently(get, 500*time.Millisecond).Should(Succeed())
	now, err := w.manager.Connection(w.clusterName("prod"))
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(now.Context().Err()).NotTo(HaveOccurred())
}

// still is a source that tells nothing.
type still struct{}

func (still) ForCluster(multicluster.ClusterName, cluster.Cluster) (source.TypedSource[mcreconcile.Request], bool, error) {
	return source.TypedFunc[mcreconcile.Request](func(context.Context, workqueue.TypedRateLimitingInterface[mcreconcile.Request]) error {
		return nil
	}), true, nil
}

// TestTrapP5: every engagement leaves a goroutine behind until the controller ends.
func TestTrapP5(t *testing.T) {
	g := NewWithT(t)
	controller, err := mccontroller.NewUnmanaged("p5", nil, mccontroller.Options{
		SkipNameValidation: ptr.To(true),
		Reconciler: mcreconcile.Func(func(context.Context, mcreconcile.Request) (reconcile.Result, error) {
			return reconcile.Result{}, nil
		}),
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(controller.MultiClusterWatch(still{})).To(Succeed())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- controller.Start(ctx) }()
	defer func() { cancel(); g.Eventually(ended, 20*time.Second).Should(Receive()) }()
	const rotations = 20
	before := runtime.NumGoroutine()
	for range rotations {
		engagement, end := context.WithCancel(ctx)
		g.Expect(controller.Engage(engagement, "prod", nil)).To(Succeed())
		end()
	}
	g.Eventually(runtime.NumGoroutine).Should(BeNumerically(">=", before+rotations), "the trap")

	// A rotation engages nothing.
	a := &aware{engage: func(context.Context, multicluster.ClusterName) error { return nil }}
	w := newWorld(t, nil)
	w.manager.SetAware(a)
	w.start()
	connection := w.connected("prod", "")
	w.selfManaged("prod", true)
	name := w.clusterName("prod")
	g.Eventually(func() int { return a.count(name) }).Should(Equal(1))
	for range rotations {
		w.secret("prod-kubeconfig", "value", w.kubeconfig(""))
	}
	w.reaches("prod", capstanv1.ConnectionReady, clusters.ReasonConnected)
	g.Consistently(func() int { return a.count(name) }, 300*time.Millisecond).Should(Equal(1))
	g.Expect(connection.Context().Err()).NotTo(HaveOccurred())
}
