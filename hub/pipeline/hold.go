package pipeline

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// The status of a Pipeline is written at intervals while this process has not observed all
// its targets: after leastHold at first, and then every nextHold. At a start with thousands of
// Pipelines the first of these writes are holdApart from each other, up to longestHold: most
// Pipelines are complete before it is their turn, and the API server has the complete ones to write.
// When all targets are observed, the status is written at once.
const (
	leastHold   = 2 * time.Second
	nextHold    = 4 * time.Second
	holdApart   = 200 * time.Millisecond
	longestHold = 20 * time.Second
)

// holds are the Pipelines whose next status write is delayed.
//
// Locking: mu guards lockedState, for field access only.
type holds struct {
	mu          sync.Mutex
	lockedState struct {
		// until: Pipeline → when its status may be written.
		until map[types.NamespacedName]time.Time
		// free is when no Pipeline has its turn yet.
		free time.Time
	}
}

// wait returns how long to delay the status of a Pipeline with waiting targets that are not
// observed yet; 0 for no delay.
func (h *holds) wait(key types.NamespacedName, waiting int, now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &h.lockedState
	if waiting == 0 {
		if delete(s.until, key); len(s.until) == 0 {
			s.until, s.free = nil, time.Time{}
		}
		return 0
	}
	if s.until == nil {
		s.until = map[types.NamespacedName]time.Time{}
	}
	until, is := s.until[key]
	if !is {
		until = now.Add(min(max(leastHold, s.free.Sub(now)), longestHold))
		s.until[key], s.free = until, until.Add(holdApart)
	} else if !now.Before(until) {
		s.until[key] = now.Add(nextHold)
		return 0
	}
	return min(until.Sub(now), longestHold) // The clock may have been set back.
}

// holding returns whether the status of a Pipeline is delayed.
func (h *holds) holding(key types.NamespacedName, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	until, is := h.lockedState.until[key]
	return is && now.Before(until)
}
