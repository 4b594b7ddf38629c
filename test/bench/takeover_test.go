package bench

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/playground/simulated"
)

// changesPerSecond of the traffic of a fleet, while its hubs end and begin.
const changesPerSecond = 20

// replicas are the hubs of one lease over a fleet.
type replicas struct {
	*scene
	// traffic is what happens in the fleet.
	traffic *traffic
	inbox   *inbox
	lease   time.Duration
	flags   []string
	// promoting are the Pipelines with a second environment.
	promoting []string
}

// newReplicas declares a fleet with Pipelines of twenty targets over all its applications but one, and Pipelines
// that promote the last one from one cluster to the next.
func newReplicas(t testing.TB, clusters, applications int, lease time.Duration, flags ...string) *replicas {
	t.Helper()
	r := &replicas{scene: newScene(t, simulated.Options{Clusters: clusters, Applications: applications + 1}), inbox: newInbox(t), lease: lease}
	r.flags = append([]string{"--leader-elect-lease-duration=" + lease.String(), "--events-addr=" + r.inbox.URL}, flags...)
	names := r.releases(0, applications, r.clusters, targetsEach)
	for i := 0; i+1 < min(clusters, 40); i += 2 {
		name := "line-" + strconv.Itoa(i)
		r.promoting = append(r.promoting, name)
		p := &pipelinesv1.Pipeline{
			ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: name},
			Spec: pipelinesv1.PipelineSpec{
				AppRef:    pipelinesv1.LocalAppReference{APIVersion: "helm.toolkit.fluxcd.io/v2", Kind: "HelmRelease", Name: fmt.Sprintf("app-%d", applications)},
				Promotion: &pipelinesv1.Promotion{Strategy: pipelinesv1.Strategy{Notification: &pipelinesv1.NotificationPromotion{}}},
			},
		}
		for j, env := range []string{environment, "next"} {
			p.Spec.Environments = append(p.Spec.Environments, pipelinesv1.Environment{Name: env, Targets: []pipelinesv1.Target{{
				Namespace: simulated.Namespace, ClusterRef: &pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Name: r.clusters[i+j].Name()},
			}}})
		}
		r.g.Expect(admin.Create(t.Context(), p)).To(Succeed())
	}
	r.traffic = &traffic{scene: r.scene, applications: applications, lines: len(r.promoting), pending: map[string]change{}, stale: map[string]bool{}}
	r.observe(r.traffic.note)
	h := r.replica()
	r.shown(append(names, r.promoting...), every)
	h.stop()
	return r
}

// replica starts a hub.
func (r *replicas) replica(flags ...string) *hubProcess {
	r.Helper()
	return startHub(r.TB, r.namespace, append(r.flags, flags...)...)
}

// ready waits until the hub is.
func (h *hubProcess) ready() *hubProcess {
	h.Helper()
	h.g.Eventually(func() error { _, err := get("http://" + h.health + "/readyz"); return err }).WithPolling(20 * time.Millisecond).Should(Succeed())
	return h
}

// leads waits until the hub holds the lease.
func (h *hubProcess) leads() *hubProcess {
	h.Helper()
	h.g.Eventually(h.isLeader).WithPolling(50 * time.Millisecond).Should(BeTrue())
	return h
}

// lead waits until one of two hubs leads, and returns it first.
func (r *replicas) lead(a, b *hubProcess) (leader, standby *hubProcess) {
	r.Helper()
	r.g.Eventually(func() bool {
		if b.isLeader() {
			a, b = b, a
		}
		return a.isLeader()
	}).WithPolling(50 * time.Millisecond).Should(BeTrue())
	return a, b
}

// isLeader returns whether the hub holds the lease.
func (h *hubProcess) isLeader() bool {
	return sum(h.scrape(), "leader_election_master_status", nil) == 1
}

// kill ends the hub at once.
func (h *hubProcess) kill() {
	h.g.Expect(h.process.Kill()).To(Succeed())
	h.process = nil
}

// change is one of the traffic.
type change struct {
	number, target int
	pipeline       string
	at             time.Time
}

// traffic deploys revisions, and notes when the statuses of Pipelines show them.
type traffic struct {
	scene               *scene
	applications, lines int

	mu      sync.Mutex
	next    int // number of the next change
	pending map[string]change
	// since the last phase began: the longest time until a change was shown, the numbers of changes and of writes of
	// statuses, and the Pipelines that had a stale target.
	worst           time.Duration
	changes, writes int
	stale           map[string]bool
}

