package pipeline

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/index"
)

// A Pipeline that waits for targets is not reconciled for each of them, but for the last one, and for
// what may change its targets.
func TestHeldPipelinesAreNotWoken(t *testing.T) {
	g := NewWithT(t)
	clock := testclock.NewFakePassiveClock(time.Unix(1000, 0))
	x := index.New()
	r := New(Options{Index: x, Clock: clock})
	w := NewWaker(x)
	r.attach(w)
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	g.Expect(w.Start(t.Context(), q)).To(Succeed())
	queued := func() int {
		n := q.Len()
		for range n {
			next, _ := q.Get()
			q.Forget(next)
			q.Done(next)
		}
		return n
	}

	key, kind := types.NamespacedName{Namespace: "team", Name: "shop"}, index.Kind{Group: "helm.toolkit.fluxcd.io", Kind: "HelmRelease"}
	var objects []index.Object
	for _, cluster := range []string{"a", "b", "c"} {
		objects = append(objects, index.Object{Cluster: cluster, Kind: kind, Namespace: "apps", Name: "shop"})
	}
	x.SetPipeline(key, index.Use{Refs: []string{"a", "b", "c"}, Objects: objects})
	observe := func(n int, revision string) {
		x.SetFreshness(objects[n].Cluster, kind, index.Freshness{Fresh: true})
		w.Observed(x.Observe(objects[n], index.Observation{Found: true, Ready: true, Revision: revision}), true)
	}

	observe(0, "1.0.0")
	g.Expect(queued()).To(Equal(1), "not held")
	g.Expect(r.holds.wait(key, 2, start{}, clock.Now())).To(Equal(leastHold))
	observe(1, "1.0.0")
	in := func(state capstanv1.ConnectionState) clusters.Snapshot {
		return clusters.Snapshot{Name: "b", State: state}
	}
	connecting, ready, unreachable := in(capstanv1.ConnectionConnecting), in(capstanv1.ConnectionReady), in(capstanv1.ConnectionUnreachable)
	w.ConnectionChanged(clusters.Snapshot{Name: "b"}, connecting)
	g.Expect(r.connected()).To(BeZero())
	w.ConnectionChanged(connecting, ready)
	w.ConnectionChanged(ready, ready)
	w.ConnectionChanged(ready, unreachable)
	w.ConnectionChanged(unreachable, ready)
	g.Expect(r.connected()).To(Equal(int64(1)), "an outage is not a start")
	g.Expect(queued()).To(BeZero(), "held, one is missing")
	w.Wake([]types.NamespacedName{key}, false)
	g.Expect(queued()).To(Equal(1), "a change of the Pipeline")
	observe(2, "1.0.0")
	g.Expect(queued()).To(Equal(1), "the last")

	x.SetFreshness("c", kind, index.Freshness{Reason: index.NotWatched})
	observe(0, "1.1.0")
	g.Expect(queued()).To(BeZero(), "held, one is missing again")
	clock.SetTime(clock.Now().Add(leastHold))
	observe(0, "1.2.0")
	g.Expect(queued()).To(Equal(1), "the hold is over")
}

// A change of a cluster object wakes the Pipelines that name the cluster, and those that select clusters of its kind.
func TestReferenceChangedWakesWhoSelects(t *testing.T) {
	g := NewWithT(t)
	x := index.New()
	w := NewWaker(x)
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	g.Expect(w.Start(t.Context(), q)).To(Succeed())
	woken := func(ref clusters.Ref) []string {
		w.ReferenceChanged(ref)
		var all []string
		for range q.Len() {
			next, _ := q.Get()
			all = append(all, next.Name)
			q.Done(next)
		}
		return all
	}
	use := func(name, namespace string) {
		p := &pipelinesv1.Pipeline{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}}
		p.Spec.Environments = []pipelinesv1.Environment{{Name: "prod", Targets: []pipelinesv1.Target{{Clusters: &pipelinesv1.ClusterSelector{Namespace: namespace}}}}}
		x.SetPipeline(types.NamespacedName{Namespace: "team", Name: name}, index.Use{Refs: selectionRefs(p)})
	}
	x.SetPipeline(types.NamespacedName{Namespace: "team", Name: "names"}, index.Use{Refs: []string{"Cluster/team/eu"}})
	use("own", "")
	use("other", "fleet")
	use("all", "*")
	g.Expect(woken(clusters.Ref{Kind: "Cluster", Namespace: "team", Name: "eu"})).To(ConsistOf("names", "own", "all"))
	g.Expect(woken(clusters.Ref{Kind: "Cluster", Namespace: "fleet", Name: "us"})).To(ConsistOf("other", "all"))
	g.Expect(woken(clusters.Ref{Kind: "GitopsCluster", Namespace: "team", Name: "eu"})).To(BeEmpty())
	g.Expect(woken(clusters.SelectionRef("Cluster", "fleet"))).To(ConsistOf("other", "all"), "the Clusters are known for the first time")
}
