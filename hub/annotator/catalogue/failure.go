package catalogue

import (
	"errors"
	"time"

	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/internal/backoff"
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
	// Half of a wait is random, so regions that fail together are not called together.
	retry := backoff.Policy{First: least, Max: r.timings.RetryMost, Jitter: 0.5}
	wait := retry.Next(r.failing[b].wait)
	makeRoom(r.failing, mostFailing)
	drawn := retry.Draw(wait)
	r.failing[b] = failure{err: err, until: now.Add(drawn), wait: wait}
	return drawn
}

// recoverLocked removes the failures that a successful call with a role has ended.
func (r *region) recoverLocked(role awsconfig.Role) {
	delete(r.failing, blame{everyone: true})
	delete(r.failing, blame{role: role})
}

// refreshJitter is the share by which the listings of regions are spread that were
// first queried together.
const refreshJitter = 0.1
