package publisher

import (
	"container/heap"
	"sync"
	"time"

	"k8s.io/utils/lru"

	"github.com/capstan-hub/capstan/hub/eventing/sink"
)

const (
	// reserve is the divisor for the part of a queue that is kept for events without a
	// Source: a quarter.
	reserve = 4
	// maxAside is how many new events wait for the end of a walk, which lasts milliseconds.
	maxAside = 1000
	// remembered is how many ids of settled events are kept: a walk may return events that a
	// Source has not recorded yet.
	remembered = 4096
)

// handle is a sink and the count of its calls in progress.
type handle struct {
	sink  sink.Sink
	inUse sync.WaitGroup
}

// queue is the state of a backend. backend.mu guards it; no method blocks.
type queue struct {
	name     string
	settings Settings
	dwell    time.Duration
	handle   *handle

	lanes    map[string]*lane
	schedule schedule
	ids      map[string]bool // of queued events
	settled  *lru.Cache      // of Outcome, by id
	turn     uint64
	count    int
	bytes    int64
	inFlight int
	breaker  breaker
	// refusals are how many events were refused since one was accepted; streak numbers these
	// times, from 1.
	refusals, streak int

	// deferring is set when an event of a Source did not fit, and to request a walk.
	deferring bool
	// full is set when an event did not fit, until the queue is half empty.
	full bool
	// walking is set during a walk; aside holds the events published during it.
	walking bool
	aside   []*item
	// walkAt is when the next walk may begin, after one that failed.
	walkAt time.Time

	// draining is set when Start ends; leaving when the backend is removed, until deadline.
	draining, leaving bool
	deadline          time.Time
	ended             bool

	lastError   *sink.Error
	lastPublish time.Time
	dropped     int
	lastDrop    Drop
}

func newQueue(name string, s Settings, dwell time.Duration) *queue {
	return &queue{
		name: name, settings: s, dwell: dwell, handle: &handle{sink: s.Sink},
		lanes: map[string]*lane{}, ids: map[string]bool{}, settled: lru.New(remembered),
		deferring: true, // The first walk.
		streak:    1,
	}
}

// verdict on an offered event.
type verdict string

const (
	queued    verdict = "queued"
	known     verdict = "known"     // it is already queued
	repeated  verdict = "repeated"  // it was already settled
	replacing verdict = "replacing" // it replaced an older one
	deferred  verdict = "deferred"
	tooLarge  verdict = "too-large" // it is larger than the whole queue
	full      verdict = "full"
	closed    verdict = "closed"
)

// offered is the result of an offer.
type offered struct {
	verdict verdict
	item    *item
	older   *item   // with replacing
	settled Outcome // with repeated
}

// take queues an event if there is room; walk is set for events from a walk.
func (q *queue) take(it *item, now time.Time, walk bool) offered {
	v, older := q.offer(it, now, walk)
	o := offered{verdict: v, item: it, older: older}
	if v == repeated {
		how, _ := q.settled.Get(it.event.ID())
		o.settled, _ = how.(Outcome)
	}
	return o
}

func (q *queue) offer(it *item, now time.Time, walk bool) (verdict, *item) {
	id := it.event.ID()
	switch {
	case q.ended, q.leaving && !it.dead:
		return closed, nil
	case q.ids[id]:
		return known, nil
	}
	if _, done := q.settled.Get(id); done {
		return repeated, nil
	}
	if it.repeatable() && !walk {
		switch {
		case q.walking && len(q.aside) < maxAside:
			q.aside = append(q.aside, it)
			return queued, nil
		case q.walking, q.deferring:
			q.deferring = true
			return deferred, nil
		}
	}
	if most, _ := q.limits(it); it.size > most {
		return tooLarge, nil
	}
	l := q.lanes[it.event.Subject()]
	if l != nil && it.level {
		if i := l.waiting(); i >= 0 && l.items[i].level {
			older := l.items[i]
			q.forget(older)
			it.since = older.since
			l.items[i] = it
			q.remember(it)
			return replacing, older
		}
	}
	if !q.fits(it) {
		q.full = true
		if !it.repeatable() {
			return full, nil
		}
		q.deferring = true
		return deferred, nil
	}
	if l == nil {
		l = &lane{subject: it.event.Subject(), place: -1}
		q.lanes[l.subject] = l
	}
	l.items = append(l.items, it)
	q.remember(it)
	if len(l.items) == 1 {
		q.place(l, now)
	}
	return queued, nil
}

// limits returns the limits of bytes and events that apply to an event.
func (q *queue) limits(it *item) (int64, int) {
	if !it.repeatable() {
		return q.settings.MaxBytes, q.settings.MaxEvents
	}
	return q.settings.MaxBytes - q.settings.MaxBytes/reserve, q.settings.MaxEvents - q.settings.MaxEvents/reserve
}

