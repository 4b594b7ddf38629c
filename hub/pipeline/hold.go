package pipeline

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// The status of a Pipeline is written at intervals while this process has not observed all its
// targets: after leastHold at first, and then every nextHold. When all are observed, it is written
// at once. At a start with thousands of Pipelines, those with all their targets are written first:
// the others stand in line for their first write, holdShare times what a write takes at the time
// apart, so that few of eight writers write them. After longestHold none stands in line.
//
// A start of a large fleet takes longer. While the process observes applications for the first time,
// one in leastHold at least, only Pipelines with all their targets are written, so that each is
// written once. The others wait for longestStart at most: their status stays what it is, and nothing is
// promoted for them. Each is asked when it has waited for half as long again, or after slowestHold.
const (
	leastHold    = 2 * time.Second
	nextHold     = 4 * time.Second
	slowestHold  = 10 * time.Second
	longestHold  = 20 * time.Second
	longestStart = 2 * time.Minute
	holdShare    = 2
	// slowestWrite is the longest time that counts for it.
	slowestWrite = 250 * time.Millisecond
)

// holds are the Pipelines whose next status write is delayed.
//
// Locking: mu guards lockedState, for field access only.
type holds struct {
	mu          sync.Mutex
	lockedState struct {
		of map[types.NamespacedName]hold
		// free is when the next Pipeline may be written, and end when the one may be that joins the line.
		free, end time.Time
		// took is how long a write takes.
		took time.Duration
		// observed is how many applications were observed, and rose when it was last seen to rise.
		observed int
		rose     time.Time
	}
}

// hold of a Pipeline. written: its status was written in it.
type hold struct {
	since, until time.Time
	written      bool
}

// wait returns how long to delay the status of a Pipeline with waiting targets that are not
// observed yet; 0 for no delay. observed is how many applications of all Pipelines were observed.
func (h *holds) wait(key types.NamespacedName, waiting, observed int, now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &h.lockedState
	if observed > s.observed {
		s.rose = now
	}
	s.observed = observed
	if waiting == 0 {
		delete(s.of, key)
		return 0
	}
	if s.of == nil {
		s.of = map[types.NamespacedName]hold{}
	}
	held, is := s.of[key]
	apart := holdShare * s.took
	switch {
	case !is:
		held = hold{since: now, until: now.Add(leastHold)}
	case now.Before(held.until):
	case now.Sub(s.rose) < leastHold && now.Sub(held.since) < longestStart:
		waited := now.Sub(held.since)
		held.until = now.Add(min(max(waited/2, nextHold), slowestHold, longestStart-waited))
	case !held.written && now.Before(s.free) && now.Sub(held.since) < longestHold:
		after := min(max(s.free.Sub(now), s.end.Sub(now)), nextHold, longestHold-now.Sub(held.since))
		held.until = now.Add(after)
		s.end = held.until.Add(apart)
	default:
		if !held.written { // A turn that is taken late does not delay the next.
			s.free = latest(s.free, held.until).Add(apart)
		}
		s.of[key] = hold{since: held.since, until: now.Add(nextHold), written: true}
		return 0
	}
	s.of[key] = held
	return min(held.until.Sub(now), slowestHold) // The clock may have been set back.
}

// holding returns whether the status of a Pipeline is delayed.
func (h *holds) holding(key types.NamespacedName, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	held, is := h.lockedState.of[key]
	return is && now.Before(held.until)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// wrote notes how long a write took.
func (h *holds) wrote(took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lockedState.took += (min(took, slowestWrite) - h.lockedState.took) / 4
}
