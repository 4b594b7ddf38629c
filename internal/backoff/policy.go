package backoff

import (
	"math/rand/v2"
	"time"
)

// Policy of waits: First, twice First, and so on, up to Max.
type Policy struct {
	// First wait. It must be positive.
	First time.Duration
	// Max bounds every wait, First as well.
	Max time.Duration
	// Jitter is the largest share of a wait that is taken off at random, from 0 to 1.
	Jitter float64
	// Rand returns a random number from 0 to n inclusive; math/rand/v2 when nil.
	Rand Rand
}

// Rand returns a random number from 0 to n inclusive.
type Rand func(n int64) int64

// Doubled returns First doubled n times, at most Max. It takes no jitter off. A
// negative n counts as 0.
func (p Policy) Doubled(n int64) time.Duration {
	wait := min(p.First, p.Max)
	for ; n > 0 && wait > 0 && wait < p.Max; n-- {
		wait = p.Next(wait)
	}
	return wait
}

// Next returns the wait after a wait of last: twice as long, at least First and at
// most Max. It takes no jitter off. After 0 it returns First.
func (p Policy) Next(last time.Duration) time.Duration {
	if last > p.Max/2 {
		return p.Max
	}
	return min(max(2*last, p.First), p.Max)
}

// Draw returns a wait with a random share of up to Jitter taken off.
func (p Policy) Draw(wait time.Duration) time.Duration {
	return wait - time.Duration(random(p.Rand, int64(float64(wait)*p.Jitter)))
}

// Wait returns Doubled(n) with jitter taken off.
func (p Policy) Wait(n int64) time.Duration { return p.Draw(p.Doubled(n)) }

// Sequence is a Policy and its position. The position of a new one is the first wait.
type Sequence struct {
	Policy
	last time.Duration
}

// NewSequence returns waits from first to most, of which up to half is taken off at
// random.
func NewSequence(first, most time.Duration) Sequence {
	return Sequence{Policy: Policy{First: first, Max: most, Jitter: 0.5}}
}

// Wait returns the next wait of the sequence, with jitter taken off.
func (s *Sequence) Wait() time.Duration {
	s.last = s.Next(s.last)
	return s.Draw(s.last)
}

// Reset makes the next wait the first one.
func (s *Sequence) Reset() { s.last = 0 }

// Begun reports whether there was a wait since the start or the last Reset.
func (s *Sequence) Begun() bool { return s.last > 0 }

// Spread returns a random duration from d less share to d plus share, a share of d
// from 0 to 1. It keeps periodic calls that began together apart. A nil Rand is
// math/rand/v2.
func Spread(d time.Duration, share float64, from Rand) time.Duration {
	half := int64(float64(d) * share)
	return d - time.Duration(half) + time.Duration(random(from, 2*half))
}

// random number from 0 to n inclusive; 0 when n is not positive.
func random(from Rand, n int64) int64 {
	switch {
	case n <= 0:
		return 0
	case from != nil:
		return from(n)
	}
	return rand.Int64N(n + 1) //nolint:gosec // Jitter is no secret.
}
