package memberwrite

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/capstan-hub/capstan/internal/backoff"
)

// Queue of a multicluster controller.
type Queue = workqueue.TypedRateLimitingInterface[mcreconcile.Request]

// Share is how many workers one member cluster may use at once.
const Share = 2

// Rests bounds how long a member cluster rests after a call without an answer: Min at
// first, twice as long each time, and at most Max.
type Rests struct{ Min, Max time.Duration }

// Outcome is how a turn in a lane ended.
type Outcome int

// Outcomes of a turn.
const (
	// Answered: the cluster answered, with any result.
	Answered Outcome = iota
	// Unanswered: the cluster did not answer.
	Unanswered
	// Skipped: the cluster was not called.
	Skipped
)

// Lane is the share of workers of one member cluster, and its rest. The zero value is a
// cluster that answers. It is not safe for concurrent use.
type Lane struct {
	busy int
	// rest is the length of the last rest, and until is its end; both are zero for a
	// cluster that answers.
	rest  time.Duration
	until time.Time
}

// Free reports whether a worker may enter. After a rest one worker tries for all.
func (l *Lane) Free() bool {
	if l.rest > 0 {
		return l.busy == 0
	}
	return l.busy < Share
}

// Resting returns how much of a rest is left; it is not positive when there is none.
func (l *Lane) Resting(now time.Time) time.Duration { return l.until.Sub(now) }

// Enter takes a place. Each Enter has one Leave.
func (l *Lane) Enter() { l.busy++ }

// Leave gives a place back.
func (l *Lane) Leave(o Outcome, rests Rests, now time.Time) {
	l.busy--
	switch o {
	case Answered:
		l.rest, l.until = 0, time.Time{}
	case Unanswered:
		l.rest = backoff.Policy{First: rests.Min, Max: rests.Max}.Next(l.rest)
		l.until = now.Add(l.rest)
	case Skipped:
	}
}

// Idle reports whether the lane holds no worker and no rest, and can be dropped.
func (l *Lane) Idle() bool { return l.busy == 0 && l.rest == 0 }

// Lanes has a Lane for each member cluster. It is safe for concurrent use.
type Lanes struct {
	// Clock of the rests.
	Clock clock.PassiveClock
	Rests Rests
	// Retry is when to try again while a cluster uses its share.
	Retry time.Duration

	mu          sync.Mutex
	lockedState map[multicluster.ClusterName]*Lane
}

// Enter takes a place in the lane of a cluster and returns 0. Without a place it returns
// when to try again.
func (l *Lanes) Enter(name multicluster.ClusterName) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lockedState == nil {
		l.lockedState = map[multicluster.ClusterName]*Lane{}
	}
	at := l.lockedState[name]
	if at == nil {
		at = &Lane{}
		l.lockedState[name] = at
	}
	if wait := at.Resting(l.Clock.Now()); wait > 0 {
		return wait
	}
	if !at.Free() {
		return l.Retry
	}
	at.Enter()
	return 0
}

// Leave gives the place back that Enter took.
func (l *Lanes) Leave(name multicluster.ClusterName, o Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.lockedState[name]
	at.Leave(o, l.Rests, l.Clock.Now())
	if at.Idle() {
		delete(l.lockedState, name)
	}
}
