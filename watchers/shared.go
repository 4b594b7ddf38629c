package watchers

import (
	"context"
	"sync"

	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// shared is what a Watcher shares with its clusters, keepers, runs and informers.
type shared struct {
	options Options
	meters  *meters
	wakes   *wakes
	// slots bounds the initial lists that are under way.
	slots chan struct{}
	// kick wakes the loop of Start; it has room for one.
	kick chan struct{}
	// goroutines of keepers and their runs. After the context of Start has ended, only these
	// goroutines may start others.
	goroutines sync.WaitGroup

	// mu guards the field lockedState of this struct and of Watcher, watched, subject,
	// keeper, run and informer.
	mu          sync.Mutex
	lockedState sharedState
}

type sharedState struct {
	// ctx is that of Start; nil before it and after its end.
	ctx context.Context //nolint:containedctx // It ends with the Watcher.
	// changed are the clusters that the loop has to check.
	changed map[multicluster.ClusterName]struct{}
}

func newShared(o Options) *shared {
	s := &shared{
		options: o, meters: newMeters(),
		slots:       make(chan struct{}, o.Lists),
		kick:        make(chan struct{}, 1),
		lockedState: sharedState{changed: map[multicluster.ClusterName]struct{}{}},
	}
	s.wakes = newWakes(o.Clock, o.Wake, s.meters.folded, s.kickLoop)
	return s
}

// start permits new goroutines, until the context ends or stop is called.
func (s *shared) start(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lockedState.ctx = ctx
}

// stop waits for the goroutines.
func (s *shared) stop() {
	s.refuseGoroutines()
	s.goroutines.Wait()
}

// refuseGoroutines makes pokeLocked and spawn start nothing. stop waits for the goroutines
// that they started before: the mutex orders the two.
func (s *shared) refuseGoroutines() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lockedState.ctx = nil
}

// spawn starts a goroutine that ends without a signal, if the Watcher runs.
func (s *shared) spawn(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lockedState.ctx != nil {
		s.goroutines.Go(do)
	}
}

// changedLocked makes the loop check a cluster. It never waits.
func (s *shared) changedLocked(name multicluster.ClusterName) {
	s.lockedState.changed[name] = struct{}{}
	s.kickLoop()
}

// kickLoop wakes the loop. It never waits.
func (s *shared) kickLoop() {
	select {
	case s.kick <- struct{}{}:
	default: // The loop is already awake.
	}
}
