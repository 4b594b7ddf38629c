package catalogue

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/internal/backoff"
)

// job is a call to AWS.
type job struct {
	// role to call with.
	role awsconfig.Role
	// demands are the types to look up; empty for a listing of the whole region.
	demands []demand
}

// keep runs the jobs of a region until ctx ends or the region is forgotten.
func (c *EC2) keep(ctx context.Context, r *region) {
	for {
		j, wait := r.next(c.clock.Now())
		if j == nil {
			if !c.sleep(ctx, r, wait) {
				return
			}
			continue
		}
		log := c.log.WithValues("region", r.name, "role", j.role.ARN, "lookedUp", len(j.demands))
		result, err := c.calls.do(ctx, r.name, *j)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			retry, changed := r.failed(*j, err, c.clock.Now())
			log.Info("call to EC2 for instance types failed", "error", err.Error(), "cause", err.cause(), "retryAfter", retry.String())
			if changed {
				c.publish(r.name)
			}
			continue
		}
		log.V(1).Info("EC2 returned instance types", "types", len(result.whole), "incomplete", len(result.halves))
		if r.succeeded(*j, result, c.clock.Now()) {
			c.publish(r.name)
		}
	}
}

// publish calls the callbacks of Notify for a region.
func (c *EC2) publish(region string) {
	for _, f := range c.notify {
		f(region)
	}
}

// sleep waits until there may be a job: for a time, if it is not 0, or until woken. It returns
// false when the keeper must end.
func (c *EC2) sleep(ctx context.Context, r *region, wait time.Duration) bool {
	var passed <-chan time.Time
	if wait > 0 {
		timer := c.clock.NewTimer(wait)
		defer timer.Stop()
		passed = timer.C()
	}
	select {
	case <-r.poke:
	case <-passed:
	case <-r.forgotten:
		// Callers that still wait here find the region's successor.
		r.mu.Lock()
		close(r.round)
		r.mu.Unlock()
		return false
	case <-ctx.Done():
		return false
	}
	return true
}

// next returns the next job, or how long there is none without queries; 0 for no limit.
func (r *region) next(now time.Time) (*job, time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.giveUpLocked(now)
	if r.listed.IsZero() && len(r.wanted) > 0 || r.dueLocked(now) {
		if role, found := r.willingLocked(now); found {
			return &job{role: role}, 0
		}
	}
	if j := r.lookUpLocked(); j != nil {
		return j, 0
	}
	return nil, r.idleLocked(now)
}

// giveUpLocked drops the queries of roles that fail, and wakes the callers that wait.
func (r *region) giveUpLocked(now time.Time) {
	before := len(r.wanted)
	maps.DeleteFunc(r.wanted, func(w demand, _ struct{}) bool {
		_, fails := r.failureLocked(w.role, now)
		return fails
	})
	if len(r.wanted) < before {
		r.endRoundLocked()
	}
}

// willingLocked returns a role for a listing: the one of the last listing, or another one that
// has queried.
func (r *region) willingLocked(now time.Time) (awsconfig.Role, bool) {
	if _, asks := r.askers[r.lister]; asks {
		if _, fails := r.failureLocked(r.lister, now); !fails {
			return r.lister, true
		}
	}
	for w := range r.wanted { // giveUpLocked has removed failing roles.
		return w.role, true
	}
	for role := range r.askers {
		if _, fails := r.failureLocked(role, now); !fails {
			return role, true
		}
	}
	return awsconfig.Role{}, false
}

// lookUpLocked collects queries of one role into a job. A region that was never listed is
// listed first: that costs the same, and answers most queries.
func (r *region) lookUpLocked() *job {
	if r.listed.IsZero() {
		return nil
	}
	var j *job
	for w := range r.wanted {
		if j == nil {
			j = &job{role: w.role}
		}
		if w.role == j.role && len(j.demands) < mostNames {
			j.demands = append(j.demands, w)
		}
	}
	return j
}

// idleLocked returns how long no job is due without a new query: until the next listing, or, if
// that is due, until a role that has queried can try. 0 if no role has: a query wakes the
// keeper.
func (r *region) idleLocked(now time.Time) time.Duration {
	if now.Before(r.relist) {
		return r.relist.Sub(now)
	}
	var earliest time.Time
	for role := range r.askers {
		at := now
		if f, fails := r.failureLocked(role, now); fails {
			at = f.until
		}
		if earliest.IsZero() || at.Before(earliest) {
			earliest = at
		}
	}
	if earliest.IsZero() {
		return 0
	}
	return max(earliest.Sub(now), time.Millisecond)
}

// failed ends a failed job. changed reports whether a caller got ErrPending during the job:
// Notify then reports the failure.
func (r *region) failed(j job, err *Error, now time.Time) (retry time.Duration, changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	retry = r.failLocked(err, j.role, now)
	if r.listed.IsZero() {
		// No data is in use: callers that still need the region query again.
		clear(r.askers)
	}
	r.giveUpLocked(now)
	changed, r.pending = r.pending, false
	return retry, changed
}

// succeeded ends a successful job. changed reports whether there are new answers.
func (r *region) succeeded(j job, result found, now time.Time) (changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recoverLocked(j.role)
	r.forgetLocked(now)
	listing := len(j.demands) == 0
	if listing {
		clear(r.halves)
	}
	changed = r.learnLocked(result, now)
	if listing {
		r.listed, r.relist, r.lister = now, now.Add(backoff.Spread(r.timings.Refresh, refreshJitter, nil)), j.role
		clear(r.askers)
	}
	for _, w := range j.demands {
		delete(r.wanted, w)
		if !r.hasLocked(w.instanceType) {
			r.missLocked(w, now)
		}
	}
	maps.DeleteFunc(r.wanted, func(w demand, _ struct{}) bool { return r.hasLocked(w.instanceType) })
	r.endRoundLocked()
	changed = changed || r.owing
	r.owing, r.pending = false, false
	return changed
}

// hasLocked reports whether there is an answer for a type, complete or not.
func (r *region) hasLocked(instanceType string) bool {
	_, known := r.known[instanceType]
	return known || r.halves[instanceType] != nil
}

// endRoundLocked wakes the callers that wait.
func (r *region) endRoundLocked() {
	close(r.round)
	r.round = make(chan struct{})
}

// cause returns the cause of an error, for the log. It leaves out the text of AWS' answers: the
// answer to a bad signature contains the request with its token.
func (e *Error) cause() string {
	if e.Code != "" || e.Err == nil || errors.Is(e.Err, context.DeadlineExceeded) {
		return e.Code
	}
	return e.Err.Error()
}
