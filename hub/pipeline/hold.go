package pipeline

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-hub/capstan/internal/backoff"
)

// A Pipeline with targets that this process has not had the time to look at is held:
// for leastHold at first, then twice as long, up to mostHold, between one write of its
// status and the next. At a start with a thousand clusters it would else be written
// once for each target, and the writes would take longer than the looking. When
// nothing is left to be looked at, it is written at once.
const (
	leastHold = time.Second
	mostHold  = 4 * time.Second
)

// holds are the Pipelines that are held.
//
// Locking: mu guards lockedState, for field access only.
type holds struct {
	mu          sync.Mutex
	lockedState map[types.NamespacedName]hold
}

type hold struct {
	until time.Time
	next  time.Duration
}

// wait is how long to hold a Pipeline of which so many targets are still to be looked
// at; 0 for not at all.
func (h *holds) wait(key types.NamespacedName, waiting int, now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if waiting == 0 {
		delete(h.lockedState, key)
		return 0
	}
	if h.lockedState == nil {
		h.lockedState = map[types.NamespacedName]hold{}
	}
	retry := backoff.Policy{First: leastHold, Max: mostHold}
	held, is := h.lockedState[key]
	switch left := held.until.Sub(now); {
	case !is:
		h.lockedState[key] = hold{until: now.Add(leastHold), next: retry.Next(leastHold)}
		return leastHold
	case left > 0:
		return min(left, mostHold) // The clock may have been put back.
	default:
		h.lockedState[key] = hold{until: now.Add(held.next), next: retry.Next(held.next)}
		return 0
	}
}
