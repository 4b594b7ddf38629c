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
	// DefaultMaxEvents that wait for a backend: a quarter of an hour of ten a second.
	DefaultMaxEvents = 10_000
	// DefaultMaxBytes that they take: events are about 1 KiB.
	DefaultMaxBytes = 16 << 20
	// DefaultMaxInFlight, DefaultTimeout, DefaultMaxAttempts and the backoffs are the
	// defaults of the keys of spec.config.
	DefaultMaxInFlight = 10
	DefaultTimeout     = 5 * time.Second
	DefaultMaxAttempts = 10
	DefaultBackoff     = time.Second
	DefaultBackoffMax  = 5 * time.Minute
	// DefaultDwell is the reference's: a cluster that is away for less is not told of
	// twice.
	DefaultDwell = 30 * time.Second
	// DefaultDrain is less than the grace that Kubernetes gives a Pod beyond it.
	DefaultDrain = 20 * time.Second
)

// NoRetry is a MaxAttempts: what fails is given up as soon as others have passed since.
const NoRetry = -1

const (
	// maxRetryAfter bounds what a broker may ask for: it is not to silence the hub.
	maxRetryAfter = 10 * time.Minute
	// overhead of an event in the queue beside its data and attributes, about.
	overhead = 512
	// closeTimeout bounds the end of a sink's connections.
	closeTimeout = 5 * time.Second
)

// Settings of one backend; what is zero has its default.
type Settings struct {
	// Type of the backend, for metrics.
	Type string
	// Sink that takes the events. The publisher closes it.
	Sink sink.Sink
	// EventTypes are patterns of kinds; none for all.
	EventTypes []string
	// Prefix of the events' type; empty leaves them as they are.
	Prefix string
	// MaxInFlight is how many events may be on their way at a time.
	MaxInFlight int
	// Timeout of one attempt.
	Timeout time.Duration
	// MaxAttempts is how often an event is sent again while others pass; NoRetry for never.
	MaxAttempts int
	// Backoff before the second attempt, which doubles up to BackoffMax.
	Backoff, BackoffMax time.Duration
	// DeadLetter names the backend that gets what is given up; empty for none.
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
	// Published: the broker keeps it.
	Published Outcome = "published"
	// DeadLettered: another backend's broker keeps it.
	DeadLettered Outcome = "deadlettered"
	// Superseded: a newer event of the same subject took its place.
	Superseded Outcome = "superseded"
	// Unwanted: the backend does not want events of its kind.
	Unwanted Outcome = "unwanted"
	// GivenUp: nobody keeps it, and it will not be sent again.
	GivenUp Outcome = "given-up"
)

// Source can emit its events again: it is the outbox.
type Source interface {
	// Pending calls yield with each event that backend is not recorded to have, those
	// of one subject in order, until yield returns false. It may take its time.
	Pending(ctx context.Context, backend string, yield func(ce.Event) bool) error
	// Settled tells what became of an event at backend, so that Pending does not
	// name it again. It must not block; it may come more than once.
	Settled(backend, id string, how Outcome)
}

// sizeOf an event in the queue.
func sizeOf(e ce.Event) int64 { return int64(len(e.Data()) + overhead) }

// wants tells whether the backend of that name is to be told. What is told of a backend
// goes to the other ones.
func (s Settings) wants(name string, e ce.Event) bool {
	return event.KindOf(e).Matches(s.EventTypes) && e.Subject() != event.BackendSubject(name)
}