// deploy makes the next change: one in ten in a line.
func (f *traffic) deploy() {
	f.mu.Lock()
	n := f.next
	f.next++
	ch := change{number: n, at: time.Now()}
	cluster, app := n%len(f.scene.clusters), n/len(f.scene.clusters)%f.applications
	if n%10 == 0 {
		line := n / 10 % f.lines
		ch.pipeline, cluster, app = "line-"+strconv.Itoa(2*line), 2*line, f.applications
	} else {
		first := cluster / targetsEach * targetsEach
		ch.pipeline, ch.target = fmt.Sprintf("app-%d-of-%s", app, f.scene.clusters[first].Name()), cluster-first
	}
	f.pending[fmt.Sprintf("%s/%d/%d", ch.pipeline, ch.target, n)] = ch
	f.changes++
	f.mu.Unlock()
	f.scene.clusters[cluster].Deploy(app, fmt.Sprintf("9.0.%d", n))
}

// note is called with every status of a Pipeline that is written.
func (f *traffic) note(p *pipelinesv1.Pipeline) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes++
	status := p.Status.Environments[environment]
	if status == nil {
		return
	}
	for i, target := range status.Targets {
		if target.Stale {
			f.stale[p.Name] = true
		}
		number, is := strings.CutPrefix(target.Revision, "9.0.")
		shown, err := strconv.Atoi(number)
		if !is || err != nil {
			continue
		}
		for key, ch := range f.pending { // A later one of the same target may have overtaken it.
			if ch.pipeline == p.Name && ch.target == i && ch.number <= shown {
				f.worst = max(f.worst, time.Since(ch.at))
				delete(f.pending, key)
			}
		}
	}
}

// phase is what happened while something was done.
type phase struct {
	worst           time.Duration
	changes, writes int
	stale           []string
	// lists are those that the clusters answered.
	lists int64
}

// during does something in the middle of traffic, and waits until all changes are shown.
func (r *replicas) during(do func()) phase {
	r.Helper()
	f := r.traffic
	f.mu.Lock()
	f.worst, f.changes, f.writes = 0, 0, 0
	clear(f.stale)
	f.mu.Unlock()
	before, stop := r.lists(), make(chan struct{})
	var deploying sync.WaitGroup
	deploying.Go(func() {
		ticker := time.NewTicker(time.Second / changesPerSecond)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
				f.deploy()
			}
		}
	})
	pause(settle)
	do()
	pause(settle)
	close(stop)
	deploying.Wait()
	r.g.Eventually(func() string {
		f.mu.Lock()
		defer f.mu.Unlock()
		for key, ch := range f.pending {
			return fmt.Sprintf("%d changes are not shown, such as %s of %s ago", len(f.pending), key, time.Since(ch.at))
		}
		return ""
	}).WithPolling(50 * time.Millisecond).Should(BeEmpty())
	f.mu.Lock()
	defer f.mu.Unlock()
	p := phase{worst: f.worst, changes: f.changes, writes: f.writes, lists: r.lists() - before}
	for name := range f.stale {
		p.stale = append(p.stale, name)
	}
	return p
}

// lists of applications that the clusters have answered.
func (r *replicas) lists() (n int64) {
	for _, c := range r.clusters {
		n += c.Counts().Lists + c.Counts().WatchLists
	}
	return n
}

// promotedOnce expects that each line has promoted no revision twice, and the last one.
func (r *replicas) promotedOnce() {
	r.Helper()
	f := r.traffic
	f.mu.Lock()
	last := make(map[string]string, f.lines)
	for n := 0; n < f.next; n += 10 {
		last["line-"+strconv.Itoa(2*(n/10%f.lines))] = fmt.Sprintf("9.0.%d", n)
	}
	f.mu.Unlock()
	r.g.Eventually(func(g Gomega) {
		var all capstanv1.PromotionList
		g.Expect(admin.List(r.Context(), &all, client.InNamespace(r.namespace))).To(Succeed())
		revisions := map[string][]string{}
		for i := range all.Items {
			of := &all.Items[i].Spec
			revisions[of.Pipeline.Name] = append(revisions[of.Pipeline.Name], of.Revision)
		}
		for line, revision := range last {
			g.Expect(revisions[line]).To(ContainElement(revision), line)
			slices.Sort(revisions[line])
			g.Expect(slices.Compact(slices.Clone(revisions[line]))).To(Equal(revisions[line]), line)
		}
	}).Should(Succeed())
}

