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
	// workers patch objects. A management cluster handles a thousand patches per second.
	workers = 16
	// A full receive means that the queue has more messages, and a notice may be among
	// them. Patches would delay reading. So objects that are not urgent wait for readGap
	// after each full receive, but no longer than readFirst, in which some thousands of
	// messages are read. While at most fewWait objects have work, none of them waits: they
	// delay a notice by half a second at most.
	readGap, readFirst, fewWait = 50 * time.Millisecond, time.Second, 150
)

// clusterRests are how long a member cluster is not called after it did not answer. SQS
// delivers its messages again in the meantime.
var clusterRests = memberwrite.Rests{Min: 5 * time.Second, Max: 2 * time.Minute}

// job is the work for one object.
type job struct {
	key   owner.Key
	works []work
	// urgent and queued are set by the queue that it waits in; busy while a worker has it.
	urgent, queued, busy bool
}

// lane has the objects of one cluster.
type lane struct {
	cluster string
	// urgent and normal are the objects that wait, oldest first.
	urgent, normal []owner.Key
	memberwrite.Lane
}

// lanes distribute work to workers: one worker at a time for an object, urgent objects
// first. A workload cluster gets no more workers than its share, so that an unreachable
// cluster never blocks the others.
type lanes struct {
	clock clock.Clock
	// wake has one element for each worker that may have work.
	wake chan struct{}

	mu          sync.Mutex
	lockedState struct {
		jobs  map[owner.Key]*job
		lanes []*lane
		// turn is the index of the lane that is next.
		turn int
		// full is when a receive was last full. reading is when the first of the current
		// sequence of full receives was.
		full, reading time.Time
	}
}

func newLanes(c clock.Clock) *lanes {
	l := &lanes{clock: c, wake: make(chan struct{}, workers)}
	l.lockedState.jobs = map[owner.Key]*job{}
	return l
}

// put adds work for an object. It never blocks: the windows of the queues bound the work.
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

// moreToRead records that the queue has more messages than were put so far.
func (l *lanes) moreToRead() {
	now := l.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := &l.lockedState; now.Sub(s.full) >= readGap {
		s.reading = now
	}
	l.lockedState.full = now
}

// delayLocked returns how long objects that are not urgent still wait for reading.
func (l *lanes) delayLocked() time.Duration {
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
	default: // All workers are already called.
	}
}

// enqueueLocked enqueues a job. A waiting job that becomes urgent is in both queues: the
// second one finds no work.
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

// ofLocked returns the lane of a cluster.
func (l *lanes) ofLocked(cluster string) *lane {
	s := &l.lockedState
	at := slices.IndexFunc(s.lanes, func(at *lane) bool { return at.cluster == cluster })
	if at < 0 {
		s.lanes = append(s.lanes, &lane{cluster: cluster})
		at = len(s.lanes) - 1
	}
	return s.lanes[at]
}

// turn is what a worker does next: a job and its works, or nothing when the job is nil.
// resting reports that the cluster must not be called. delay is how long objects that are
// not urgent still wait.
type turn struct {
	*job
	works   []work
	resting bool
	delay   time.Duration
}

// take returns the next job.
func (l *lanes) take() turn {
	l.mu.Lock()
	defer l.mu.Unlock()
	j, resting := l.nextLocked(func(at *lane) *[]owner.Key { return &at.urgent })
	if j == nil {
		if delay := l.delayLocked(); delay > 0 && len(l.lockedState.jobs) > fewWait {
			return turn{delay: delay}
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

// nextLocked returns the next job of one of the two queues, from all lanes in turn. It also
// reports whether the cluster rests.
func (l *lanes) nextLocked(queue func(*lane) *[]owner.Key) (*job, bool) {
	s := &l.lockedState
	for i := range s.lanes {
		at := s.lanes[(s.turn+i)%len(s.lanes)]
		waiting := queue(at)
		for len(*waiting) > 0 && at.free() {
			j := s.jobs[(*waiting)[0]]
			*waiting = (*waiting)[1:]
			if j == nil || j.busy || len(j.works) == 0 {
				continue // It was in both queues.
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

// len returns how many objects have work.
func (l *lanes) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lockedState.jobs)
}

// run is one worker. It ends with the context.
func (l *lanes) run(ctx context.Context, do func(context.Context, owner.Key, []work) memberwrite.Outcome, skip func([]work)) {
	for ctx.Err() == nil {
		t := l.take()
		switch {
		case t.job == nil:
			l.wait(ctx, t.delay)
		case t.resting:
			skip(t.works)
			l.done(t.job, memberwrite.Skipped)
		default:
			l.done(t.job, do(ctx, t.key, t.works))
		}
	}
}

// wait returns when there may be work, or after delay if that is not zero.
func (l *lanes) wait(ctx context.Context, delay time.Duration) {
	var over <-chan time.Time
	if delay > 0 {
		timer := l.clock.NewTimer(delay)
		defer timer.Stop()
		over = timer.C()
	}
	select {
	case <-l.wake:
	case <-over:
	case <-ctx.Done():
	}
}
