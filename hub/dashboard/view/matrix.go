package view

import (
	"cmp"
	"slices"
	"time"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/internal/revision"
)

// maxRevisions is how many revisions the matrix of a Pipeline has: more columns are not readable next to each other.
const maxRevisions = 6

// Matrix is what the newest revisions of a Pipeline are, and were, in its environments.
type Matrix struct {
	// Revisions are the columns, newest first.
	Revisions []string
	// More is how many revisions are known that it does not have, and All the address of all promotions.
	More int
	All  string
	// Rows are the environments in their order.
	Rows []MatrixRow
}

// maxOpenRows is how many environments a matrix has that is open at once. A longer one is folded: on a phone each row has
// several lines.
const maxOpenRows = 12

// Folded is whether it is folded.
func (m Matrix) Folded() bool { return len(m.Rows) > maxOpenRows }

// MatrixRow is an environment.
type MatrixRow struct {
	Environment string
	// Cells in the order of the revisions.
	Cells []MatrixCell
}

// MatrixCell is the state of a revision in an environment.
type MatrixCell struct {
	Revision string
	// Mark is "Runs", or "Last observed" if that is not known at present; empty if no target runs it.
	Mark Mark
	// Running of Targets ran the revision when last observed; the observations of Stale of these are stale.
	Running, Stale, Targets int
	// Stay is when the environment got the revision and when it got another one, by the promotions that succeeded; zero
	// if none did. In an environment with waves it is from the first wave to the last one.
	Stay Stay
	// Promotion is the newest of this revision into the environment. Of an environment with waves it is the worst of the
	// newest ones into each, and Wave is where it belongs; empty for a wave that does not exist any more.
	Promotion *Entry
	Wave      string
}

// Stay is the time of a revision in an environment.
type Stay struct {
	// Since is zero if it is not known. Until is zero if no later promotion succeeded; For is then empty.
	Since, Until time.Time
	For          string
}

// Empty is whether nothing is known about the revision in the environment.
func (c MatrixCell) Empty() bool { return c.Running == 0 && c.Promotion == nil }