func (q *queue) fits(it *item) bool {
	most, events := q.limits(it)
	return q.count < events && q.bytes+it.size <= most
}

func (q *queue) remember(it *item) {
	q.ids[it.event.ID()] = true
	q.count++
	q.bytes += it.size
}

func (q *queue) forget(it *item) {
	delete(q.ids, it.event.ID())
	q.count--
	q.bytes -= it.size
	q.full = q.full && !q.halfEmpty()
}

// standing is the part of the state whose changes are reported.
type standing struct{ open, gone, full bool }

func (q *queue) standing() standing { return standing{q.breaker.open, q.breaker.gone, q.full} }

func (q *queue) halfEmpty() bool {
	return q.count <= q.settings.MaxEvents/2 && q.bytes <= q.settings.MaxBytes/2
}

// place a lane into the schedule.
func (q *queue) place(l *lane, now time.Time) {
	q.turn++
	l.turn, l.due = q.turn, l.dueAt(now, q.draining || q.leaving)
	q.schedule.put(l)
}

// attempt to send one event, or, where lane is nil, to ping.
type attempt struct {
	lane     *lane
	item     *item
	handle   *handle
	settings Settings
	probe    bool
}

// next returns an attempt that may start now; nil for none.
func (q *queue) next(now time.Time) *attempt {
	at, may := q.breaker.next()
	late := q.leaving && !now.Before(q.deadline)
	if !may || now.Before(at) || q.inFlight >= q.settings.MaxInFlight || late {
		return nil
	}
	for len(q.schedule) > 0 && !q.schedule[0].due.After(now) {
		l := q.schedule[0]
		if q.refusesAll() && q.breaker.probes%2 == 1 {
			l = q.schedule.newest(now) // The broker may refuse one kind of event, of which many wait.
		}
		q.schedule.take(l)
		if len(l.items) == 0 {
			delete(q.lanes, l.subject)
			continue
		}
		l.busy = true
		return q.begin(&attempt{lane: l, item: l.items[0]})
	}
	if q.breaker.open && q.count == 0 {
		return q.begin(&attempt{})
	}
	return nil
}

func (q *queue) begin(a *attempt) *attempt {
	q.inFlight++
	q.handle.inUse.Add(1)
	a.handle, a.settings, a.probe = q.handle, q.settings, q.breaker.begin()
	return a
}

// wakeAt returns when next or mayWalk must be called again if nothing happens before; zero
// for never.
func (q *queue) wakeAt() time.Time {
	var at time.Time
	sooner := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	if until, may := q.breaker.next(); may && q.inFlight < q.settings.MaxInFlight {
		if len(q.schedule) > 0 {
			sooner(later(until, q.schedule[0].due))
		} else if q.breaker.open && q.count == 0 {
			sooner(until)
		}
	}
	if q.leaving {
		sooner(q.deadline)
	}
	if q.deferring && !q.walking {
		sooner(q.walkAt)
	}
	return at
}

// failed ends an attempt whose event stays in the queue.
func (q *queue) failed(a *attempt, err *sink.Error, now time.Time) {
	q.inFlight--
	q.lastError = q.shown(err)
	if a.handle != q.handle {
		// It failed at a sink that was replaced meanwhile: the new one is not affected.
		q.release(a, now)
		return
	}
	charged := err.Class == sink.Transient && !q.breaker.open
	q.judge(a, err, now)
	if a.lane != nil {
		wait := a.settings.BackoffMax
		if err.Class == sink.Transient || err.Class == sink.Unavailable || q.refusesAll() {
			wait = delay(a.settings.Backoff, a.settings.BackoffMax, a.item.attempts)
		}
		a.lane.retry = now.Add(wait)
		a.item.tries++
		if charged {
			a.item.attempts++
		}
		if a.item.failedAt.IsZero() {
			a.item.failedAt = now
		}
	}
	q.release(a, now)
}

// judge updates the breaker with the result of an attempt, unless its sink was replaced.
func (q *queue) judge(a *attempt, err *sink.Error, now time.Time) {
	switch {
	case a.handle != q.handle:
		return
	case err != nil && err.Class == sink.Gone:
		q.breaker = breaker{gone: true, open: true}
	case q.answers(a, err):
		q.breaker.succeeded()
	default: // Also for an event that is given up: it may fail because the broker fails.
		q.breaker.failed(now, a.probe, err == nil || err.Class != sink.Transient, a.settings)
	}
	if err != nil && err.RetryAfter > 0 {
		q.breaker.rest(now, min(err.RetryAfter, maxRetryAfter))
	}
}

