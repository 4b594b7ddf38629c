package publisher

import (
	"context"
	"sync"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/capstan-hub/capstan/hub/eventing/event"
	"github.com/capstan-hub/capstan/hub/eventing/sink"
)

// backend is a queue and the goroutine that empties it.
type backend struct {
	name    string
	clock   clock.WithTicker
	log     logr.Logger
	options *Options
	metrics *metrics
	// wake makes the goroutine check the queue again. Several wakes before that count once.
	wake chan struct{}
	// dead hands an event that is given up to another backend.
	dead func(to string, it *item) verdict

	// mu guards lockedQueue.
	mu          sync.Mutex
	lockedQueue *queue
}

// poke wakes the goroutine.
func (b *backend) poke() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// offer queues an event that the backend selects.
func (b *backend) offer(e ce.Event, from Source, walk bool) verdict {
	entry, _ := event.EntryOf(event.KindOf(e))
	since := b.clock.Now()
	if walk && !e.Time().IsZero() && e.Time().Before(since) {
		since = e.Time() // It has waited in its object.
	}
	return b.take(&item{event: e, from: from, size: sizeOf(e), level: entry.Level, since: since}, walk)
}

func (b *backend) take(it *item, walk bool) verdict {
	b.mu.Lock()
	before := b.lockedQueue.standing()
	o := b.lockedQueue.take(it, b.clock.Now(), walk)
	after := b.lockedQueue.standing()
	b.mu.Unlock()
	b.turned(before, after, nil)
	b.taken(o)
	return o.verdict
}

// taken handles the result of an offer.
func (b *backend) taken(o offered) {
	switch o.verdict {
	case queued:
		b.poke()
	case replacing:
		b.metrics.coalesced.WithLabelValues(b.name).Inc()
		b.settle(o.older, Superseded)
	case deferred:
		b.metrics.deferred.WithLabelValues(b.name).Inc()
		b.poke()
	case repeated:
		if o.settled != DeadLettered { // The other backend settles it.
			b.settle(o.item, o.settled)
		}
	case tooLarge:
		b.drop(o.item, string(tooLarge))
		b.settle(o.item, GivenUp)
	case full:
		if !o.item.dead { // The backend that gave it up keeps it.
			b.drop(o.item, string(full))
		}
	case known, closed:
	}
}

func (b *backend) settle(it *item, how Outcome) {
	if it.from != nil {
		it.from.Settled(b.name, it.event.ID(), how)
	}
}

// drop counts and logs an event that is dropped.
func (b *backend) drop(it *item, reason string) {
	b.mu.Lock()
	b.lockedQueue.dropped++
	b.lockedQueue.lastDrop = Drop{b.clock.Now(), reason}
	b.mu.Unlock()
	b.metrics.dropped.WithLabelValues(b.name, reason).Inc()
	b.log.Info("event dropped", "reason", reason, "type", it.event.Type(), "subject", it.event.Subject(), "id", it.event.ID())
}

// run starts attempts until the queue has ended, and returns how many events are left in it.
// The end of publishing cancels the attempts; the end of walking cancels the walks.
func (b *backend) run(publishing, walking context.Context) (left int) {
	var busy sync.WaitGroup
	defer func() {
		busy.Wait()
		left = b.end(publishing)
	}()
	for {
		now := b.clock.Now()
		b.mu.Lock()
		q := b.lockedQueue
		walk := q.mayWalk(now)
		q.walking = q.walking || walk
		var a *attempt
		if publishing.Err() == nil {
			a = q.next(now)
		}
		at := q.wakeAt()
		if a == nil && !walk && (q.over(now) || (publishing.Err() != nil && q.inFlight == 0 && !q.walking)) {
			q.ended = true
		}
		ended := q.ended
		b.mu.Unlock()
		if walk {
			busy.Go(func() { b.walk(walking) })
		}
		if a != nil {
			busy.Go(func() { b.attempt(publishing, a) })
		}
		switch {
		case ended:
			return 0 // The deferred end sets the count.
		case a == nil && !walk:
			b.sleep(publishing, at, now)
		}
	}
}

// sleep until a wake, a time, or the end of publishing.
func (b *backend) sleep(publishing context.Context, at, now time.Time) {
	var due <-chan time.Time
	if !at.IsZero() {
		timer := b.clock.NewTimer(at.Sub(now))
		defer timer.Stop()
		due = timer.C()
	}
	cancelled := publishing.Done()
	if publishing.Err() != nil {
		cancelled = nil // Already handled; each attempt wakes the goroutine when it returns.
	}
	select {
	case <-b.wake:
	case <-due:
	case <-cancelled:
	}
}

