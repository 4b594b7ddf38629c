package promotion

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// waits bounds the waits for times that are in a status. Such a time is a reading of the wall
// clock, of this process or of another one. If the clock was put back since, the time is too
// far in the future: the wait then begins when this process reads the time first, and is as
// long as it was meant to be.
type waits struct {
	clock clock.PassiveClock

	// mu guards lockedLate and lockedHeld.
	mu         sync.Mutex
	lockedLate map[waitKey]lateWait
	// lockedHeld are the promotions whose last attempt was held, and until when they wait.
	lockedHeld map[types.UID]time.Time
}

// waitKey identifies what a promotion waits for.
type waitKey struct {
	promotion types.UID
	cause     waitCause
}

type waitCause uint8

const (
	forAttempt waitCause = iota
	forOthers
	forAnotherTry
)

// lateWait is a wait for a time that is too far in the future.
type lateWait struct{ until, end time.Time }

func newWaits(c clock.PassiveClock) *waits {
	return &waits{clock: c, lockedLate: map[waitKey]lateWait{}, lockedHeld: map[types.UID]time.Time{}}
}

// left returns the time until a time in a status, which was at most longest in the future when
// it was written.
func (w *waits) left(p types.UID, cause waitCause, until time.Time, longest time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	key, now := waitKey{p, cause}, w.clock.Now()
	left := until.Sub(now)
	if left <= longest {
		delete(w.lockedLate, key)
		return left
	}
	late, known := w.lockedLate[key]
	if !known || !late.until.Equal(until) {
		late = lateWait{until: until, end: now.Add(longest)}
		w.lockedLate[key] = late
	}
	return min(late.end.Sub(now), longest)
}

// hold makes a promotion wait.
func (w *waits) hold(p types.UID, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lockedHeld[p] = w.clock.Now().Add(d)
}

// held returns the time until that wait ends; 0 or less if there is none.
func (w *waits) held(p types.UID) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	until, is := w.lockedHeld[p]
	if !is {
		return 0
	}
	left := until.Sub(w.clock.Now())
	if left <= 0 {
		delete(w.lockedHeld, p)
	}
	return left
}

func (w *waits) forget(p types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.lockedHeld, p)
	for _, cause := range []waitCause{forAttempt, forOthers, forAnotherTry} {
		delete(w.lockedLate, waitKey{p, cause})
	}
}
