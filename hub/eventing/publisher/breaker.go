package publisher

import (
	"time"

	"github.com/capstan-hub/capstan/internal/backoff"
)

const (
	// breakAfter is how many failures in a row, over all subjects, open the breaker: one
	// failure may be chance, five within a backoff are not.
	breakAfter = 5
	// refusalsAtMost is how many events in a row may be refused. The last of them opens the
	// breaker, and stays in the queue with those behind it: a login page or a wrong path refuses
	// every event. A receiver that refuses one kind of event is no reason for it: every second
	// probe is the newest event, and one that is accepted closes the breaker.
	refusalsAtMost = 25
	// probeMax bounds the time between two probes, in addition to Settings.BackoffMax: a
	// repaired broker is tested again within 30 s.
	probeMax = 30 * time.Second
)

// breaker stops sending events to a broker that fails. backend.mu guards it.
type breaker struct {
	failures int       // in a row, while closed
	open     bool      // only probes are sent
	probing  bool      // a probe is in flight
	probes   int       // failed probes in a row
	until    time.Time // nothing is sent before this time
	gone     bool      // nothing is sent until the sink is replaced
}

// next returns when the next attempt may start; a time that is not after now means at once. It
// returns false while a probe is in flight, and if the broker is gone.
func (b *breaker) next() (time.Time, bool) {
	return b.until, !b.gone && !b.probing
}

// begin an attempt; it returns true if the attempt is a probe.
func (b *breaker) begin() bool {
	b.probing = b.open
	return b.open
}

// succeeded closes the breaker after any successful attempt.
func (b *breaker) succeeded() { *b = breaker{until: b.until, gone: b.gone} }

// failed counts a failure; atOnce opens the breaker without counting. The time between two
// probes starts with Settings.Backoff and grows up to BackoffMax or probeMax.
func (b *breaker) failed(now time.Time, probe, atOnce bool, s Settings) {
	switch {
	case probe && b.open:
		b.probing = false
		b.probes++
	case b.open:
		return // It was in flight when the breaker opened.
	default:
		if b.failures++; b.failures < breakAfter && !atOnce {
			return
		}
		b.open = true
	}
	b.rest(now, delay(s.Backoff, min(s.BackoffMax, probeMax), b.probes))
}

// rest pauses all attempts for a time.
func (b *breaker) rest(now time.Time, wait time.Duration) {
	if until := now.Add(wait); until.After(b.until) {
		b.until = until
	}
}

// delay returns the time before the next attempt after a number of failed ones: first, doubled
// each time up to most. Up to a quarter is subtracted at random, so that events that failed
// together are not sent together.
func delay(first, most time.Duration, attempts int) time.Duration {
	return backoff.Policy{First: first, Max: most, Jitter: 0.25}.Wait(int64(attempts))
}
