package faults

import (
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/playground/simulated"
	"github.com/capstan-hub/capstan/watchers"
)

// TestAnswersThatAreNone: a cluster sends wrong responses. The hub shows its state, the
// other cluster is not affected, and the first recovers.
func TestAnswersThatAreNone(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]simulated.Mode{
		"forbidden": simulated.Forbidden, "too many requests": simulated.TooMany, "internal error": simulated.Broken,
		"garbage": simulated.Garbage, "huge": simulated.Huge, "endless": simulated.Endless, "no CRD": simulated.NoCRD,
	} {
		for _, atStart := range []bool{true, false} {
			when := map[bool]string{true: "at start", false: "while watching"}[atStart]
			t.Run(name+" "+when, func(t *testing.T) {
				t.Parallel()
				fleet := simulated.Options{Clusters: 2, Applications: 1}
				if mode == simulated.Huge && !soaks() {
					fleet.ApplicationBytes = 1 << 10
				}
				w := newWorld(t, fleet)
				if mode == simulated.Huge { // 20,000 objects are decoded repeatedly, with the race detector on.
					w.g.SetDefaultEventuallyTimeout(5 * time.Minute)
				}
				w.pipelines()
				odd, sound := w.clusters[0], w.clusters[1]
				if atStart {
					odd.Set(mode)
				}
				w.start()
				w.allRun("1.0.0", sound)
				if !atStart {
					w.allRun("1.0.0", odd)
					lists := w.lists()
					odd.Set(mode)
					odd.EndWatches()
					if mode == simulated.Huge || mode == simulated.Endless {
						// Only a list shows it. A watch that ends within a second of its begin is listed anew.
						w.g.Eventually(func() int { odd.EndWatches(); return w.lists() }).Should(BeNumerically(">", lists))
					}
				}
				w.g.Eventually(func(g Gomega) {
					target, err := w.target(odd.Name(), odd)
					g.Expect(err).NotTo(HaveOccurred())
					g.Expect(target.Ready && !target.Stale).To(BeFalse(), "not relied upon")
				}).Should(Succeed())
				w.g.Eventually(func() string { s, _ := w.connection(odd); return s.Message }).ShouldNot(BeEmpty())
				sound.Deploy(0, "1.1.0")
				w.allRun("1.1.0", sound)
				odd.Deploy(0, "1.1.0")
				odd.Set(simulated.Serve)
				w.allRun("1.1.0", odd)
				w.reaches(odd, capstanv1.ConnectionReady)
			})
		}
	}
}

// TestEndlessList: a list with endless pages does not use all memory of the hub.
func TestEndlessList(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simulated.Options{Clusters: 1, Applications: 2})
	w.pipelines()
	c := w.clusters[0]
	c.Set(simulated.Endless)
	w.start()
	w.g.Eventually(func(g Gomega) {
		connection, err := w.connection(c)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(connection.Kinds).To(ConsistOf(HaveField("Reason", watchers.ReasonTooLarge)))
	}).Should(Succeed())
}

// TestBlindIsShown: a cluster responds to probes, but a watched kind cannot be watched any
// more. The ClusterConnection shows that, too.
func TestBlindIsShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simulated.Options{Clusters: 1, Applications: 1})
	w.pipelines()
	c := w.clusters[0]
	w.start()
	w.allRun("1.0.0", c)
	c.Set(simulated.TooMany)
	c.EndWatches()
	w.staleAt(c, "1.0.0")
	w.g.Expect(w.reaches(c, capstanv1.ConnectionDegraded).Kinds).To(ConsistOf(
		And(HaveField("Synced", false), HaveField("Reason", watchers.ReasonThrottled))))
	c.Set(simulated.Serve)
	w.g.Expect(w.reaches(c, capstanv1.ConnectionReady).Kinds).To(ConsistOf(HaveField("Synced", true)))
}

