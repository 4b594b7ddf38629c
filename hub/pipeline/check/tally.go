package check

import (
	"time"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// expireAfter is how many intervals a result is valid.
const expireAfter = 2

// Tally counts the results of a check in sequence. The zero value has none.
type Tally struct {
	last Result
	// at is when the last measurement began.
	at               time.Time
	passes, failures int
}

// Note returns the Tally with the result of a measurement that began at an instant. Passes before a result
// that was too old do not count: it is not known what happened meanwhile.
func (t Tally) Note(c Check, at time.Time, r Result) Tally {
	if t.expired(c, at) {
		t.passes = 0
	}
	t.last, t.at = r, at
	switch r.Verdict {
	case capstanv1.CheckPass:
		t.passes, t.failures = t.passes+1, 0
	case capstanv1.CheckFail:
		t.passes, t.failures = 0, t.failures+1
	case capstanv1.CheckNoData, capstanv1.CheckError:
		t.passes = 0
	}
	return t
}

// expired returns whether the last result is too old to decide anything.
func (t Tally) expired(c Check, now time.Time) bool { return now.Sub(t.at) > expireAfter*c.Interval }

// Due returns the time until the next measurement; 0 or less if it is due.
func (t Tally) Due(c Check, now time.Time) time.Duration {
	if t.at.IsZero() {
		return 0
	}
	return t.at.Add(c.Interval).Sub(now)
}

// Began returns when the last measurement began; zero if there is none.
func (t Tally) Began() time.Time { return t.at }

// Status returns what the results say; counts is whether failures in sequence decide, as in a verification.
// It returns false if there is no result.
func (t Tally) Status(c Check, now time.Time, counts bool) (capstanv1.CheckStatus, bool) {
	if t.at.IsZero() {
		return capstanv1.CheckStatus{}, false
	}
	if t.expired(c, now) {
		return capstanv1.CheckStatus{Name: c.Name, Verdict: capstanv1.CheckNoData, Message: "the last result is too old"}, true
	}
	s := t.last.Status(c)
	s.Done = t.passes >= c.Passes || counts && s.Verdict == capstanv1.CheckFail && t.failures >= c.Failures
	return s, true
}

// Status returns the status of a check with one result, which does not decide.
func (r Result) Status(c Check) capstanv1.CheckStatus {
	return capstanv1.CheckStatus{Name: c.Name, Verdict: r.Verdict, Value: r.Value, Message: r.Message}
}

// Passed returns whether a check passed as often as required.
func Passed(s *capstanv1.CheckStatus) bool { return s.Done && s.Verdict == capstanv1.CheckPass }

// Failed returns whether a check failed as often as a verification tolerates.
func Failed(s *capstanv1.CheckStatus) bool { return s.Done && s.Verdict == capstanv1.CheckFail }

// Keep returns the status of a check after the one that is known: that one, with its time, if the verdict is
// the same and decides as much. The value stays, too, so that one that changes writes nothing. The message of a
// result without a value is the new one: the cause may be another.
func Keep(known []capstanv1.CheckStatus, now capstanv1.CheckStatus) capstanv1.CheckStatus {
	for i := range known {
		if k := &known[i]; k.Name == now.Name && k.Verdict == now.Verdict && k.Done == now.Done {
			kept := *k
			if now.Value == "" {
				kept.Message = now.Message
			}
			return kept
		}
	}
	return now
}
