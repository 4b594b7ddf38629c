package delivery

import (
	"cmp"
	"slices"
	"time"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// Retention is which finished Promotions the hub keeps.
type Retention struct {
	// For is how long they are kept; 0 for ever.
	For time.Duration
	// Keep is how many are kept into each stage; 0 for no limit.
	Keep int
}

// series are the Promotions into one stage.
type series struct {
	// stage is a wave of the environment; its name, if there are no waves.
	stage, environment string
	// entries with the newest first.
	entries []entry
}

type entry struct {
	number int64
	// finished is in seconds since 1970; 0 for one under way.
	finished int64
}

// note adds a Promotion to its series.
func (h *History) note(p *capstanv1.Promotion) {
	at := slices.IndexFunc(h.series, func(s series) bool { return s.stage == p.Spec.Environment })
	if at < 0 {
		at = len(h.series)
		h.series = append(h.series, series{stage: p.Spec.Environment, environment: p.Spec.BaseEnvironment()})
	}
	e := entry{number: p.Spec.Number}
	if p.Status.Phase.Finished() && p.Status.FinishTime != nil {
		e.finished = p.Status.FinishTime.Unix()
	}
	h.series[at].entries = append(h.series[at].entries, e)
}

// order sorts the series, so that a History is not changed any more.
func (h *History) order() {
	for _, s := range h.series {
		slices.SortFunc(s.entries, func(a, b entry) int { return cmp.Compare(b.number, a.number) })
	}
}

// CompleteSince returns since when the ledger has every Promotion of the Pipeline that ended; the begin of the window if
// none of the window was deleted. Numbers of Promotions are without gaps, so a missing one was deleted.
func (h *History) CompleteSince(w Window, r Retention) time.Time {
	complete := w.First()
	for _, s := range h.series {
		if since := s.completeSince(w, r); since.After(complete) {
			complete = since
		}
	}
	return complete
}

func (s series) completeSince(w Window, r Retention) time.Time {
	kept := 0
	var oldest entry // of those without a gap
	for i, e := range s.entries {
		if e.finished != 0 {
			kept++
		}
		if i == 0 || e.number == oldest.number-1 {
			oldest = e
		}
	}
	switch {
	case oldest.number <= 1:
		return time.Time{} // None was deleted.
	case r.Keep > 0 && kept >= r.Keep:
		return timeOf(oldest.finished)
	case r.For > 0: // Only old ones were deleted. The end of the day makes it the same all day.
		return w.End().Add(-r.For)
	}
	return time.Time{}
}
