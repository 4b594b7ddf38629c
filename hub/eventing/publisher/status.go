package publisher

import (
	"time"

	"github.com/capstan-hub/capstan/hub/eventing/sink"
)

// Status of a backend.
type Status struct {
	// Queued is the number of queued events, Bytes about their size, InFlight how many of
	// them are being sent.
	Queued   int
	Bytes    int64
	InFlight int
	// Oldest is since when the oldest of them waits; zero if there is none.
	Oldest time.Time
	// Taking is false while the circuit breaker is open.
	Taking bool
	// Gone is true if the broker has answered that it accepts no more events.
	Gone bool
	// Deferring is whether events of Sources wait there and not in the queue.
	Deferring bool
	// Full is whether an event did not fit since the queue was last half empty.
	Full bool
	// LastError since the last published event; nil for none.
	LastError *sink.Error
	// LastPublish is when the broker last acknowledged an event; zero for never.
	LastPublish time.Time
	// Refusals is how many events the broker refused since it last accepted one.
	Refusals int
	// Dropped is how many events were dropped since the backend was set, and LastDrop when and
	// why the last one was.
	Dropped  int
	LastDrop Drop
}

// Drop is when and why an event was dropped. The reason is the code of an error, or full.
type Drop struct {
	At     time.Time
	Reason string
}

// Status returns the status of a backend; false if it has ended or was never set.
func (p *Publisher) Status(name string) (Status, bool) {
	p.mu.RLock()
	b := p.lockedState.backends[name]
	p.mu.RUnlock()
	if b == nil {
		return Status{}, false
	}
	return b.status(), true
}

func (b *backend) status() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.lockedQueue
	s := Status{
		Queued: q.count, Bytes: q.bytes, InFlight: q.inFlight, Taking: !q.breaker.open, Gone: q.breaker.gone,
		Deferring: q.deferring, Full: q.full, LastError: q.lastError, LastPublish: q.lastPublish,
		Refusals: q.refusals, Dropped: q.dropped, LastDrop: q.lastDrop,
	}
	for _, l := range q.lanes {
		if len(l.items) > 0 && (s.Oldest.IsZero() || l.items[0].since.Before(s.Oldest)) {
			s.Oldest = l.items[0].since
		}
	}
	return s
}
