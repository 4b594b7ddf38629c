package instancestate

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/capstan-hub/capstan/hub/instancestate/owner"
	"github.com/capstan-hub/capstan/internal/memberwrite"
)

const (
	// workers patch objects. A management cluster takes a thousand patches in a second.
	workers = 16
	// While a queue has more to be read than one receive brings, a notice may be among it,
	// and patches would take the time of reading. So objects that are not urgent wait for
	// readGap after each full receive; but for no longer than readFirst, in which some
	// thousands of messages are read. Of no more than fewWait objects none waits: a notice
	// behind them is late by half a second at most.
	readGap, readFirst, fewWait = 50 * time.Millisecond, time.Second, 150
)

// clusterRests are how long a member cluster rests that did not answer. Its messages come
// again meanwhile.
var clusterRests = memberwrite.Rests{Min: 5 * time.Second, Max: 2 * time.Minute}

// job is what is to be done on one object.
type job struct {
	key   owner.Key
	works []work
	// urgent and queued say where it waits, busy that a worker has it.
	urgent, queued, busy bool
}

// lane of one cluster.
type lane struct {
	cluster string
	// urgent and normal objects that wait, oldest first.
	urgent, normal []owner.Key
	memberwrite.Lane
}

// lanes bring work to workers: one worker at a time for an object, urgent objects first,
// and no more workers for a workload cluster than its share, so that one that hangs holds
// no other up.
type lanes struct {
	clock clock.Clock
	// wake holds one for each worker that may have something to do.
	wake chan struct{}

	mu          sync.Mutex
	lockedState struct {
		jobs  map[owner.Key]*job
		lanes []*lane
		// turn is the lane that is looked at first.
		turn int
		// full is when a receive was last full, and reading since when they are.
		full, reading time.Time
	}
}

func newLanes(c clock.Clock) *lanes {
	l := &lanes{clock: c, wake: make(chan struct{}, workers)}
	l.lockedState.jobs = map[owner.Key]*job{}
	return l
}

// put work on an object. It never blocks: queues bound how much there is.
func (l *lanes) put(key owner.Key, w work) {
	l.mu.Lock()
	j := l.lockedState.jobs[key]
	if j == nil {
		j = &job{key: key}
		l.lockedState.jobs[key] = j
	}
	j.works = append(j.works, w)
	l.enqueueLocked(j, w.fact.Urgent())
	l.mu.Unlock()
	l.signal()
}

// more is to be read than what was put so far.
func (l *lanes) more() {
	now := l.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := &l.lockedState; now.Sub(s.full) >= readGap {
		s.reading = now
	}
	l.lockedState.full = now
}

// held is for how long objects that are not urgent wait for others to be read; l.mu is
// held.
func (l *lanes) held() time.Duration {
	s := &l.lockedState
	until := s.full.Add(readGap)
	if most := s.reading.Add(readFirst); most.Before(until) {
		until = most
	}
	return until.Sub(l.clock.Now())
}

func (l *lanes) signal() {
	select {
	case l.wake <- struct{}{}:
	default: // As many as there are workers are already called.
	}
}

// enqueueLocked enqueues a job. One that waits and has become urgent is enqueued twice:
// the second time there is nothing to do.
func (l *lanes) enqueueLocked(j *job, urgent bool) {
	if j.busy {
		j.urgent = j.urgent || urgent
		return
	}
	if j.queued && (j.urgent || !urgent) {
		return
	}
	at := l.ofLocked(j.key.Cluster)
	if urgent {
		at.urgent = append(at.urgent, j.key)
	} else {
		at.normal = append(at.normal, j.key)
	}
	j.queued, j.urgent = true, j.urgent || urgent
}

// ofLocked is the lane of a cluster.
func (l *lanes) ofLocked(cluster string) *lane {
	s := &l.lockedState
	at := slices.IndexFunc(s.lanes, func(at *lane) bool { return at.cluster == cluster })
	if at < 0 {
		s.lanes = append(s.lanes, &lane{cluster: cluster})
		at = len(s.lanes) - 1
	}
	return s.lanes[at]
}

// turn of a worker: a job and its works; none for now when nil. resting says that the
// cluster is not to be called, and held for how long there may be none.
type turn struct {
	*job
	works   []work
	resting bool
	held    time.Duration
}

// take the next job.
func (l *lanes) take() turn {
	l.mu.Lock()
	defer l.mu.Unlock()
	j, resting := l.nextLocked(func(at *lane) *[]owner.Key { return &at.urgent })
	if j == nil {
		if held := l.held(); held > 0 && len(l.lockedState.jobs) > fewWait {
			return turn{held: held}
		}
		j, resting = l.nextLocked(func(at *lane) *[]owner.Key { return &at.normal })
	}
	if j == nil {
		return turn{}
	}
	works := j.works
	j.works, j.busy, j.queued, j.urgent = nil, true, false, false
	return turn{job: j, works: works, resting: resting}
}

// nextLocked is the next job in one of the queues of all lanes, in turn.
func (l *lanes) nextLocked(queue func(*lane) *[]owner.Key) (*job, bool) {
	s := &l.lockedState
	for i := range s.lanes {
		at := s.lanes[(s.turn+i)%len(s.lanes)]
		waiting := queue(at)
		for len(*waiting) > 0 && at.free() {
			j := s.jobs[(*waiting)[0]]
			*waiting = (*waiting)[1:]
			if j == nil || j.busy || len(j.works) == 0 {
				continue // It waited twice.
			}
			at.Enter()
			s.turn = (s.turn + i + 1) % len(s.lanes)
			return j, at.Resting(l.clock.Now()) > 0
		}
	}
	return nil, false
}

// free reports whether a worker may enter. The management cluster has no share.
func (at *lane) free() bool { return at.cluster == "" || at.Free() }

// done ends the turn of a job.
func (l *lanes) done(j *job, o memberwrite.Outcome) {
	l.mu.Lock()
	s := &l.lockedState
	at := l.ofLocked(j.key.Cluster)
	if at.cluster == "" {
		o = memberwrite.Skipped // The management cluster never rests.
	}
	at.Leave(o, clusterRests, l.clock.Now())
	j.busy = false
	if len(j.works) > 0 {
		l.enqueueLocked(j, j.urgent)
	} else {
		delete(s.jobs, j.key)
	}
	if at.Idle() && len(at.urgent)+len(at.normal) == 0 {
		s.lanes = slices.DeleteFunc(s.lanes, func(other *lane) bool { return other == at })
		s.turn = 0
	}
	more := len(s.jobs) > 0
	l.mu.Unlock()
	if more {
		l.signal()
	}
}

// len is how many objects have work.
func (l *lanes) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lockedState.jobs)
}

// run a worker until the context ends.
func (l *lanes) run(ctx context.Context, do func(context.Context, owner.Key, []work) memberwrite.Outcome, skip func([]work)) {
	for ctx.Err() == nil {
		t := l.take()
		switch {
		case t.job == nil:
			l.wait(ctx, t.held)
		case t.resting:
			skip(t.works)
			l.done(t.job, memberwrite.Skipped)
		default:
			l.done(t.job, do(ctx, t.key, t.works))
		}
	}
}

// wait until there may be something to do: after held, if that is not zero.
func (l *lanes) wait(ctx context.Context, held time.Duration) {
	var over <-chan time.Time
	if held > 0 {
		timer := l.clock.NewTimer(held)
		defer timer.Stop()
		over = timer.C()
	}
	select {
	case <-l.wake:
	case <-over:
	case <-ctx.Done():
	}
}
