package watchers_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/watchers"
)

// adder records the Runnable that is added.
type adder struct{ added mcmanager.Runnable }

func (a *adder) Add(r mcmanager.Runnable) error { a.added = r; return nil }

// live counts the starts of a source that have not ended.
type live struct{ now, all atomic.Int32 }

func (l *live) ForCluster(multicluster.ClusterName, cluster.Cluster) (source.TypedSource[mcreconcile.Request], bool, error) {
	return source.TypedFunc[mcreconcile.Request](func(ctx context.Context, _ workqueue.TypedRateLimitingInterface[mcreconcile.Request]) error {
		l.now.Add(1)
		l.all.Add(1)
		context.AfterFunc(ctx, func() { l.now.Add(-1) })
		return nil
	}), true, nil
}

// TestEngagementsLeaveNothingBehind: the server or CA of a cluster changes many times. Each
// change is another engagement, and the one before ends with all of its goroutines. (Those of
// multicluster-runtime's own MultiClusterWatch do not end: TestTrapP5 in package clusters.)
func TestEngagementsLeaveNothingBehind(t *testing.T) {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(patience)
	controller, sources, mgr := newController(t, "members", &reconciled{}), &live{}, &adder{}
	g.Expect(watchers.WatchMembers(mgr, controller, sources, sources)).To(Succeed())
	before := runtime.NumGoroutine()
	const epochs = 50
	var last context.CancelFunc
	for range epochs {
		engagement, end := context.WithCancel(t.Context())
		g.Expect(mgr.added.Engage(engagement, "prod", nil)).To(Succeed())
		if last != nil {
			last()
		}
		last = end
	}
	g.Eventually(sources.now.Load).Should(BeEquivalentTo(2), "of the last epoch")
	g.Expect(sources.all.Load()).To(BeEquivalentTo(2 * epochs))
	g.Eventually(runtime.NumGoroutine).Should(BeNumerically("<=", before))
	last()
	g.Eventually(sources.now.Load).Should(BeZero())
}

// TestEngagedBeforeTheControllerStarts: on a replica that does not lead yet, the sources start
// with the controller, and end with it.
func TestEngagedBeforeTheControllerStarts(t *testing.T) {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(patience)
	controller, sources, mgr := stopped(t, "members-later", &reconciled{}), &live{}, &adder{}
	g.Expect(watchers.WatchMembers(mgr, controller, sources)).To(Succeed())
	for _, name := range []multicluster.ClusterName{"one", "two", "two"} {
		g.Expect(mgr.added.Engage(t.Context(), name, nil)).To(Succeed())
	}
	g.Expect(sources.all.Load()).To(BeZero())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- controller.Start(ctx) }()
	g.Eventually(sources.now.Load).Should(BeEquivalentTo(2))
	g.Expect(mgr.added.Engage(t.Context(), "three", nil)).To(Succeed())
	g.Eventually(sources.now.Load).Should(BeEquivalentTo(3))
	cancel()
	g.Eventually(ended).Should(Receive(BeNil()))
	g.Eventually(sources.now.Load).Should(BeZero())
}

// TestLeft: a controller is notified when sources do not deliver objects of a cluster any more.
func TestLeft(t *testing.T) {
	t.Parallel()
	var selfManaged atomic.Bool
	w := newWorld(t, func(o *watchers.Options) {
		o.Kinds = kinds
		o.SourcesIn = func(multicluster.ClusterName) bool { return selfManaged.Load() }
	})
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[mcreconcile.Request]())
	defer queue.ShutDown()
	ref := clusters.Ref{Kind: "Cluster", Namespace: w.namespace, Name: "prod"}
	name := ref.ClusterName()
	var calls atomic.Int32
	source, engage, err := w.watcher.Left(func(of multicluster.ClusterName, q workqueue.TypedRateLimitingInterface[mcreconcile.Request]) {
		if of != name || q != queue {
			t.Errorf("left %s", of)
		}
		calls.Add(1)
	}).ForCluster(name, nil)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(engage).To(BeTrue())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w.g.Expect(source.Start(ctx, queue)).To(Succeed())
	change := func(is bool) {
		selfManaged.Store(is)
		w.watcher.ReferenceChanged(ref)
	}
	change(false)
	w.g.Expect(calls.Load()).To(BeZero(), "it was not self-managed")
	change(true)
	w.g.Expect(w.watcher.Delivers(name)).To(BeTrue())
	w.g.Expect(calls.Load()).To(BeZero())
	change(false)
	w.g.Expect(w.watcher.Delivers(name)).To(BeFalse())
	w.g.Expect(calls.Load()).To(BeEquivalentTo(1))
	change(true)
	cancel()
	w.g.Eventually(calls.Load).Should(BeEquivalentTo(2), "the engagement has ended")
	change(false)
	w.g.Consistently(calls.Load, 100*time.Millisecond).Should(BeEquivalentTo(2))
}
