package watchers

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// wake passes wakes on, or folds them while the cluster's bucket is empty. One
// change is one token, however many Pipelines it concerns.
func (w *Watcher) wake(c *watched, pipelines []types.NamespacedName, initial bool) {
	if len(pipelines) == 0 {
		return
	}
	now := w.o.Clock.Now()
	w.mu.Lock()
	// What came first is delivered first.
	pass := len(c.lockedFolded) == 0 && c.lockedBucket.AllowN(now, 1)
	if !pass {
		for _, p := range pipelines {
			before, known := c.lockedFolded[p]
			c.lockedFolded[p] = initial && (before || !known)
		}
		w.lockedState.folding[c] = struct{}{}
	}
	w.mu.Unlock()
	if pass {
		w.o.Wake(pipelines, initial)
		return
	}
	w.m.folded.Inc()
	w.kickLoop()
}

// deliver hands out folded wakes, as one, where the bucket has room. It tells
// whether some are left.
func (w *Watcher) deliver() bool {
	now := w.o.Clock.Now()
	var live, initial []types.NamespacedName
	w.mu.Lock()
	for _, c := range slices.Collect(maps.Keys(w.lockedState.folding)) {
		if !c.lockedBucket.AllowN(now, 1) {
			continue
		}
		for p, first := range c.lockedFolded {
			if first {
				initial = append(initial, p)
			} else {
				live = append(live, p)
			}
		}
		clear(c.lockedFolded)
		delete(w.lockedState.folding, c)
	}
	left := len(w.lockedState.folding) > 0
	w.mu.Unlock()
	if len(live) > 0 {
		w.o.Wake(live, false)
	}
	if len(initial) > 0 {
		w.o.Wake(initial, true)
	}
	return left
}