// TestGone: the server compacts the history of a watch while the watch is closed. The kind
// is listed again, and nothing is missed.
func TestGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simulated.Options{Clusters: 1, Applications: 2})
	w.pipelines()
	c := w.clusters[0]
	w.start()
	w.allRun("1.0.0", c)
	c.Set(simulated.Gone)
	c.EndWatches()
	c.Deploy(0, "1.1.0")
	c.Set(simulated.Serve)
	w.allRun("1.1.0", c)
	c.Set(simulated.Gone)
	c.EndWatches()
	c.DeleteApp(0)
	c.Set(simulated.Serve)
	w.g.Eventually(func(g Gomega) {
		target, err := w.target(c.Name(), c)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(target.Ready).To(BeFalse())
		g.Expect(target.Revision).To(BeEmpty())
	}).Should(Succeed(), "a deletion that no watch told")
}

// TestBackBeforeItsWatch: a cluster is reachable again, but its watch is not open yet.
// Until then, observations from before the outage are not fresh.
func TestBackBeforeItsWatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simulated.Options{Clusters: 1, Applications: 1})
	w.spread = 2 * time.Second
	w.pipelines()
	c := w.clusters[0]
	w.start()
	w.allRun("1.0.0", c)
	// Its connections do not break, so that the watch is cut by the hub, late.
	c.Set(simulated.HalfOpen)
	w.staleAt(c, "1.0.0")
	w.reaches(c, capstanv1.ConnectionUnreachable)
	c.Deploy(0, "1.1.0")
	c.Set(simulated.Serve)
	w.g.Eventually(func(g Gomega) string {
		target, err := w.target(c.Name(), c)
		g.Expect(err).NotTo(HaveOccurred())
		if target.Revision == "1.0.0" && !target.Stale {
			StopTrying("what ran before the outage passes for fresh").Now()
		}
		return target.Revision
	}, patience, 5*time.Millisecond).Should(Equal("1.1.0"))
}

// TestFlapping: a cluster fails and recovers faster than the hub decides. Each of its
// revisions is observed once in the end, and promoted once.
func TestFlapping(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simulated.Options{Clusters: 2, Applications: 1})
	dev, prod := w.clusters[0], w.clusters[1]
	p := w.pipeline("flapping", 0, dev, prod)
	w.promote(p)
	w.start()
	w.runs("flapping", dev, "1.0.0")
	w.runs("flapping", prod, "1.0.0")
	var down, up atomic.Int32
	for n := range 6 {
		dev.Set(simulated.Refuse)
		down.Add(1)
		if n%2 == 0 {
			w.g.Eventually(func() capstanv1.ConnectionState { s, _ := w.connection(dev); return s.State }).
				ShouldNot(Equal(capstanv1.ConnectionReady))
		}
		dev.Set(simulated.Serve)
		up.Add(1)
	}
	dev.Deploy(0, "1.1.0")
	w.runs("flapping", dev, "1.1.0")
	w.g.Eventually(func() []string { return w.promotions("flapping") }).
		Should(ConsistOf(prod.Name() + " 1.1.0 " + string(capstanv1.PhaseAwaitingRollout)))
	prod.Deploy(0, "1.1.0")
	w.g.Eventually(func() []string { return w.promotions("flapping") }).
		Should(ConsistOf(prod.Name() + " 1.1.0 " + string(capstanv1.PhaseSucceeded)))
	w.g.Expect(dev.Counts().OpenWatches).To(BeEquivalentTo(1))
}

// promote gives a Pipeline the notification strategy.
func (w *world) promote(p *pipelinesv1.Pipeline) {
	w.Helper()
	p.Spec.Promotion = &pipelinesv1.Promotion{Strategy: pipelinesv1.Strategy{Notification: &pipelinesv1.NotificationPromotion{}}}
	w.g.Expect(admin.Update(w.Context(), p)).To(Succeed())
}

