package clusters

import (
	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

const (
	// lossThreshold consecutive failed probes make a silent cluster Unreachable.
	lossThreshold = 3
	// failingThreshold consecutive failed probes make a cluster Degraded.
	failingThreshold = 2
	// steadyThreshold consecutive good probes end an outage (hysteresis): a cluster
	// that flaps does not become Ready between two failures.
	steadyThreshold = 2
	// rejectedThreshold consecutive probes with 401 are needed until credentials that worked
	// count as rejected. A webhook that authenticates tokens (EKS, GKE) may be unavailable
	// for some seconds; the API server then answers 401 to every token.
	rejectedThreshold = 4
)

// probeResult is the result of a probe.
type probeResult int

const (
	probeGood probeResult = iota
	// probeFailed: any other response.
	probeFailed
	// probeNotReady: 500. The API server itself answers that one of its checks fails.
	probeNotReady
	// probeUnanswered: no response.
	probeUnanswered
	probe403
	probe401
)

// String returns the label value for metrics.
func (r probeResult) String() string {
	switch r {
	case probeGood:
		return "good"
	case probeFailed:
		return "failed"
	case probeNotReady:
		return "not-ready"
	case probeUnanswered:
		return "unanswered"
	case probe403:
		return "forbidden"
	case probe401:
		return "unauthorized"
	}
	return "unknown"
}

// health counts probes and derives events from the counts. It does no I/O. Only the
// keeper's goroutine uses it.
type health struct {
	bad, good int
	// rejected counts consecutive probes with 401 of credentials that worked before.
	rejected int
	// probed is whether the counts belong to the current connection.
	probed bool
}

// judge counts a probe and returns the event that follows from it.
//
// silent is whether no byte was received for Timings.Silence. kindsOK is whether no
// watched kind fails.
func (h *health) judge(r probeResult, was outcome, silent, kindsOK bool) event {
	h.probed = true
	if r != probe401 {
		h.rejected = 0
	}
	switch r {
	case probeGood:
		h.bad, h.good = 0, h.good+1
		return h.verdict(was, kindsOK)
	case probeFailed, probeNotReady, probeUnanswered:
		h.bad, h.good = h.bad+1, 0
		switch {
		case r == probeNotReady && h.bad >= failingThreshold && passes(was.State):
			return eventFailing // It answers: its watches may work, also when they have nothing to deliver.
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
		if h.rejected++; h.rejected < rejectedThreshold && passes(was.State) {
			return eventRejected
		}
		h.rejected = 0
		return eventUnauthorized
	}
	return eventAnswered
}

// isOutage returns whether several good probes are needed until the cluster is Ready.
func isOutage(o outcome) bool { return o == probesFailed || o == probeFailing }

// verdict returns the event that follows from the probes so far, after a good probe. It is
// also called when only the kinds changed.
func (h *health) verdict(was outcome, kindsOK bool) event {
	needed := 1
	if isOutage(was) {
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

// ReasonSyncing is the reason of a WatchedKind whose initial list is under way, or waits for
// others. It says nothing about the cluster; one that takes too long has another reason.
const ReasonSyncing = "NotSynced"

// failingKind returns the first kind that makes the cluster Degraded: one that is not synced
// for another reason than ReasonSyncing; nil if there is none.
func failingKind(kinds []capstanv1.WatchedKind) *capstanv1.WatchedKind {
	for i := range kinds {
		if k := &kinds[i]; !k.Synced && k.Reason != ReasonSyncing {
			return k
		}
	}
	return nil
}
