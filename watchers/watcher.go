package watchers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/capstan-hub/capstan/clusters"
)

// Watcher runs the informers.
type Watcher struct {
	o     Options
	m     *meters
	slots chan struct{}
	// kick wakes the loop of Start; it holds one.
	kick chan struct{}
	// goroutines of keepers and their runs. None begins when the context of Start has
	// ended, but by another.
	goroutines sync.WaitGroup

	mu          sync.Mutex
	lockedState state
}

type state struct {
	// ctx is that of Start; nil before.
	ctx context.Context //nolint:containedctx // It is the Watcher's life.
	// demands: owner → what it wants.
	demands map[string][]Demand
	// clusters: name → what is watched there.
	clusters map[multicluster.ClusterName]*watched
	// sources are the subscriptions that are engaged, told or not.
	sources map[*subscription]struct{}
	// changed are the clusters that the loop is to look at.
	changed map[*watched]struct{}
	// folding are the clusters with folded wakes.
	folding map[*watched]struct{}
}

var _ clusters.Listener = &Watcher{}

// New makes a Watcher.
func New(o Options) *Watcher {
	o.defaults()
	return &Watcher{
		o: o, m: newMeters(),
		slots: make(chan struct{}, listSlots),
		kick:  make(chan struct{}, 1),
		lockedState: state{
			demands:  map[string][]Demand{},
			clusters: map[multicluster.ClusterName]*watched{},
			sources:  map[*subscription]struct{}{},
			changed:  map[*watched]struct{}{},
			folding:  map[*watched]struct{}{},
		},
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: see Options.EveryReplica.
func (w *Watcher) NeedLeaderElection() bool { return !w.o.EveryReplica }

// Start runs the watchers until the context ends, and waits for their goroutines.
// A Watcher starts once.
func (w *Watcher) Start(ctx context.Context) error {
	undo, err := w.m.register(w.o.Registerer)
	if err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	defer undo()
	w.begin(ctx)
	check := w.o.Clock.NewTicker(w.o.Timings.Check)
	defer check.Stop()
	var fold <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			w.end()
			return nil
		case <-check.C():
			w.round(w.all())
		case <-w.kick:
			w.round(w.takeChanged())
		case <-fold:
			fold = nil
		}
		if left := w.deliver(); left && fold == nil {
			fold = w.o.Clock.After(foldFor)
		}
	}
}

func (w *Watcher) begin(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lockedState.ctx = ctx
}

// end waits for the goroutines. With the mutex, it orders itself after whoever
// began one while the context had not ended.
func (w *Watcher) end() {
	w.mu.Lock()
	w.lockedState.ctx = nil
	w.mu.Unlock()
	w.goroutines.Wait()
}

// spawn runs a goroutine that ends by itself, while the Watcher runs.
func (w *Watcher) spawn(do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lockedState.ctx != nil {
		w.goroutines.Go(do)
	}
}

// round looks at clusters. It waits for nothing.
func (w *Watcher) round(some []*watched) {
	now := w.o.Clock.Now()
	for _, c := range some {
		if !w.sweep(c, now) {
			w.tend(c, now)
			w.report(c, now)
		}
	}
}

func (w *Watcher) all() []*watched {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.lockedState.changed)
	return slices.Collect(maps.Values(w.lockedState.clusters))
}

func (w *Watcher) takeChanged() []*watched {
	w.mu.Lock()
	defer w.mu.Unlock()
	some := slices.Collect(maps.Keys(w.lockedState.changed))
	clear(w.lockedState.changed)
	return some
}

// lockedLook has the loop look at a cluster. It is called with the mutex held, and
// never waits.
func (w *Watcher) lockedLook(c *watched) {
	if c != nil {
		w.lockedState.changed[c] = struct{}{}
		w.kickLoop()
	}
}

func (w *Watcher) kickLoop() {
	select {
	case w.kick <- struct{}{}:
	default: // It is to look already.
	}
}

// ConnectionChanged implements clusters.Listener.
func (w *Watcher) ConnectionChanged(_, to clusters.Snapshot) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lockedLook(w.lockedState.clusters[to.Name])
}

// SetDemand replaces what an owner wants; nil when it wants nothing any more. It
// returns at once.
func (w *Watcher) SetDemand(owner string, want []Demand) {
	if w.demandIs(owner, want) {
		return
	}
	set := make(map[Demand]bool, len(want)) // whether it is new
	distinct := make([]Demand, 0, len(want))
	kinds := map[schema.GroupKind]Kind{}
	for _, d := range want {
		if !set[d] {
			set[d] = true
			distinct = append(distinct, d)
		}
		if _, asked := kinds[d.Kind]; !asked {
			kinds[d.Kind] = w.o.Kinds(d.Kind)
		}
	}
	now := w.o.Clock.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &w.lockedState
	old := s.demands[owner]
	if len(set) == 0 {
		delete(s.demands, owner)
	} else {
		s.demands[owner] = distinct
	}
	for _, d := range old {
		if _, still := set[d]; still {
			set[d] = false
			continue
		}
		c := s.clusters[d.Cluster]
		c.lockedKinds[d.Kind].lockedRelease(d, owner, now)
		w.lockedLook(c)
	}
	for d, fresh := range set {
		if fresh {
			w.lockedDemand(d, owner, kinds[d.Kind])
		}
	}
}

// demandIs tells whether an owner wants this already, as with most looks at a Pipeline.
func (w *Watcher) demandIs(owner string, want []Demand) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Equal(w.lockedState.demands[owner], want)
}

func (w *Watcher) lockedDemand(d Demand, owner string, kind Kind) {
	c := w.lockedState.clusters[d.Cluster]
	if c == nil {
		c = newWatched(d.Cluster)
		w.lockedState.clusters[d.Cluster] = c
	}
	k := c.lockedKinds[d.Kind]
	if k == nil {
		k = newKeeper(w, c, kind)
		c.lockedKinds[d.Kind] = k
	}
	k.lockedDemand(d, owner)
	w.lockedLook(c)
}