// TestClusterOfTheSameName: a Cluster is deleted and another of the same name is created,
// with another server. No observation of the first is left.
func TestClusterOfTheSameName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simulated.Options{Clusters: 1, Applications: 1})
	w.pipelines()
	c := w.clusters[0]
	w.start()
	w.allRun("1.0.0", c)
	c.Deploy(0, "1.1.0")
	w.allRun("1.1.0", c)
	w.withdraw(c)
	w.g.Eventually(func() uint64 { return uint64(c.Counts().OpenWatches) }).Should(BeZero(), "informers end with the Cluster")
	c.RotateServer()
	c.CloseOld()
	c.Rebuild()
	w.declare(c)
	w.allRun("1.0.0", c)
}

// jumping is a wall clock that can be set.
type jumping struct {
	clock.RealClock
	by atomic.Int64
}

func (j *jumping) Now() time.Time                  { return j.RealClock.Now().Add(time.Duration(j.by.Load())) }
func (j *jumping) Since(t time.Time) time.Duration { return j.Now().Sub(t) }

// TestClockJumps: the machine's clock is put forward by an hour, and is an hour back
// when the hub starts again. Nothing is promoted twice, and all is fresh again.
func TestClockJumps(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simulated.Options{Clusters: 2, Applications: 1})
	dev, prod := w.clusters[0], w.clusters[1]
	w.promote(w.pipeline("jumps", 0, dev, prod))
	at := &jumping{}
	w.clock = at
	stop := w.start()
	w.runs("jumps", prod, "1.0.0")
	dev.Deploy(0, "1.1.0")
	w.g.Eventually(func() []string { return w.promotions("jumps") }).Should(HaveLen(1))
	at.by.Store(int64(time.Hour))
	dev.Touch(0)
	w.runs("jumps", dev, "1.1.0")
	w.runs("jumps", prod, "1.0.0")
	w.g.Expect(w.promotions("jumps")).To(HaveLen(1))
	stop()
	at.by.Store(0)
	w.start()
	prod.Deploy(0, "1.1.0")
	w.runs("jumps", prod, "1.1.0")
	w.g.Eventually(func() []string { return w.promotions("jumps") }).
		Should(ConsistOf(prod.Name() + " 1.1.0 " + string(capstanv1.PhaseSucceeded)))
}

// TestManagementClusterAway: the management cluster is unreachable while workload clusters
// change and one of them renews its token. The hub keeps its watches, and shows all
// changes after the outage.
func TestManagementClusterAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simulated.Options{Clusters: 3, Applications: 1})
	w.pipelines()
	proxy, err := controlplane.NewProxy(management.Config().Host)
	w.g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = proxy.Close() })
	w.config.Host = proxy.URL()
	w.start()
	w.allRun("1.0.0", w.clusters...)
	lists := w.lists()
	for _, mode := range []controlplane.ProxyMode{controlplane.Refuse, controlplane.Swallow} {
		proxy.Set(mode)
		w.clusters[0].RotateToken()
		w.renew(w.clusters[0]) // By the test's own connection.
		for n, c := range w.clusters {
			c.Deploy(0, revision(10*int(mode)+n))
			w.g.Consistently(func() uint64 { return uint64(c.Counts().OpenWatches) }, time.Second).Should(BeNumerically(">=", 1))
		}
		proxy.Set(controlplane.Pass)
		for n, c := range w.clusters {
			w.runs(c.Name(), c, revision(10*int(mode)+n))
		}
	}
	w.g.Expect(w.lists()).To(Equal(lists), "lists at the workload clusters")
}

// TestHubStoppedMeanwhile: of the revisions that were deployed while no hub ran, only the
// last one is promoted, once.
func TestHubStoppedMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simulated.Options{Clusters: 2, Applications: 1})
	dev, prod := w.clusters[0], w.clusters[1]
	w.promote(w.pipeline("stopped", 0, dev, prod))
	stop := w.start()
	w.runs("stopped", prod, "1.0.0")
	stop()
	dev.Deploy(0, "1.1.0")
	dev.Deploy(0, "1.2.0")
	w.start()
	w.g.Eventually(func() []string { return w.promotions("stopped") }).
		Should(ConsistOf(prod.Name() + " 1.2.0 " + string(capstanv1.PhaseAwaitingRollout)))
}
