package catalogue

import (
	"errors"
	"time"

	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/internal/backoff"
)

// blame is the scope of a failure: one role, or all roles of the region.
type blame struct {
	role     awsconfig.Role
	everyone bool
}

// blameFor returns the scope of an error. A throttle or a missing right of one account must not
// block other accounts. An endpoint that does not answer blocks all roles: otherwise a thousand
// roles would wait for it one after the other.
func blameFor(err *Error, role awsconfig.Role) blame {
	if errors.Is(err.Class, ErrUnavailable) || errors.Is(err.Class, ErrRegionUnknown) {
		return blame{everyone: true}
	}
	return blame{role: role}
}

// failure is returned until a time, without a call to AWS.
type failure struct {
	err   *Error
	until time.Time
	// wait is the length of the wait that ends then; the next one is twice as long.
	wait time.Duration
	// since is when the calls began to fail, and last when the last one failed.
	since, last time.Time
}

// current reports whether the calls still fail. A call that no node group needs is not repeated, so
// that its failure ends by time.
func (f failure) current(t Timings, now time.Time) bool {
	return now.Sub(f.last) <= currentWaits*(t.RetryMost+t.Call)
}

// currentWaits is for how many of the longest waits a failure counts without another one.
const currentWaits = 2

// failureLocked returns the failure that applies to a role now.
func (r *region) failureLocked(role awsconfig.Role, now time.Time) (failure, bool) {
	for _, b := range []blame{{everyone: true}, {role: role}} {
		if f, fails := r.failing[b]; fails && now.Before(f.until) {
			return f, true
		}
	}
	return failure{}, false
}

// failLocked records the failure of a call with a role, and returns how long there is no other
// try.
func (r *region) failLocked(err *Error, role awsconfig.Role, now time.Time) time.Duration {
	least := r.timings.RetryDenied
	if errors.Is(err.Class, ErrThrottled) || errors.Is(err.Class, ErrUnavailable) {
		least = r.timings.Retry
	}
	b := blameFor(err, role)
	// Half of a wait is random, so regions that fail together are not called together.
	retry := backoff.Policy{First: least, Max: r.timings.RetryMost, Jitter: 0.5}
	wait := retry.Next(r.failing[b].wait)
	since := now
	if before, fails := r.failing[b]; fails {
		since = before.since
	}
	makeRoom(r.failing, mostFailing)
	drawn := retry.Draw(wait)
	r.failing[b] = failure{err: err, until: now.Add(drawn), wait: wait, since: since, last: now}
	if !r.outage.current(r.timings, now) {
		r.outage.since = now
	}
	r.outage.last = now
	r.failures[err.Class]++
	return drawn
}

// recoverLocked removes the failures that a successful call with a role has ended.
func (r *region) recoverLocked(role awsconfig.Role) {
	delete(r.failing, blame{everyone: true})
	delete(r.failing, blame{role: role})
	r.outage = failure{}
}

// refreshJitter spreads the listings of regions whose first queries came together.
const refreshJitter = 0.1
