package publisher

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

// ErrStopped is returned by Set after Start has ended.
var ErrStopped = errors.New("the publisher has stopped")

// Options of a Publisher.
type Options struct {
	Clock  clock.WithTicker
	Logger logr.Logger
	// Sources return pending events; they are called in this order.
	Sources []Source
	// Dwell is the least time between two level events of one subject.
	Dwell time.Duration
	// Drain is how long Start continues to publish after its context has ended.
	Drain time.Duration
	// GivenUp is called with an event that is dropped, and the code of the error. It must not
	// block.
	GivenUp func(backend string, e ce.Event, code string)
	// Changed is called when a backend, or its queue, starts or stops accepting events. It must
	// not block.
	Changed func(backend string)
	// Ended is called when a backend has ended, with the number of events left in its queue.
	// It must not block.
	Ended func(backend string, left int)
}

// Publisher publishes events to backends. Start must be called, or no sink is ever closed.
type Publisher struct {
	options Options
	metrics *metrics
	// runs are the goroutines of backends, and those that close replaced sinks.
	runs sync.WaitGroup

	mu          sync.RWMutex
	lockedState struct {
		backends map[string]*backend
		// publishing and walking are nil before Start.
		publishing, walking context.Context
		stopped             bool
	}
}

// New makes a Publisher.
func New(o Options) *Publisher {
	o.Dwell, o.Drain = or(o.Dwell, DefaultDwell), or(o.Drain, DefaultDrain)
	p := &Publisher{options: o}
	p.lockedState.backends = map[string]*backend{}
	p.metrics = newMetrics()
	return p
}

// Set adds a backend by its name ("namespace/name"), or replaces the sink of an existing one.
// The old sink is closed when all its calls have returned.
func (p *Publisher) Set(name string, s Settings) error {
	s = s.withDefaults()
	p.mu.Lock()
	defer p.mu.Unlock()
	state := &p.lockedState
	if state.stopped {
		return ErrStopped
	}
	if b := state.backends[name]; b != nil {
		if old, alive := b.replace(s); alive {
			if old != nil && state.publishing != nil {
				p.runs.Go(func() { b.close(state.publishing, old) })
			}
			b.poke()
			return nil
		}
	}
	b := &backend{
		name: name, clock: p.options.Clock, log: p.options.Logger.WithValues("backend", name), options: &p.options, metrics: p.metrics,
		wake: make(chan struct{}, 1), dead: p.deadLetter, lockedQueue: newQueue(name, s, p.options.Dwell),
	}
	state.backends[name] = b
	if state.publishing != nil {
		p.startLocked(b)
	}
	return nil
}

// replace the sink, unless the backend has ended; then it returns false.
func (b *backend) replace(s Settings) (*handle, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lockedQueue.ended {
		return nil, false
	}
	return b.lockedQueue.replace(s, b.clock.Now()), true
}

// startLocked starts a backend's goroutine.
func (p *Publisher) startLocked(b *backend) {
	publishing, walking := p.lockedState.publishing, p.lockedState.walking
	p.runs.Go(func() {
		left := b.run(publishing, walking)
		p.mu.Lock()
		if p.lockedState.backends[b.name] == b {
			delete(p.lockedState.backends, b.name)
		}
		p.mu.Unlock()
		p.metrics.forget(b.name)
		if p.options.Ended != nil {
			p.options.Ended(b.name, left)
		}
	})
}

// Remove stops a backend: it gets no more events and ends when its queue is empty, or after
// grace. Options.Ended is called when it has ended.
func (p *Publisher) Remove(name string, grace time.Duration) {
	p.mu.RLock()
	b := p.lockedState.backends[name]
	p.mu.RUnlock()
	if b == nil {
		return
	}
	now := b.clock.Now()
	b.mu.Lock()
	if q := b.lockedQueue; !q.leaving {
		q.leaving, q.deadline = true, now.Add(grace)
		q.reschedule(now, false)
	}
	b.mu.Unlock()
	b.poke()
}

// Publish queues an event for every backend that selects it. From can emit the event again;
// nil if nothing can.
func (p *Publisher) Publish(e ce.Event, from Source) {
	for _, b := range p.all() {
		b.mu.Lock()
		wants := b.lockedQueue.settings.wants(b.name, e)
		b.mu.Unlock()
		if wants {
			b.offer(e, from, false)
		} else if from != nil {
			from.Settled(b.name, e.ID(), Unwanted)
		}
	}
}

// Resync makes every backend ask the Sources for their pending events: a Source has more
// events than it has published.
func (p *Publisher) Resync() {
	for _, b := range p.all() {
		b.mu.Lock()
		b.lockedQueue.deferring, b.lockedQueue.walkAt = true, time.Time{}
		b.mu.Unlock()
		b.poke()
	}
}

// all returns the backends, sorted by name.
func (p *Publisher) all() []*backend {
	p.mu.RLock()
	defer p.mu.RUnlock()
	backends := p.lockedState.backends
	all := make([]*backend, 0, len(backends))
	for _, name := range slices.Sorted(maps.Keys(backends)) {
		all = append(all, backends[name])
	}
	return all
}

// deadLetter gives an item to a backend.
func (p *Publisher) deadLetter(to string, it *item) verdict {
	p.mu.RLock()
	b := p.lockedState.backends[to]
	p.mu.RUnlock()
	if b == nil {
		return closed
	}
	return b.take(it, false)
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica publishes the
// events that it has.
func (*Publisher) NeedLeaderElection() bool { return false }

// Start publishes until ctx ends. Then it empties the queues for at most Options.Drain.
func (p *Publisher) Start(ctx context.Context) error {
	publishing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	p.mu.Lock()
	p.lockedState.publishing, p.lockedState.walking = publishing, ctx
	for _, b := range p.lockedState.backends {
		p.startLocked(b)
	}
	p.mu.Unlock()
	<-ctx.Done()
	p.mu.Lock()
	p.lockedState.stopped = true
	p.mu.Unlock()
	for _, b := range p.all() {
		b.mu.Lock()
		b.lockedQueue.draining = true
		b.lockedQueue.reschedule(b.clock.Now(), false)
		b.mu.Unlock()
		b.poke()
	}
	ended := make(chan struct{})
	go func() { // Ends before Start: it is waited for below.
		p.runs.Wait()
		close(ended)
	}()
	timer := p.options.Clock.NewTimer(p.options.Drain)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C():
		cancel()
	}
	<-ended
	return nil
}
