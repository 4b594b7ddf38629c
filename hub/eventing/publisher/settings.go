package publisher

import (
	"context"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"

	"github.com/capstan-hub/capstan/hub/eventing/event"
	"github.com/capstan-hub/capstan/hub/eventing/sink"
)

// Defaults of a backend.
const (
	// DefaultMaxEvents that wait for a backend: a quarter of an hour at ten per second.
	DefaultMaxEvents = 10_000
	// DefaultMaxBytes of the events that wait: an event is about 1 KiB.
	DefaultMaxBytes = 16 << 20
	// DefaultMaxInFlight, DefaultTimeout, DefaultMaxAttempts and the backoffs are the
	// defaults of the keys of spec.config.
	DefaultMaxInFlight = 10
	DefaultTimeout     = 5 * time.Second
	DefaultMaxAttempts = 10
	DefaultBackoff     = time.Second
	DefaultBackoffMax  = 5 * time.Minute
	// DefaultDwell is the reference's value: a cluster that is unreachable for a shorter time
	// does not cause two events.
	DefaultDwell = 30 * time.Second
	// DefaultDrain is shorter than the terminationGracePeriodSeconds of the hub's Pod, 30 s.
	DefaultDrain = 20 * time.Second
)

// NoRetry as MaxAttempts: an event that fails is given up as soon as others have succeeded
// since.
const NoRetry = -1

const (
	// maxRetryAfter bounds the delay that a broker may request: a broker must not stop the hub
	// for longer.
	maxRetryAfter = 10 * time.Minute
	// overhead is about the bytes of an event in the queue in addition to its data.
	overhead = 512
	// closeTimeout bounds the end of a sink's connections.
	closeTimeout = 5 * time.Second
)

// Settings of one backend. Zero values have defaults.
type Settings struct {
	// Type of the backend, for metrics.
	Type string
	// Sink takes the events. The publisher closes it.
	Sink sink.Sink
	// EventTypes are patterns of kinds; none for all.
	EventTypes []string
	// Prefix of the events' type; empty leaves them as they are.
	Prefix string
	// MaxInFlight is how many events may be in flight at a time.
	MaxInFlight int
	// Timeout of one attempt.
	Timeout time.Duration
	// MaxAttempts is how often an event is sent again while others succeed; NoRetry for never.
	MaxAttempts int
	// Backoff before the second attempt, which doubles up to BackoffMax.
	Backoff, BackoffMax time.Duration
	// DeadLetter names the backend that gets the events that are given up; empty for none.
	DeadLetter string
	// MaxEvents and MaxBytes bound the queue.
	MaxEvents int
	MaxBytes  int64
}

func (s Settings) withDefaults() Settings {
	s.MaxInFlight = or(s.MaxInFlight, DefaultMaxInFlight)
	s.Timeout = or(s.Timeout, DefaultTimeout)
	s.MaxAttempts = or(s.MaxAttempts, DefaultMaxAttempts)
	s.Backoff = or(s.Backoff, DefaultBackoff)
	s.BackoffMax = or(s.BackoffMax, DefaultBackoffMax)
	s.MaxEvents = or(s.MaxEvents, DefaultMaxEvents)
	s.MaxBytes = or(s.MaxBytes, DefaultMaxBytes)
	if len(s.EventTypes) == 0 {
		s.EventTypes = []string{"*"}
	}
	return s
}

func or[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

// Outcome of an event at a backend.
type Outcome string

// Outcomes.
const (
	// Published: the broker has acknowledged it.
	Published Outcome = "published"
	// DeadLettered: the broker of the dead letter backend has acknowledged it.
	DeadLettered Outcome = "deadlettered"
	// Superseded: a newer event of the same subject replaced it.
	Superseded Outcome = "superseded"
	// Unwanted: the backend does not select events of its kind.
	Unwanted Outcome = "unwanted"
	// GivenUp: it was dropped and will not be sent again.
	GivenUp Outcome = "given-up"
)

// Source can emit its events again. The outbox is one.
type Source interface {
	// Pending calls yield with each event that is not recorded as settled at backend, those
	// of one subject in order, until yield returns false. It may block.
	Pending(ctx context.Context, backend string, yield func(ce.Event) bool) error
	// Settled reports the outcome of an event at backend, so that Pending does not return it
	// again. It must not block. It may be called more than once.
	Settled(backend, id string, how Outcome)
}

// sizeOf returns the bytes of an event in the queue, about.
func sizeOf(e ce.Event) int64 { return int64(len(e.Data()) + overhead) }

// wants returns whether the backend of that name gets an event. Events about a backend go
// only to the other backends.
func (s Settings) wants(name string, e ce.Event) bool {
	return event.KindOf(e).Matches(s.EventTypes) && e.Subject() != event.BackendSubject(name)
}
