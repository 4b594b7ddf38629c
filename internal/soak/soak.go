package soak

import "time"

// Verdict about an environment at an instant.
type Verdict string

// Verdicts.
const (
	// Unobserved: some target was not observed, and none is Unready.
	Unobserved Verdict = "Unobserved"
	// Ready: every target runs the revision and is ready.
	Ready Verdict = "Ready"
	// Progressing: a controller reconciles the revision, and all else is Ready.
	Progressing Verdict = "Progressing"
	// Unready: some target is not ready.
	Unready Verdict = "Unready"
)

// Subject is what is soaked. Another subject is another soak.
type Subject struct {
	Revision string
	// Digest of the set of targets; the same version may have another content.
	Digest string
	// Sequence counts the agreements of the environment: a revision that comes back soaks anew.
	Sequence int64
}

// Sum is what is stored of a Soak.
type Sum struct {
	Subject Subject
	// For is the counted time.
	For time.Duration
	// Verdict that was observed last: Ready, Progressing or Unready.
	Verdict Verdict
}

// Soak of a Subject. The zero value has none.
type Soak struct {
	subject Subject
	at      time.Time
	// now is the verdict since at.
	now Verdict
	// settled is the last of Ready and Unready.
	settled Verdict
	// counted until at.
	counted time.Duration
	// unready is how long it was Unready until at, since it was Ready. progressing is how long it was
	// Progressing since then; what comes of it is not known yet.
	unready, progressing time.Duration
	// doubt: it was not Ready when it was stored, for a time that is not known.
	doubt bool
}

// MustFollow reports whether a Sum must be stored at once after an older one, so that a restart cannot
// make the soak longer: it is of another subject, has another verdict, or has started again.
func (s Sum) MustFollow(older Sum) bool {
	return s.Subject != older.Subject || s.Verdict != older.Verdict || s.For < older.For
}

// Resume makes a Soak of a stored Sum. Nothing counts until the next Note.
func Resume(s Sum) Soak {
	settled := Ready
	if s.Verdict == Unready {
		settled = Unready
	}
	return Soak{subject: s.Subject, now: Unobserved, settled: settled, counted: s.For, doubt: s.Verdict != Ready}
}

// Note returns the Soak with a verdict from an instant on. The verdict before it lasted until then.
// tolerate is how long it may be Unready without a restart.
func (s Soak) Note(at time.Time, subject Subject, v Verdict, tolerate time.Duration) Soak {
	if subject != s.subject {
		s = Soak{subject: subject, now: Unobserved, settled: Unready}
	}
	s = s.until(at).judged(tolerate) // It may have been unready for too long since the last Note.
	if v == Progressing && s.settled == Unready {
		v = Unready // It was not ready before it progressed.
	}
	switch s.now = v; v {
	case Ready:
		s.unready, s.progressing, s.doubt, s.settled = 0, 0, false, Ready
	case Unready:
		s.unready, s.progressing, s.settled = s.unready+s.progressing, 0, Unready
		if s.doubt {
			s.counted = 0
		}
	case Unobserved, Progressing:
	}
	return s.judged(tolerate)
}

// At returns the Soak at a later instant with the same verdict.
func (s Soak) At(at time.Time, tolerate time.Duration) Soak { return s.until(at).judged(tolerate) }

// until counts the time until an instant.
func (s Soak) until(at time.Time) Soak {
	passed := max(0, at.Sub(s.at))
	switch s.at = at; s.now {
	case Ready:
		s.counted += passed
	case Unready:
		s.unready += passed
	case Progressing:
		s.progressing += passed
	case Unobserved:
	}
	return s
}

func (s Soak) judged(tolerate time.Duration) Soak {
	if s.unready > tolerate {
		s.counted = 0
	}
	return s
}

// Sum returns what to store.
func (s Soak) Sum() Sum {
	last := s.settled
	if s.settled == Ready && (s.progressing > 0 || s.now == Progressing || s.doubt) {
		last = Progressing
	}
	return Sum{Subject: s.subject, For: s.counted, Verdict: last}
}

// Left returns how much of a soak for a duration is left, and whether it counts now: then it is done
// when that much time has passed.
func (s Soak) Left(wanted time.Duration) (left time.Duration, counts bool) {
	return max(0, wanted-s.counted), s.now == Ready
}

// Restart returns the time after which the soak starts again if nothing changes; 0 if it will not.
func (s Soak) Restart(tolerate time.Duration) time.Duration {
	if s.now != Unready || s.counted == 0 {
		return 0
	}
	return max(0, tolerate-s.unready) + time.Nanosecond
}

// A running soak is stored every eighth of its duration, within these.
const leastStored, mostStored, storedPart = 5 * time.Minute, 15 * time.Minute, 8

// StoreEvery returns how often to store the sum of a soak for a duration: what a crash of the hub may
// cost.
func StoreEvery(wanted time.Duration) time.Duration {
	return min(max(wanted/storedPart, leastStored), mostStored)
}