// matrixOf returns the matrix of a Pipeline with these environments and promotions.
func matrixOf(cells []Cell, promotions []*capstanv1.Promotion, scope Scope) Matrix {
	byAge := slices.Clone(promotions)
	slices.SortStableFunc(byAge, func(a, b *capstanv1.Promotion) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	all := revisionsOf(cells, byAge)
	m := Matrix{Revisions: all[:min(len(all), maxRevisions)], More: max(0, len(all)-maxRevisions)}
	for _, c := range cells {
		row := MatrixRow{Environment: c.Environment}
		for _, one := range m.Revisions {
			row.Cells = append(row.Cells, matrixCell(c, one, byAge, scope))
		}
		m.Rows = append(m.Rows, row)
	}
	return m
}

// revisionsOf returns the revisions, newest first: those of the first environment, then those of promotions, then those of
// the other environments in their order.
func revisionsOf(cells []Cell, byAge []*capstanv1.Promotion) []string {
	var order []string
	note := func(one string) {
		known := func(other string) bool { return revision.Same(one, other) }
		if one != "" && !slices.ContainsFunc(order, known) {
			order = append(order, one)
		}
	}
	if len(cells) > 0 { // New revisions begin in the first environment.
		for _, t := range cells[0].Targets {
			note(t.Revision)
		}
	}
	for _, p := range byAge {
		note(p.Spec.Revision)
	}
	for _, c := range cells {
		for _, t := range c.Targets {
			note(t.Revision)
		}
	}
	return order
}

func matrixCell(c Cell, wanted string, byAge []*capstanv1.Promotion, scope Scope) MatrixCell {
	s := MatrixCell{Revision: wanted}
	if len(c.Waves) > 0 {
		for i, stage := range c.stages() {
			s.add(matrixCell(stage, wanted, byAge, scope), c.Waves[i].Environment)
		}
		if s.Promotion == nil { // As of a time when it had other waves, or none.
			s.Promotion = newestInto(func(p *capstanv1.Promotion) bool { return p.Spec.BaseEnvironment() == c.Environment }, wanted, byAge, scope)
		}
		return s.marked()
	}
	s.Targets = len(c.Targets)
	for _, t := range c.Targets {
		if revision.Same(t.Revision, wanted) {
			s.Running++
			if t.Mark.Tone == Stale {
				s.Stale++
			}
		}
	}
	if f := c.Fleet; f != nil {
		s.Targets += f.Unlisted
		if revision.Same(f.Revision, wanted) {
			s.Running += f.InLine
		}
	}
	into := func(p *capstanv1.Promotion) bool { return p.Spec.Environment == c.Environment }
	s.Promotion = newestInto(into, wanted, byAge, scope)
	s.Stay = stayOf(into, wanted, byAge)
	return s.marked()
}

// marked returns the cell with its Mark.
func (c MatrixCell) marked() MatrixCell {
	switch {
	case c.Stale > 0:
		c.Mark = Mark{Stale, "Last observed"}
	case c.Running > 0:
		c.Mark = Mark{Good, "Runs"}
	}
	return c
}

// add adds the state of a wave to that of its environment.
func (c *MatrixCell) add(wave MatrixCell, name string) {
	c.Running, c.Stale, c.Targets = c.Running+wave.Running, c.Stale+wave.Stale, c.Targets+wave.Targets
	if p := wave.Promotion; p != nil && (c.Promotion == nil || worse(p.Mark.Tone, c.Promotion.Mark.Tone) < 0 ||
		p.Mark.Tone == c.Promotion.Mark.Tone && p.Decided.After(c.Promotion.Decided)) {
		c.Promotion, c.Wave = p, name
	}
	switch a, b := c.Stay, wave.Stay; {
	case b.Since.IsZero():
	case a.Since.IsZero():
		c.Stay = b
	default:
		if b.Since.Before(a.Since) {
			a.Since = b.Since
		}
		switch {
		case a.Until.IsZero() || b.Until.IsZero():
			a.Until = time.Time{}
		case b.Until.After(a.Until):
			a.Until = b.Until
		}
		c.Stay = a.lasting()
	}
}

// lasting returns the stay with how long it was.
func (s Stay) lasting() Stay {
	s.For = ""
	if !s.Until.IsZero() {
		s.For = lasted(s.Until.Sub(s.Since))
	}
	return s
}

// newestInto returns the newest promotion of a revision into an environment; nil if there is none.
func newestInto(into func(*capstanv1.Promotion) bool, wanted string, byAge []*capstanv1.Promotion, scope Scope) *Entry {
	for _, p := range byAge {
		if into(p) && revision.Same(p.Spec.Revision, wanted) {
			e := EntryOf(p, scope)
			return &e
		}
	}
	return nil
}

// stayOf returns the last stay of a revision in an environment: from the end of the first promotion of a sequence that brought
// it, to the end of the next one that brought another revision.
func stayOf(into func(*capstanv1.Promotion) bool, wanted string, promotions []*capstanv1.Promotion) Stay {
	var brought []*capstanv1.Promotion
	for _, p := range promotions {
		if into(p) && p.Status.Phase == capstanv1.PhaseSucceeded && p.Status.FinishTime != nil {
			brought = append(brought, p)
		}
	}
	slices.SortStableFunc(brought, func(a, b *capstanv1.Promotion) int {
		return cmp.Or(a.Status.FinishTime.Compare(b.Status.FinishTime.Time), cmp.Compare(a.Spec.Number, b.Spec.Number))
	})
	var s Stay
	running := false
	for _, p := range brought {
		switch same := revision.Same(p.Spec.Revision, wanted); {
		case same && !running:
			s, running = Stay{Since: p.Status.FinishTime.Time}, true
		case !same && running:
			s.Until, running = p.Status.FinishTime.Time, false
		}
	}
	return s.lasting()
}
