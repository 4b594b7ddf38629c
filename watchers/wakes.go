package watchers

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// wakes limits the wakes of Pipelines that each cluster causes. Wakes above the limit are
// folded: they wait, and are delivered as one wake.
type wakes struct {
	clock   clock.PassiveClock
	deliver func(pipelines []types.NamespacedName, initial bool)
	folds   prometheus.Counter
	// kick makes the loop call flush.
	kick func()

	mu          sync.Mutex
	lockedState wakesState
}

type wakesState struct {
	// folding are the buckets with folded wakes.
	folding map[*wakeBucket]struct{}
}

// wakeBucket is one cluster's share. Its fields are guarded by wakes.mu.
type wakeBucket struct {
	lockedState wakeBucketState
}

type wakeBucketState struct {
	limiter *rate.Limiter
	// folded: Pipeline → whether all its folded wakes came from initial lists.
	folded map[types.NamespacedName]bool
}

func newWakes(c clock.PassiveClock, deliver func([]types.NamespacedName, bool), folds prometheus.Counter, kick func()) *wakes {
	return &wakes{
		clock: c, deliver: deliver, folds: folds, kick: kick,
		lockedState: wakesState{folding: map[*wakeBucket]struct{}{}},
	}
}

func newWakeBucket() *wakeBucket {
	return &wakeBucket{lockedState: wakeBucketState{
		limiter: rate.NewLimiter(wakesPerSecond, wakeBurst),
		folded:  map[types.NamespacedName]bool{},
	}}
}

// wake delivers wakes, or folds them while the bucket is empty. One change takes one
// token, however many Pipelines it concerns.
func (w *wakes) wake(b *wakeBucket, pipelines []types.NamespacedName, initial bool) {
	if len(pipelines) == 0 {
		return
	}
	if w.foldUnlessAllowed(b, pipelines, initial) {
		w.folds.Inc()
		w.kick()
		return
	}
	w.deliver(pipelines, initial)
}

// foldUnlessAllowed folds the wakes if the bucket is empty or has folded wakes, and returns
// whether it did. So folded wakes are delivered before later ones.
func (w *wakes) foldUnlessAllowed(b *wakeBucket, pipelines []types.NamespacedName, initial bool) bool {
	now := w.clock.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &b.lockedState
	if len(s.folded) == 0 && s.limiter.AllowN(now, 1) {
		return false
	}
	for _, p := range pipelines {
		before, known := s.folded[p]
		s.folded[p] = initial && (before || !known)
	}
	w.lockedState.folding[b] = struct{}{}
	return true
}

// flush delivers the folded wakes of the clusters whose bucket has a token, as one wake. It
// returns whether folded wakes are left.
func (w *wakes) flush() (left bool) {
	live, initial, left := w.takeFolded()
	if len(live) > 0 {
		w.deliver(live, false)
	}
	if len(initial) > 0 {
		w.deliver(initial, true)
	}
	return left
}

func (w *wakes) takeFolded() (live, initial []types.NamespacedName, left bool) {
	now := w.clock.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range slices.Collect(maps.Keys(w.lockedState.folding)) {
		s := &b.lockedState
		if !s.limiter.AllowN(now, 1) {
			continue
		}
		for p, first := range s.folded {
			if first {
				initial = append(initial, p)
			} else {
				live = append(live, p)
			}
		}
		clear(s.folded)
		delete(w.lockedState.folding, b)
	}
	return live, initial, len(w.lockedState.folding) > 0
}

// foldFor is how long folded wakes wait before the bucket is checked again: the time
// in which it gains one token.
const foldFor = time.Second / wakesPerSecond
