package soak

import (
	"slices"
	"time"
)

// Trial sums what was observed of a roll-out, or of a verification after it. Unlike a Soak it never
// starts again: a deadline counts, too. Time in which targets were not observed, or a controller was at
// work on them, is in no sum. The zero value has observed nothing.
type Trial struct {
	at time.Time
	// now is the verdict since at; the zero value is Unobserved.
	now Verdict
	// progressing since it was Ready or Unready last; what comes of it is not known yet.
	progressing time.Duration
	sums        Sums
}

// Sums is what is stored of a Trial.
type Sums struct {
	// State is the last verdict other than Unobserved; empty for none.
	State Verdict
	// Ready in total, Unready without a break until now, and both in total.
	Ready, Unready, Observed time.Duration
}

// ResumeTrial makes a Trial of stored Sums. Nothing counts until the next Note.
func ResumeTrial(s Sums) Trial { return Trial{now: Unobserved, sums: s} }

// Note returns the Trial with a verdict from an instant on. The verdict before it lasted until then.
func (t Trial) Note(at time.Time, v Verdict) Trial {
	t = t.At(at)
	switch t.now = v; v {
	case Ready:
		t.sums.Unready, t.progressing = 0, 0
	case Unready: // It was not ready from the start of what Progressing was about.
		t.sums.Unready, t.progressing = t.sums.Unready+t.progressing, 0
	case Progressing, Unobserved:
	}
	if v != Unobserved {
		t.sums.State = v
	}
	return t
}

// At returns the Trial at a later instant with the same verdict.
func (t Trial) At(at time.Time) Trial {
	passed := max(0, at.Sub(t.at))
	switch t.at = at; t.now {
	case Ready:
		t.sums.Ready += passed
		t.sums.Observed += passed
	case Unready:
		t.sums.Unready += passed
		t.sums.Observed += passed
	case Progressing:
		t.progressing += passed
	case Unobserved:
	}
	return t
}

// Sums returns what to store.
func (t Trial) Sums() Sums { return t.sums }

// Now returns the verdict since the last Note.
func (t Trial) Now() Verdict { return t.now }

// Worst returns what prevails of the verdicts about two targets: Unready before Unobserved, before
// Progressing, before Ready.
func Worst(a, b Verdict) Verdict {
	order := []Verdict{Unready, Unobserved, Progressing, Ready}
	if slices.Index(order, a) < slices.Index(order, b) {
		return a
	}
	return b
}