// attempt sends one event, or a ping.
func (b *backend) attempt(publishing context.Context, a *attempt) {
	ctx, cancel := context.WithTimeout(publishing, a.settings.Timeout)
	begun := b.clock.Now()
	var err error
	if a.lane == nil {
		err = a.handle.sink.Ping(ctx)
	} else {
		err = a.handle.sink.Publish(ctx, event.Prefixed(a.item.event, a.settings.Prefix))
		b.metrics.seconds.WithLabelValues(b.name).Observe(b.clock.Since(begun).Seconds())
	}
	cancel()
	a.handle.inUse.Done()
	switch {
	case err == nil && a.lane == nil:
		b.finish(a, "", nil)
	case err == nil:
		b.finish(a, Published, nil)
	default:
		b.fail(a, sink.Of(err))
	}
	b.poke()
}

// fail ends an attempt that has failed: the event stays in the queue, or is given up.
func (b *backend) fail(a *attempt, err *sink.Error) {
	b.mu.Lock()
	b.lockedQueue.countRefusal(a, err)
	exhausted := b.lockedQueue.exhausted(a, err)
	b.mu.Unlock()
	if a.lane != nil {
		b.metrics.published.WithLabelValues(b.name, a.settings.Type, string(err.Class)).Inc()
	}
	if exhausted {
		if how := b.giveUp(a, err); how != "" {
			b.finish(a, how, err)
			return
		}
	}
	now := b.clock.Now()
	b.mu.Lock()
	q := b.lockedQueue
	before := q.standing()
	q.failed(a, err, now)
	after := q.standing()
	b.mu.Unlock()
	b.turned(before, after, err)
}

// turned logs and reports when a backend, or its queue, starts or stops accepting events.
func (b *backend) turned(before, after standing, err *sink.Error) {
	if before == after {
		return
	}
	switch {
	case err != nil && (after.open && !before.open || after.gone && !before.gone):
		b.log.Info("the backend accepts no events; they wait in its queue", "class", err.Class, "code", err.Code, "error", err.Error())
	case before.open && !after.open:
		b.log.Info("the backend accepts events again")
	}
	if b.options.Changed != nil {
		b.options.Changed(b.name)
	}
}

// finish ends an attempt whose event leaves the queue; err is why it was given up.
func (b *backend) finish(a *attempt, how Outcome, err *sink.Error) {
	now := b.clock.Now()
	b.mu.Lock()
	q := b.lockedQueue
	before := q.standing()
	q.finished(a, how, err, now)
	after := q.standing()
	b.mu.Unlock()
	b.turned(before, after, err)
	if a.lane == nil {
		return
	}
	switch how {
	case Published:
		b.metrics.published.WithLabelValues(b.name, a.settings.Type, "ok").Inc()
		b.settle(a.item, how)
	case GivenUp:
		b.drop(a.item, err.Code)
		b.settle(a.item, how)
		if b.options.GivenUp != nil {
			b.options.GivenUp(b.name, a.item.event, err.Code)
		}
	case DeadLettered: // The other backend settles it.
		b.metrics.deadLetters.WithLabelValues(b.name, a.settings.DeadLetter).Inc()
	case Superseded, Unwanted:
	}
}

// end closes the sink and returns how many events are left.
func (b *backend) end(publishing context.Context) int {
	b.mu.Lock()
	q := b.lockedQueue
	left, lost := q.count, 0
	for _, l := range q.lanes {
		for _, it := range l.items {
			if l, dead := it.from.(letter); it.from == nil || (dead && l.of.from == nil) {
				lost++
			}
		}
	}
	h := q.handle
	b.mu.Unlock()
	b.metrics.dropped.WithLabelValues(b.name, "stopped").Add(float64(lost))
	if left > 0 {
		b.log.Info("the backend ended with events in its queue", "events", left, "lost", lost)
	}
	b.close(publishing, h)
	return left
}

// close a sink when none of its calls is in progress.
func (b *backend) close(ctx context.Context, h *handle) {
	h.inUse.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := h.sink.Close(ctx); err != nil {
		b.log.Info("closing the connections of a backend failed", "error", err.Error())
	}
}
