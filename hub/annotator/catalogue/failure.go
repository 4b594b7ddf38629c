package catalogue

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/capstan-hub/capstan/hub/awsconfig"
)

// blame is whom a failure is laid to: a role, or all who ask in the region.
type blame struct {
	role     awsconfig.Role
	everyone bool
}

// blameFor an error. An account that is throttled or lacks a right is no reason to
// keep others waiting; an endpoint that does not answer is, or a thousand roles would
// each wait for it in turn.
func blameFor(err *Error, role awsconfig.Role) blame {
	if errors.Is(err.Class, ErrUnavailable) || errors.Is(err.Class, ErrRegionUnknown) {
		return blame{everyone: true}
	}
	return blame{role: role}
}

// failure that is answered with, instead of calling AWS, for a time.
type failure struct {
	err   *Error
	until time.Time
	// wait that ends then; the next is twice as long.
	wait time.Duration
}

// failureLocked is the failure that concerns a role now.
func (r *region) failureLocked(role awsconfig.Role, now time.Time) (failure, bool) {
	for _, b := range []blame{{everyone: true}, {role: role}} {
		if f, fails := r.failing[b]; fails && now.Before(f.until) {
			return f, true
		}
	}
	return failure{}, false
}

// failLocked records what a call with a role ended in, and returns how long nobody else
// tries.
func (r *region) failLocked(err *Error, role awsconfig.Role, now time.Time) time.Duration {
	least := r.timings.RetryDenied
	if errors.Is(err.Class, ErrThrottled) || errors.Is(err.Class, ErrUnavailable) {
		least = r.timings.Retry
	}
	b := blameFor(err, role)
	wait := min(max(2*r.failing[b].wait, least), r.timings.RetryMost)
	makeRoom(r.failing, mostFailing)
	// Drawn from the upper half, so that regions lost together are not sought together.
	drawn := wait/2 + rand.N(wait/2+1)
	r.failing[b] = failure{err: err, until: now.Add(drawn), wait: wait}
	return drawn
}

// healLocked removes the failures that a successful call with a role has ended.
func (r *region) healLocked(role awsconfig.Role) {
	delete(r.failing, blame{everyone: true})
	delete(r.failing, blame{role: role})
}

// refreshJitter spreads the listings of regions that were first asked about together.
const refreshJitter = 0.1

// jittered is d ±10 %.
func jittered(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (1 - refreshJitter + 2*refreshJitter*rand.Float64()))
}
