package pipeline

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// The status of a Pipeline is written at intervals while this process has not observed all its
// targets: after leastHold at first, and then every nextHold. When all are observed, it is written
// at once. At a start with thousands of Pipelines, those with all their targets are written first:
// the others stand in line for their first write, holdShare times what a write takes at the time
// apart, so that few of eight writers write them. After longestHold none stands in line.
//
// The start of a hub over a large fleet takes longer. While it goes on, a Pipeline that this process has not written
// yet waits for all its targets, so that it is written once: for longestStart after the process began to lead, or for
// standFor if an earlier process wrote a status. Each is asked again when it has waited for half as long again, but
// after startHold at least and slowestHold at most. The start is over when no cluster was connected and no application
// was observed, each for the first time, for a tenth of its time, but for leastPause at least and longestPause at most:
// a start on a busy machine has pauses, too.
const (
	leastHold    = 2 * time.Second
	nextHold     = 4 * time.Second
	slowestHold  = 10 * time.Second
	longestHold  = 20 * time.Second
	leastPause   = 500 * time.Millisecond
	longestPause = 2 * time.Second
	startHold    = time.Second
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
		// connected and observed are the largest numbers of a start, and rose is when one of them was seen to rise.
		connected, observed int
		rose                time.Time
	}
}

// hold of a Pipeline. written: its status was written in it.
type hold struct {
	since, until time.Time
	written      bool
}

// start of the hub, for one Pipeline: how many clusters were connected and how many applications are observed, of all
// Pipelines; since when the process leads, and until when the Pipeline waits for all its targets if the start goes on.
type start struct {
	connected, observed int
	since, until        time.Time
}

// goesOn returns whether the start goes on, for the Pipeline. rose: when the start last made progress.
func (of start) goesOn(rose, now time.Time) bool {
	pause := min(max(now.Sub(of.since)/10, leastPause), longestPause)
	return now.Before(of.until) && now.Sub(rose) < pause
}

// hold returns how long to delay the status of a Pipeline with waiting targets that are not observed yet. written: this
// process has written it before.
func (r *Reconciler) hold(p *pipelinesv1.Pipeline, waiting int, written bool) time.Duration {
	of := start{connected: int(r.connected()), observed: r.Index.Stats().Observations}
	if led := r.led.Load(); led != nil && !written {
		of.since, of.until = *led, led.Add(longestStart)
		if p.Status.ObservedGeneration == p.Generation {
			of.until = led.Add(standFor)
		}
	}
	return r.holds.wait(client.ObjectKeyFromObject(p), waiting, of, r.Clock.Now())
}

// wait returns how long to delay the status of a Pipeline with waiting targets that are not
// observed yet; 0 for no delay.
func (h *holds) wait(key types.NamespacedName, waiting int, of start, now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &h.lockedState
	if of.connected > s.connected || of.observed > s.observed {
		s.connected, s.observed, s.rose = max(s.connected, of.connected), max(s.observed, of.observed), now
	}
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
	case of.goesOn(s.rose, now):
		held.until = now.Add(min(max(now.Sub(held.since)/2, startHold), slowestHold, of.until.Sub(now)))
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