// answers returns whether the broker works: it accepts an event, or refuses one that may be the
// cause. A ping says nothing of what it does with events.
func (q *queue) answers(a *attempt, err *sink.Error) bool {
	switch {
	case err == nil && a.lane != nil:
		q.forgetRefusals()
	case err == nil, err.Class == sink.TooLarge, err.Class == sink.Refused:
	default:
		return false
	}
	return !q.refusesAll()
}

// countRefusal counts an event that the broker refuses, once until one is accepted.
func (q *queue) countRefusal(a *attempt, err *sink.Error) {
	if err.Class == sink.Refused && a.lane != nil && a.handle == q.handle && a.item.refused != q.streak {
		a.item.refused = q.streak
		q.refusals++
	}
}

func (q *queue) forgetRefusals() {
	q.refusals = 0
	q.streak++
}

// refusesAll returns whether so many events in a row were refused that the cause is the broker,
// or its address, rather than the events.
func (q *queue) refusesAll() bool { return q.refusals >= refusalsAtMost }

// shown returns the error for the status.
func (q *queue) shown(err *sink.Error) *sink.Error {
	if err.Class != sink.Refused || !q.refusesAll() {
		return err
	}
	return sink.Errorf(sink.Unavailable, err.Code, "%d events in a row were refused, and none was accepted: the others wait; the last refusal: %w", q.refusals, err.Err)
}

// exhausted returns whether the event must be given up after this failure. A transient failure
// counts only if other events were published since the event first failed. Before that, the
// broker itself may fail, which the breaker detects.
func (q *queue) exhausted(a *attempt, err *sink.Error) bool {
	if a.lane == nil || a.handle != q.handle {
		return false
	}
	switch err.Class {
	case sink.Refused:
		return !q.refusesAll()
	case sink.TooLarge:
		return true
	case sink.Transient:
		return !q.breaker.open && a.item.attempts >= a.settings.MaxAttempts &&
			!a.item.failedAt.IsZero() && q.lastPublish.After(a.item.failedAt)
	case sink.Unavailable, sink.Gone:
	}
	return false
}

// finished ends an attempt whose event leaves the queue: published, or given up with err.
func (q *queue) finished(a *attempt, how Outcome, err *sink.Error, now time.Time) {
	q.inFlight--
	q.judge(a, err, now)
	if a.lane != nil {
		it := a.lane.pop()
		q.forget(it)
		q.settled.Add(it.event.ID(), how)
		if it.level && how == Published {
			a.lane.quiet = now.Add(q.dwell)
		}
	}
	if how == Published {
		q.lastPublish = now
		q.lastError = nil
	}
	if err != nil {
		q.lastError = q.shown(err)
	}
	q.release(a, now)
}

// release the lane of an attempt that has ended.
func (q *queue) release(a *attempt, now time.Time) {
	l := a.lane
	if l == nil {
		return
	}
	l.busy = false
	if len(l.items) == 0 && (!l.quiet.After(now) || len(q.lanes) > 2*q.settings.MaxEvents) {
		delete(q.lanes, l.subject)
		return
	}
	q.place(l, now)
}

// replace the sink and return the old one. Events that failed there are sent again at once.
func (q *queue) replace(s Settings, now time.Time) *handle {
	old := q.handle
	q.settings, q.handle = s, &handle{sink: s.Sink}
	q.breaker, q.lastError = breaker{}, nil
	q.forgetRefusals()
	q.leaving = false
	q.settled = lru.New(remembered) // The new sink may have another broker without these events.
	q.reschedule(now, true)
	return old
}

// reschedule updates when all lanes are due; forgive resets the failures of their items.
func (q *queue) reschedule(now time.Time, forgive bool) {
	for _, l := range q.lanes {
		if forgive {
			l.retry = time.Time{}
			for _, it := range l.items {
				it.attempts, it.failedAt = 0, time.Time{}
			}
		}
		if !l.busy {
			l.due = l.dueAt(now, q.draining || q.leaving)
		}
	}
	heap.Init(&q.schedule)
}

// mayWalk returns whether a walk may start now.
func (q *queue) mayWalk(now time.Time) bool {
	return q.deferring && !q.walking && !q.draining && !q.leaving && !q.breaker.gone && !now.Before(q.walkAt) && q.halfEmpty()
}

// over returns whether a queue that drains or leaves has nothing more to wait for.
func (q *queue) over(now time.Time) bool {
	if q.inFlight > 0 || q.walking {
		return false
	}
	if q.leaving && (q.count == 0 || !now.Before(q.deadline) || q.breaker.gone) {
		return true
	}
	return q.draining && (q.count == 0 || q.breaker.open)
}
