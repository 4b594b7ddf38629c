package watchers

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
)

// Watcher runs the informers.
type Watcher struct {
	o     Options
	m     *meters
	slots chan struct{}
	// kick wakes the loop of Start; it holds one.
	kick chan struct{}
	// keepers are the goroutines of keepers and informers.
	keepers sync.WaitGroup

	mu          sync.Mutex
	lockedState state
}

type state struct {
	// demands: owner → what it wants.
	demands map[string]map[Demand]struct{}
	// clusters: name → what is watched there.
	clusters map[multicluster.ClusterName]*watched
}

// watched is one cluster. Its fields are guarded by the Watcher's mutex.
type watched struct {
	name  multicluster.ClusterName
	kinds map[schema.GroupKind]*keeper
	// bucket and folded: wakes over the bucket wait in folded; the value is initial.
	bucket *rate.Limiter
	folded map[types.NamespacedName]bool
	// reported is what the connections were last told.
	reported []capstanv1.WatchedKind
	apps     int
}

var _ clusters.Listener = &Watcher{}

// New makes a Watcher.
func New(o Options) *Watcher {
	o.Timings.defaults()
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	w := &Watcher{
		o: o, m: newMeters(o.Registerer),
		slots: make(chan struct{}, listSlots),
		kick:  make(chan struct{}, 1),
		lockedState: state{
			demands:  map[string]map[Demand]struct{}{},
			clusters: map[multicluster.ClusterName]*watched{},
		},
	}
	if o.Registerer != nil {
		o.Registerer.MustRegister(informersCollector{w})
	}
	return w
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: only the leader
// watches workload clusters.
func (*Watcher) NeedLeaderElection() bool { return true }

// Start runs the watchers until the context ends, and waits for their goroutines.
func (w *Watcher) Start(ctx context.Context) error {
	check := w.o.Clock.NewTicker(w.o.Timings.Check)
	defer check.Stop()
	for {
		folded := w.round(ctx)
		var fold <-chan time.Time
		if folded {
			timer := w.o.Clock.NewTimer(foldFor)
			fold = timer.C()
		}
		select {
		case <-ctx.Done():
			w.keepers.Wait()
			return nil
		case <-check.C():
		case <-fold:
		case <-w.kick:
		}
	}
}

// nudge has the loop look again.
func (w *Watcher) nudge() {
	select {
	case w.kick <- struct{}{}:
	default: // It is to look already.
	}
}

// ConnectionChanged implements clusters.Listener.
func (w *Watcher) ConnectionChanged(_, _ clusters.Snapshot) { w.nudge() }

// ReferenceChanged implements clusters.Listener.
func (*Watcher) ReferenceChanged(clusters.Ref) {}

// SetDemand replaces what an owner wants; nil when it wants nothing any more.
func (w *Watcher) SetDemand(owner string, want []Demand) {
	set := make(map[Demand]struct{}, len(want))
	for _, d := range want {
		set[d] = struct{}{}
	}
	w.mu.Lock()
	s := &w.lockedState
	old := s.demands[owner]
	if maps.Equal(old, set) {
		w.mu.Unlock()
		return
	}
	if len(set) == 0 {
		delete(s.demands, owner)
	} else {
		s.demands[owner] = set
	}
	var fresh []multicluster.ClusterName
	for d := range set {
		if _, had := old[d]; had {
			continue
		}
		c := s.clusters[d.Cluster]
		if c == nil {
			c = &watched{
				name: d.Cluster, kinds: map[schema.GroupKind]*keeper{},
				bucket: rate.NewLimiter(wakesPerSecond, wakeBurst), folded: map[types.NamespacedName]bool{},
			}
			s.clusters[d.Cluster] = c
			fresh = append(fresh, d.Cluster)
		}
		k := c.kinds[d.Kind]
		if k == nil {
			k = newKeeper(w, d.Cluster, w.o.Kinds(d.Kind))
			c.kinds[d.Kind] = k
		}
		k.demand(d, owner)
	}
	for d := range old {
		if _, still := set[d]; !still {
			s.clusters[d.Cluster].kinds[d.Kind].release(d, owner, w.o.Clock.Now())
		}
	}
	w.mu.Unlock()
	for _, name := range fresh {
		w.o.Clusters.Demand(name, w.ownerName())
	}
	w.nudge()
}

func (*Watcher) ownerName() string { return owner }

// round does all that waits for nothing: starts and stops keepers, judges
// freshness, delivers folded wakes, reports. It tells whether folded wakes are left.
func (w *Watcher) round(ctx context.Context) bool {
	now := w.o.Clock.Now()
	w.mu.Lock()
	all := slices.Collect(maps.Values(w.lockedState.clusters))
	w.mu.Unlock()
	left := false
	for _, c := range all {
		if w.sweep(c, now) {
			continue
		}
		w.tend(ctx, c, now)
		left = w.deliver(c, now) || left
		w.report(c)
	}
	return left
}

// sweep forgets kinds whose linger is over, and the cluster with its last kind. It
// tells whether the cluster is gone.
func (w *Watcher) sweep(c *watched, now time.Time) bool {
	var over []*keeper
	w.mu.Lock()
	for gk, k := range c.kinds {
		if k.over(now, w.o.Timings.Linger) {
			delete(c.kinds, gk)
			over = append(over, k)
		}
	}
	gone := len(c.kinds) == 0
	if gone {
		delete(w.lockedState.clusters, c.name)
	}
	w.mu.Unlock()
	for _, k := range over {
		k.stop()
		w.o.Index.Forget(string(c.name), k.indexKind())
	}
	if gone {
		w.o.Clusters.ReportKinds(c.name, nil, 0)
		w.o.Clusters.Release(c.name, w.ownerName())
		w.demandAgain(c.name)
	}
	return gone
}

// demandAgain repairs the order of a release and a demand that crossed it.
func (w *Watcher) demandAgain(name multicluster.ClusterName) {
	w.mu.Lock()
	_, wanted := w.lockedState.clusters[name]
	w.mu.Unlock()
	if wanted {
		w.o.Clusters.Demand(name, w.ownerName())
	}
}

// keepersOf returns the keepers of a cluster.
func (w *Watcher) keepersOf(c *watched) []*keeper {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(c.kinds))
}

