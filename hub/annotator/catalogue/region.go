package catalogue

import (
	"maps"
	"sync"
	"time"
	"unique"

	"github.com/capstan-hub/capstan/hub/annotator/capacity"
	"github.com/capstan-hub/capstan/hub/awsconfig"
)

// Bounds of the queries that a region keeps, because users name instance types and roles. A
// query beyond them is still answered, but later.
const (
	mostWanted  = 2000
	mostUnknown = 2000
	mostAskers  = 200
	mostFailing = 500
)

// region has the data of one region and the open queries. Only its keeper calls AWS.
type region struct {
	name    string
	timings Timings
	// poke wakes the keeper.
	poke chan struct{}
	// forgotten is closed when the catalogue has dropped the region.
	forgotten chan struct{}

	// mu guards lockedRegion.
	mu sync.Mutex
	lockedRegion
}

// lockedRegion is guarded by region.mu.
type lockedRegion struct {
	// known types by name. A type that EC2 no longer lists stays until it is stale.
	known map[string]entry
	// halves are types whose capacity EC2 has never reported completely.
	halves map[string]*capacity.IncompleteError
	// unknown are types that EC2 did not have, with the end of that answer. They are kept by
	// role, because EC2 may show different types to different accounts.
	unknown map[demand]time.Time
	// wanted are the types to look up in the next round.
	wanted map[demand]struct{}
	// askers are the roles with queries since the last listing.
	askers map[awsconfig.Role]struct{}
	// failing has the current failures.
	failing map[blame]failure
	// outage has the times of the failures since the last success, of any role.
	outage failure
	// failures are the numbers of failed calls, by class.
	failures map[error]int
	// listed is the time of the last listing, zero if none; relist is when the next one is
	// due, and lister the role of the last one.
	listed, relist time.Time
	lister         awsconfig.Role
	// asked is the time of the last query.
	asked time.Time
	// round is closed when the keeper has finished a round, and replaced.
	round chan struct{}
	// owing: a caller got no answer. pending: a caller got neither an answer nor a failure.
	owing, pending bool
}

// entry is a known type. Equal capacities, as in different regions, share memory.
type entry struct {
	capacity unique.Handle[capacity.Capacity]
	seen     time.Time
}

// demand is a query for a type with the credentials of a role.
type demand struct {
	role         awsconfig.Role
	instanceType string
}

func newRegion(name string, timings Timings) *region {
	return &region{
		name: name, timings: timings,
		poke: make(chan struct{}, 1), forgotten: make(chan struct{}),
		lockedRegion: lockedRegion{
			known: map[string]entry{}, halves: map[string]*capacity.IncompleteError{},
			unknown: map[demand]time.Time{}, wanted: map[demand]struct{}{},
			askers: map[awsconfig.Role]struct{}{}, failing: map[blame]failure{},
			failures: map[error]int{}, round: make(chan struct{}),
		},
	}
}

// ask queries a type. It returns an answer, a failure, or a round to wait for.
func (r *region) ask(q Query, now time.Time) (Answer, *Error, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = now
	if len(r.askers) < mostAskers {
		r.askers[q.Role] = struct{}{}
	}
	if known, is := r.known[q.InstanceType]; is && now.Sub(known.seen) <= r.timings.MostStale {
		if r.dueLocked(now) {
			r.wake()
		}
		return Answer{Capacity: known.capacity.Value(), Seen: known.seen}, nil, nil
	}
	if half := r.halves[q.InstanceType]; half != nil {
		return Answer{}, &Error{Class: ErrIncomplete, Query: q, RetryAfter: max(r.relist.Sub(now), r.timings.Negative), Err: half}, nil
	}
	demand := demand{q.Role, q.InstanceType}
	if until := r.unknown[demand]; now.Before(until) {
		return Answer{}, &Error{Class: ErrInstanceTypeUnknown, Query: q, RetryAfter: until.Sub(now)}, nil
	}
	if failure, fails := r.failureLocked(q.Role, now); fails {
		r.owing = true
		err := failure.err.about(q)
		err.RetryAfter = failure.until.Sub(now)
		return Answer{}, err, nil
	}
	if len(r.wanted) < mostWanted {
		r.wanted[demand] = struct{}{}
	}
	r.wake()
	return Answer{}, nil, r.round
}

// owe records that a caller did not wait for the round, so that Notify reports its answer or
// failure. It returns false when the round is over: then there is an answer.
func (r *region) owe(round <-chan struct{}) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if round != (<-chan struct{})(r.round) {
		return false
	}
	r.owing, r.pending = true, true
	return true
}

// wake wakes the keeper, which checks all open work.
func (r *region) wake() {
	select {
	case r.poke <- struct{}{}:
	default:
	}
}

// dueLocked reports whether a listing is due and a role has queried.
func (r *region) dueLocked(now time.Time) bool {
	return len(r.askers) > 0 && !now.Before(r.relist)
}

// learnLocked stores what a call found. changed is true if something is new since the first
// listing.
func (r *region) learnLocked(f found, now time.Time) (changed bool) {
	for _, c := range f.whole {
		handle := unique.Make(c)
		// The name of the interned value, so that no copy of it is kept.
		name := handle.Value().InstanceType
		if r.known[name].capacity != handle {
			changed = true
		}
		r.known[name] = entry{capacity: handle, seen: now}
		delete(r.halves, name)
	}
	for _, half := range f.halves {
		if _, whole := r.known[half.InstanceType]; !whole {
			r.halves[half.InstanceType] = half
		}
	}
	return changed && !r.listed.IsZero()
}

// forgetLocked removes types that EC2 has not listed for too long.
func (r *region) forgetLocked(now time.Time) {
	maps.DeleteFunc(r.known, func(_ string, e entry) bool { return now.Sub(e.seen) > r.timings.MostStale })
}

// missLocked records a type that EC2 does not have.
func (r *region) missLocked(w demand, now time.Time) {
	if len(r.unknown) >= mostUnknown {
		maps.DeleteFunc(r.unknown, func(_ demand, until time.Time) bool { return !now.Before(until) })
	}
	makeRoom(r.unknown, mostUnknown)
	r.unknown[w] = now.Add(r.timings.Negative)
}

// makeRoom removes any entries from a map until there is room for one more. They are queried
// again when needed.
func makeRoom[K comparable, V any](m map[K]V, most int) {
	for k := range m {
		if len(m) < most {
			return
		}
		delete(m, k)
	}
}

// standing returns whether the region ever answered, and the time of the last query.
func (r *region) standing() (answered bool, asked time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.listed.IsZero(), r.asked
}

// regionSnapshot is the state of a region at a time.
type regionSnapshot struct {
	known, unknown int
	// listed is the time of the last listing, zero if none, and asked that of the last query.
	listed, asked time.Time
	// outage is since when every call fails; zero when the last one succeeded.
	outage time.Time
	// failures are the numbers of failed calls, by class.
	failures map[error]int
	// failing are the failures that last, by whom they concern.
	failing map[blame]failure
}

func (r *region) snapshot(now time.Time) regionSnapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := regionSnapshot{known: len(r.known), unknown: len(r.unknown), listed: r.listed, asked: r.asked, failures: maps.Clone(r.failures), failing: map[blame]failure{}}
	if r.outage.current(r.timings, now) {
		s.outage = r.outage.since
	}
	for whom, f := range r.failing {
		if f.current(r.timings, now) {
			s.failing[whom] = f
		}
	}
	return s
}
