package watchers

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/index"
	"github.com/capstan-hub/capstan/internal/collectors"
)

const (
	// resumeCheck is the time between two checks of a cluster whose watches resume after an
	// outage, for resumeFor; then Timings.Check. A watch does not report that it has resumed.
	resumeCheck = 50 * time.Millisecond
	resumeFor   = 15 * time.Second
)

// Watcher runs the informers.
type Watcher struct {
	shared *shared

	// resuming are the clusters that are checked again after resumeCheck. It belongs to the
	// goroutine of Start.
	resuming map[multicluster.ClusterName]*watched

	// lockedState is guarded by shared.mu.
	lockedState watcherState
}

type watcherState struct {
	// demands: owner → what it demands.
	demands map[string][]Demand
	// clusters: name → the watched cluster.
	clusters map[multicluster.ClusterName]*watched
	// subscriptions are those of sources that are engaged, attached or not.
	subscriptions map[*subscription]struct{}
}

var _ clusters.Listener = &Watcher{}

// New makes a Watcher.
func New(o Options) *Watcher {
	o.defaults()
	return &Watcher{
		shared:   newShared(o),
		resuming: map[multicluster.ClusterName]*watched{},
		lockedState: watcherState{
			demands:       map[string][]Demand{},
			clusters:      map[multicluster.ClusterName]*watched{},
			subscriptions: map[*subscription]struct{}{},
		},
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: see Options.EveryReplica.
func (w *Watcher) NeedLeaderElection() bool { return !w.shared.options.EveryReplica }

// Start runs the watchers until the context ends, and waits for their goroutines.
// A Watcher starts once.
func (w *Watcher) Start(ctx context.Context) error {
	undo, err := collectors.Register(w.shared.options.Registerer, append(w.shared.meters.all(), local{w})...)
	if err != nil {
		return err
	}
	defer undo()
	w.shared.start(ctx)
	check := w.shared.options.Clock.NewTicker(w.shared.options.Timings.Check)
	defer check.Stop()
	var fold, resume <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			w.shared.stop()
			return nil
		case <-check.C():
			w.check(w.takeDue())
		case <-w.shared.kick:
			w.check(w.takeChanged())
		case <-fold:
			fold = nil
		case <-resume:
			resume = nil
			w.check(slices.Collect(maps.Values(w.resuming)))
		}
		if len(w.resuming) > 0 && resume == nil {
			resume = w.shared.options.Clock.After(resumeCheck)
		}
		if left := w.shared.wakes.flush(); left && fold == nil {
			fold = w.shared.options.Clock.After(foldFor)
		}
	}
}

// check checks clusters. It never waits.
func (w *Watcher) check(some []*watched) {
	now := w.shared.options.Clock.Now()
	for _, c := range some {
		delete(w.resuming, c.cluster.name)
		if w.sweep(c, now) {
			continue
		}
		if c.check(now); c.resumesNow(now) {
			w.resuming[c.cluster.name] = c
		}
	}
}

// sweep ends the kinds whose linger has passed, and the cluster with its last kind. It
// returns whether the cluster is done.
func (w *Watcher) sweep(c *watched, now time.Time) bool {
	over, done := w.takeLingered(c, now)
	c.finish(over, done)
	return done
}

func (w *Watcher) takeLingered(c *watched, now time.Time) (over []*keeper, done bool) {
	w.shared.mu.Lock()
	defer w.shared.mu.Unlock()
	over, done = c.sweepLocked(now)
	if done {
		delete(w.lockedState.clusters, c.cluster.name)
	}
	return over, done
}

// takeDue returns the clusters that are due, or marked as changed, and removes the marks.
func (w *Watcher) takeDue() []*watched {
	now := w.shared.options.Clock.Now()
	w.shared.mu.Lock()
	defer w.shared.mu.Unlock()
	for name, c := range w.lockedState.clusters {
		if due := c.loop.due; !due.IsZero() && !due.After(now) {
			w.shared.lockedState.changed[name] = struct{}{}
		}
	}
	return w.takeChangedLocked()
}

// takeChanged returns the clusters that are marked as changed, and removes the marks.
func (w *Watcher) takeChanged() []*watched {
	w.shared.mu.Lock()
	defer w.shared.mu.Unlock()
	return w.takeChangedLocked()
}

