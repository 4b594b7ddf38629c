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

// ErrStopped is returned to who sets a backend after the end.
var ErrStopped = errors.New("the publisher has stopped")

// Options of a Publisher.
type Options struct {
	Clock  clock.WithTicker
	Logger logr.Logger
	// Sources are asked for what is pending, in their order.
	Sources []Source
	// Dwell is the least time between two level events of one subject.
	Dwell time.Duration
	// Drain is how long Start goes on after the end of its context.
	Drain time.Duration
	// GivenUp is told of an event that nobody will get, and the code of the error. It
	// must not block.
	GivenUp func(backend string, e ce.Event, code string)
	// Changed is told when a backend, or its queue, begins or ceases to take events. It
	// must not block.
	Changed func(backend string)
	// Ended is told when a backend has ended, with how many events were left in its
	// queue. It must not block.
	Ended func(backend string, left int)
}

// Publisher of events. Start must be called, or no sink is ever closed.
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

// Set a backend by its name ("namespace/name"): a new one, or another sink for a known
// one, whose old sink is closed when what is on its way has come back.
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

// replace the sink, unless the backend has ended.
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

// Remove a backend: it gets no more events and ends when its queue is empty, or after
// grace. Known tells when it has ended.
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

// Tell every backend that wants it of an event; from can emit it again, and is nil when
// nobody can.
func (p *Publisher) Tell(e ce.Event, from Source) {
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

// Ask the Sources again what is pending, for every backend: a Source has more to emit
// than what it told.
func (p *Publisher) Ask() {
	for _, b := range p.all() {
		b.mu.Lock()
		b.lockedQueue.deferring, b.lockedQueue.walkAt = true, time.Time{}
		b.mu.Unlock()
		b.poke()
	}
}

// all backends, by name.
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

// Start publishes until ctx ends, and then for as long as Options.Drain, or until
// nothing is left.
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