// connected waits until every ClusterConnection is written.
func (r *replicas) connected() {
	r.Helper()
	written := -1
	r.g.Eventually(func(g Gomega) {
		var all capstanv1.ClusterConnectionList
		g.Expect(admin.List(r.Context(), &all, client.InNamespace(r.namespace))).To(Succeed())
		ready := 0
		for i := range all.Items {
			if s := &all.Items[i].Status; s.State == capstanv1.ConnectionReady && s.Apps > 0 {
				ready++
			}
		}
		g.Expect(ready).To(Equal(len(r.clusters)))
		before := written
		written = r.answered(writesOfConnections)
		g.Expect(written).To(Equal(before), "ClusterConnections are still written")
	}).WithPolling(settle).Should(Succeed())
}

var writesOfConnections = regexp.MustCompile(`(?m)^apiserver_request_total\{[^}]*resource="clusterconnections"[^}]*verb="(?:PUT|PATCH|DELETE|POST)"[^}]*\} (\S+)$`)

// leaseOf returns the lease of a run: that of the chart, or a short one.
func leaseOf() time.Duration {
	if *full {
		return 30 * time.Second
	}
	return 5 * time.Second
}

// TestTakeOver: the leader is killed in a stream of changes, ends in order, and is replaced in a rolling update.
func TestTakeOver(t *testing.T) {
	kills, lease, none := count(5, 3), leaseOf(), math.Inf(1)
	if os.Getenv("CAPSTAN_SOAK") != "" {
		kills, lease = 100, 10*time.Second // What follows a kill does not depend on the lease, and waiting for it is most of the time.
	}
	r := newReplicas(t, count(20, 2000), count(2, 10), lease)
	fleet := int64(len(r.clusters))
	leader := r.replica().leads().ready()
	r.connected()
	standby := r.replica().ready()

	var worst time.Duration
	for i := range kills {
		connections := r.answered(writesOfConnections)
		p := r.during(func() {
			leader.kill()
			standby.leads()
		})
		r.g.Expect(p.stale).To(BeEmpty())
		r.g.Expect(p.lists).To(BeZero(), "the survivor listed again")
		r.g.Expect(p.writes).To(BeNumerically("<=", p.changes+p.lines()), "more writes than changes")
		r.g.Expect(r.answered(writesOfConnections)).To(Equal(connections), "ClusterConnections were written")
		worst = max(worst, p.worst)
		t.Logf("kill %d of %d: %d changes, %d writes of statuses; a change was shown after %s at most", i+1, kills, p.changes, p.writes, p.worst)
		leader, standby = standby, r.replica().ready()
	}
	r.promotedOnce()
	what := fmt.Sprintf("%d clusters × %d applications, %d changes/s, leader killed %d times: ", len(r.clusters), r.traffic.applications, changesPerSecond, kills)
	report(what+"a change is shown after, at most", worst.Seconds(), lease.Seconds()+5, "s")

	p := r.during(func() {
		leader.stop()
		standby.leads()
	})
	r.g.Expect(p.stale).To(BeEmpty())
	r.g.Expect(p.lists).To(BeZero())
	report("the leader ends in order: a change is shown after, at most", p.worst.Seconds(), 2, "s")
	leader, standby = standby, r.replica().ready()

	p = r.during(func() { // As a Deployment with maxSurge 1 and maxUnavailable 0.
		for range 2 {
			next := r.replica().ready()
			leader.stop()
			leader, standby = r.lead(standby, next) // The one that is next to be replaced is the leader: the worse case.
		}
	})
	r.g.Expect(p.stale).To(BeEmpty())
	r.g.Expect(p.lists).To(BeNumerically("<=", 2*fleet), "clusters were listed more than once by each new replica")
	report("rolling update of both replicas: a change is shown after, at most", p.worst.Seconds(), 5, "s")
	report("the same, lists of each cluster", float64(p.lists)/float64(fleet), 2, "")
	r.promotedOnce()
	_, _, doubled := r.inbox.received()
	report("the same, notifications that were sent twice, of "+strconv.Itoa(r.traffic.next/10), float64(len(doubled)), none, "")
	if !*full {
		return
	}

	// The same without a warm standby.
	leader.stop()
	standby.stop()
	r.flags = append(r.flags, "--warm-standby=false")
	leader = r.replica().leads()
	pause(settle)
	standby = r.replica()
	p = r.during(func() {
		leader.kill()
		standby.leads()
	})
	report("a cold standby instead, leader killed: a change is shown after, at most", p.worst.Seconds(), none, "s")
	report("the same, writes of statuses for each change", float64(p.writes)/float64(p.changes), none, "")
	report("the same, Pipelines that turned stale", float64(len(p.stale)), none, "")
}

// lines bounds the writes that promotions cause: those of the Pipelines that show them.
func (p phase) lines() int { return 6 * (p.changes/10 + 1) }
