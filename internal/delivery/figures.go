package delivery

import (
	"slices"
	"time"
)

// Days of a Window.
const Days = 30

// day is 24 hours: a day in UTC.
const day = 24 * time.Hour

// Window is a time of Days days in UTC; the last one is the day of the given time.
type Window struct {
	first time.Time
}

// NewWindow returns the Window that ends with the day of a time.
func NewWindow(now time.Time) Window {
	return Window{now.UTC().Truncate(day).Add(-(Days - 1) * day)}
}

// First is the begin of the first day.
func (w Window) First() time.Time { return w.first }

// End is the end of the last day.
func (w Window) End() time.Time { return w.first.Add(Days * day) }

// Date is the begin of a day, from 0.
func (w Window) Date(at int) time.Time { return w.first.Add(time.Duration(at) * day) }

// Day is the number of the day of a time, from 0; -1 outside of the window.
func (w Window) Day(t time.Time) int {
	if t.Before(w.first) || !t.Before(w.End()) {
		return -1
	}
	return int(t.Sub(w.first) / day)
}

// Percentiles of durations; zero if there are none.
type Percentiles struct {
	Count       int
	Median, P90 time.Duration
}

// Figures of a Window.
type Figures struct {
	// Deployments, and those of each day.
	Deployments int
	PerDay      [Days]int
	// Changes that ended, and those of them that failed.
	Changes, Failed int
	// Rollbacks that succeeded.
	Rollbacks int
	// Lead is the lead time of deployments whose begin is known.
	Lead, Restore, ApprovalWait, GatesWait Percentiles
	// Since is when the oldest Promotion that counts ended; zero if none counts.
	Since time.Time
	// CompleteSince is since when no Promotion is missing; the begin of the window if none was deleted.
	CompleteSince time.Time
}

// FailurePercent is the part of the changes that failed, in percent, rounded to the nearest; -1 without a change.
func (f *Figures) FailurePercent() int {
	const percent = 100
	if f.Changes == 0 {
		return -1
	}
	return (f.Failed*percent + f.Changes/2) / f.Changes // Half of the divisor rounds.
}

// Sum adds histories. The zero value is not usable: see NewSum.
type Sum struct {
	window    Window
	retention Retention
	figures   Figures

	leads, restores, approvals, gates []time.Duration
}

// NewSum returns a Sum of a Window.
func NewSum(w Window, r Retention) *Sum {
	return &Sum{window: w, retention: r, figures: Figures{CompleteSince: w.First()}}
}

// Add adds the figures of a Pipeline: of its last environment, and the waits of all environments.
func (s *Sum) Add(h *History) {
	s.add(h, func(_ string, last bool) bool { return last }, func(string) bool { return true })
}

// AddEnvironment adds the figures of one environment of a Pipeline.
func (s *Sum) AddEnvironment(h *History, environment string) {
	s.add(h, func(of string, _ bool) bool { return of == environment }, func(of string) bool { return of == environment })
}

func (s *Sum) add(h *History, counts func(environment string, last bool) bool, waits func(environment string) bool) {
	f := &s.figures
	for i := range h.Changes {
		c := &h.Changes[i]
		at := s.window.Day(c.End)
		if at < 0 || !counts(c.Environment, c.Last) {
			continue
		}
		s.since(c.End)
		f.Changes++
		if c.Failed {
			f.Failed++
		}
		if c.Deployed {
			f.Deployments++
			f.PerDay[at]++
		}
		if c.Lead >= 0 {
			s.leads = append(s.leads, c.Lead)
		}
	}
	for _, r := range h.Restores {
		if s.window.Day(r.End) >= 0 && counts(r.Environment, r.Last) {
			s.since(r.End)
			s.restores = append(s.restores, r.Took)
		}
	}
	for _, r := range h.Rollbacks {
		if s.window.Day(r.End) >= 0 && counts(r.Environment, r.Last) {
			s.since(r.End)
			f.Rollbacks++
		}
	}
	for _, w := range h.Waits {
		if s.window.Day(w.End) < 0 || !waits(w.Environment) {
			continue
		}
		s.since(w.End)
		if w.Approval >= 0 {
			s.approvals = append(s.approvals, w.Approval)
		}
		if w.Gates >= 0 {
			s.gates = append(s.gates, w.Gates)
		}
	}
	if complete := h.CompleteSince(s.window, s.retention); complete.After(f.CompleteSince) {
		f.CompleteSince = complete
	}
}

func (s *Sum) since(t time.Time) {
	if s.figures.Since.IsZero() || t.Before(s.figures.Since) {
		s.figures.Since = t
	}
}

// Figures returns the figures of what was added so far.
func (s *Sum) Figures() Figures {
	f := s.figures
	f.Lead, f.Restore, f.ApprovalWait, f.GatesWait = percentiles(s.leads), percentiles(s.restores), percentiles(s.approvals), percentiles(s.gates)
	return f
}

// percentiles sorts the durations.
func percentiles(all []time.Duration) Percentiles {
	if len(all) == 0 {
		return Percentiles{}
	}
	slices.Sort(all)
	const median, p90 = 50, 90
	return Percentiles{Count: len(all), Median: rank(all, median), P90: rank(all, p90)}
}

// rank returns the percentile of sorted durations by nearest rank: the smallest one for which at least that part of all is
// not longer.
func rank(sorted []time.Duration, percent int) time.Duration {
	const whole = 100
	return sorted[(len(sorted)*percent+whole-1)/whole-1]
}
