package publisher

import (
	"time"

	"github.com/capstan-hub/capstan/internal/backoff"
)

const (
	// breakAfter failures in a row, over all subjects, a broker is taken for dead: one
	// is chance, a handful within a backoff is not.
	breakAfter = 5
	// probeMax bounds the time between two tries of a dead broker, beside the backend's own
	// bound: nobody wants to wait longer for what was mended.
	probeMax = 30 * time.Second
)

// breaker keeps events away from a broker that is dead. It is guarded by backend.mu.
type breaker struct {
	failures int       // in a row, while closed
	open     bool      // nothing passes but probes
	probing  bool      // a probe is on its way
	probes   int       // that failed in a row
	until    time.Time // nothing is sent before
	gone     bool      // nothing is ever sent
}

// next is when something may be sent: at (or before) now that it may. There is no time
// while a probe is on its way, or when the broker is gone.
func (b *breaker) next() (time.Time, bool) {
	return b.until, !b.gone && !b.probing
}

// begin an attempt; true when it is a probe.
func (b *breaker) begin() bool {
	b.probing = b.open
	return b.open
}

// succeeded closes it, whatever the attempt was.
func (b *breaker) succeeded() { *b = breaker{until: b.until, gone: b.gone} }

// failed counts a failure; the settings' backoff is the first time between two probes, and
// they are as far apart as it may grow, or probeMax.
func (b *breaker) failed(now time.Time, probe, atOnce bool, s Settings) {
	switch {
	case probe && b.open:
		b.probing = false
		b.probes++
	case b.open:
		return // It was on its way when the breaker opened.
	default:
		if b.failures++; b.failures < breakAfter && !atOnce {
			return
		}
		b.open = true
	}
	b.rest(now, delay(s.Backoff, min(s.BackoffMax, probeMax), b.probes))
}

// rest has nothing sent for a while.
func (b *breaker) rest(now time.Time, wait time.Duration) {
	if until := now.Add(wait); until.After(b.until) {
		b.until = until
	}
}

// delay before the next attempt, after a number of failed ones: first, doubled each time
// up to most. Up to a quarter is taken off at random, so events that failed together are
// not sent together.
func delay(first, most time.Duration, attempts int) time.Duration {
	return backoff.Policy{First: first, Max: most, Jitter: 0.25}.Wait(int64(attempts))
}