// tend starts keepers on the connection that there is, once the cluster was heard
// of, and judges the freshness of each.
func (w *Watcher) tend(ctx context.Context, c *watched, now time.Time) {
	snapshot, _ := w.o.Clusters.Snapshot(c.name)
	connection, err := w.o.Clusters.Connection(c.name)
	if err != nil || connection.Context().Err() != nil {
		connection = nil // None, or one that ends: the next is announced.
	}
	heard := snapshot.State == capstanv1.ConnectionReady || snapshot.State == capstanv1.ConnectionDegraded
	for _, k := range w.keepersOf(c) {
		if connection != nil && heard && ctx.Err() == nil {
			k.start(ctx, connection)
		}
		if k.kind.Observe == nil {
			continue
		}
		f := k.freshness(snapshot, connection, now)
		w.wake(c, w.o.Index.SetFreshness(string(c.name), k.indexKind(), f), !f.Fresh)
	}
}

// wake passes wakes on, or folds them while the cluster's bucket is empty.
func (w *Watcher) wake(c *watched, pipelines []types.NamespacedName, initial bool) {
	if len(pipelines) == 0 {
		return
	}
	w.mu.Lock()
	pass := len(c.folded) == 0 && c.bucket.AllowN(w.o.Clock.Now(), 1)
	if !pass {
		for _, p := range pipelines {
			before, known := c.folded[p]
			c.folded[p] = initial && (before || !known)
		}
	}
	w.mu.Unlock()
	if pass {
		w.o.Wake(pipelines, initial)
		return
	}
	w.m.folded.Inc()
	w.nudge()
}

// deliver hands out folded wakes, as one, when the bucket has room. It tells
// whether some are left.
func (w *Watcher) deliver(c *watched, now time.Time) bool {
	var live, initial []types.NamespacedName
	w.mu.Lock()
	if len(c.folded) > 0 && c.bucket.AllowN(now, 1) {
		for p, first := range c.folded {
			if first {
				initial = append(initial, p)
			} else {
				live = append(live, p)
			}
		}
		clear(c.folded)
	}
	left := len(c.folded) > 0
	w.mu.Unlock()
	if len(live) > 0 {
		w.o.Wake(live, false)
	}
	if len(initial) > 0 {
		w.o.Wake(initial, true)
	}
	return left
}

// report tells the connections what is watched, when it changed.
func (w *Watcher) report(c *watched) {
	w.mu.Lock()
	kinds := make([]capstanv1.WatchedKind, 0, len(c.kinds))
	apps := 0
	for _, k := range c.kinds {
		kinds = append(kinds, k.watchedKind())
		if k.kind.Observe != nil {
			apps += len(k.lockedWant)
		}
	}
	slices.SortFunc(kinds, func(a, b capstanv1.WatchedKind) int {
		if a.Kind < b.Kind {
			return -1
		}
		return 1
	})
	same := slices.Equal(kinds, c.reported) && apps == c.apps
	c.reported, c.apps = kinds, apps
	w.mu.Unlock()
	if !same {
		w.o.Clusters.ReportKinds(c.name, slices.Clone(kinds), apps)
	}
}
