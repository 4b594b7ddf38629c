package pipeline

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-hub/capstan/internal/backoff"
)

// The status of a Pipeline is written at intervals while this process has not observed all
// its targets: leastHold at first, then twice as long, up to mostHold. Otherwise, at a start
// with a thousand clusters, the status would be written once for each target, and the writes
// would take longer than the observations. When all targets are observed, it is written at
// once.
const (
	leastHold = 2 * time.Second
	mostHold  = 4 * time.Second
)

// holds are the Pipelines whose next status write is delayed.
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

// wait returns how long to delay the status of a Pipeline with waiting targets that are not
// observed yet; 0 for no delay.
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
		return min(left, mostHold) // The clock may have been set back.
	default:
		h.lockedState[key] = hold{until: now.Add(held.next), next: retry.Next(held.next)}
		return 0
	}
}
