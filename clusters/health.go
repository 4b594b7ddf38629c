package clusters

import (
	"time"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

const (
	// lossThreshold of failed probes, in a row, makes a silent cluster Unreachable.
	lossThreshold = 3
	// failingThreshold of them makes it Degraded.
	failingThreshold = 2
	// steadyThreshold of good probes, in a row, ends an outage (hysteresis): a
	// cluster that flaps does not show as Ready between two failures.
	steadyThreshold = 2
)

// probeResult is what a probe told.
type probeResult int

const (
	probeGood probeResult = iota
	// probeFailed: an answer that is none of the others.
	probeFailed
	// probeUnanswered: none.
	probeUnanswered
	probe403
	probe401
)

// String is the label of metrics.
func (r probeResult) String() string {
	switch r {
	case probeGood:
		return "good"
	case probeFailed:
		return "failed"
	case probeUnanswered:
		return "unanswered"
	case probe403:
		return "forbidden"
	case probe401:
		return "unauthorized"
	}
	return "unknown"
}

// health counts probes and says what they amount to. It is pure and the keeper's
// own.
type health struct {
	bad, good int
	// probed is whether the counts say anything of the current connection.
	probed bool
}

// judge counts a probe.
//
// silent is whether no byte came for Timings.Silence; kindsOK whether no watched
// kind fails.
func (h *health) judge(r probeResult, was outcome, silent, kindsOK bool) event {
	h.probed = true
	switch r {
	case probeGood:
		h.bad, h.good = 0, h.good+1
		return h.verdict(was, kindsOK)
	case probeFailed, probeUnanswered:
		h.bad, h.good = h.bad+1, 0
		switch {
		case h.bad >= lossThreshold && silent:
			return eventLost
		case h.bad >= failingThreshold:
			return eventFailing
		}
		return eventMissed
	case probe403:
		h.bad, h.good = 0, 0
		return eventProbeForbidden
	case probe401:
		h.bad, h.good = 0, 0
		return eventUnauthorized
	}
	return eventAnswered
}

// verdict is what the probes so far amount to, when the last was good; it is
// also asked when only the kinds changed.
func (h *health) verdict(was outcome, kindsOK bool) event {
	needed := 1
	if was == probesFailed || was == probeFailing {
		needed = steadyThreshold
	}
	switch {
	case h.good < needed:
		return eventAnswered
	case !kindsOK:
		return eventKinds
	}
	return eventHealthy
}

// ReasonSyncing marks a WatchedKind whose initial list is under way.
const ReasonSyncing = "NotSynced"

// failingKind is the first kind that counts against the cluster: not synced for
// another reason than that its initial list is under way, or still under way
// after the grace that began at since. until is when the grace of another ends.
func failingKind(kinds []capstanv1.WatchedKind, since map[string]time.Time, grace time.Duration, now time.Time) (failing *capstanv1.WatchedKind, until time.Time) {
	for i := range kinds {
		k := &kinds[i]
		if k.Synced {
			continue
		}
		end := since[k.Kind].Add(grace)
		if (k.Reason != "" && k.Reason != ReasonSyncing) || !now.Before(end) {
			return k, time.Time{}
		}
		if until.IsZero() || end.Before(until) {
			until = end
		}
	}
	return nil, until
}