func (w *Watcher) takeChangedLocked() []*watched {
	var some []*watched
	for name := range w.shared.lockedState.changed {
		if c := w.lockedState.clusters[name]; c != nil {
			some = append(some, c)
		}
	}
	clear(w.shared.lockedState.changed)
	return some
}

// ConnectionChanged implements clusters.Listener.
func (w *Watcher) ConnectionChanged(_, to clusters.Snapshot) {
	w.shared.mu.Lock()
	defer w.shared.mu.Unlock()
	if w.lockedState.clusters[to.Name] != nil {
		w.shared.changedLocked(to.Name)
	}
}

// SetDemand replaces what an owner demands; nil if it demands nothing any more. It returns
// at once.
func (w *Watcher) SetDemand(owner string, want []Demand) {
	if !w.demandIs(owner, want) {
		w.SetDemands(map[string][]Demand{owner: want})
	}
}

// SetDemands is SetDemand for several owners. No watch starts before all is demanded.
func (w *Watcher) SetDemands(want map[string][]Demand) {
	kinds := map[schema.GroupKind]Kind{}
	for _, demands := range want {
		for _, d := range demands {
			if _, known := kinds[d.Kind]; !known {
				kinds[d.Kind] = w.shared.options.Kinds(d.Kind)
			}
		}
	}
	now := w.shared.options.Clock.Now()
	w.shared.mu.Lock()
	defer w.shared.mu.Unlock()
	for owner, demands := range want {
		w.setLocked(owner, demands, kinds, now)
	}
}

// Confirming is the Freshness of an observation that Confirm was called for.
var Confirming = index.Freshness{Reason: ReasonConfirming, Message: "it is read again, because this hub has just begun to lead"}

// Confirm makes the observation of a demanded object Confirming, until the object was read from its
// cluster, or observed again. It returns at once. A new leader calls it: the observations of its watches
// may be older than those of the leader before. If no run watches the kind, it changes nothing.
func (w *Watcher) Confirm(d Demand) {
	subject, r := w.runOf(d)
	if r == nil {
		return // The kind is not fresh, and its objects are about to be listed.
	}
	want := wanted{d.Namespace, d.Name}
	// In this order: what is observed after confirm makes it fresh again.
	w.shared.options.Index.SetUnread(subject.object(want), Confirming)
	r.ledger.confirm(want)
	subject.poke()
}

// runOf returns the run by which a demand is judged; nil if there is none.
func (w *Watcher) runOf(d Demand) (*subject, *run) {
	w.shared.mu.Lock()
	defer w.shared.mu.Unlock()
	c := w.lockedState.clusters[d.Cluster]
	if c == nil || c.lockedState.keepers[d.Kind] == nil {
		return nil, nil
	}
	k := c.lockedState.keepers[d.Kind]
	return k.subject, k.lockedState.run
}

// setLocked replaces what an owner demands.
func (w *Watcher) setLocked(owner string, want []Demand, kinds map[schema.GroupKind]Kind, now time.Time) {
	set := make(map[Demand]bool, len(want)) // whether it is new
	distinct := make([]Demand, 0, len(want))
	for _, d := range want {
		if !set[d] {
			set[d] = true
			distinct = append(distinct, d)
		}
	}
	s := &w.lockedState
	old := s.demands[owner]
	if len(distinct) == 0 {
		delete(s.demands, owner)
	} else {
		s.demands[owner] = distinct
	}
	for _, d := range old {
		if _, still := set[d]; still {
			set[d] = false
			continue
		}
		s.clusters[d.Cluster].releaseLocked(d, owner, now)
	}
	for d, fresh := range set {
		if fresh {
			w.clusterLocked(d.Cluster).demandLocked(d, owner, kinds[d.Kind])
		}
	}
}

// demandIs returns whether an owner already demands this, as after most reconciles of a
// Pipeline.
func (w *Watcher) demandIs(owner string, want []Demand) bool {
	w.shared.mu.Lock()
	defer w.shared.mu.Unlock()
	return slices.Equal(w.lockedState.demands[owner], want)
}

// clusterLocked returns a cluster, which is made when it is first demanded.
func (w *Watcher) clusterLocked(name multicluster.ClusterName) *watched {
	c := w.lockedState.clusters[name]
	if c == nil {
		c = newWatched(w.shared, name)
		w.lockedState.clusters[name] = c
	}
	return c
}
