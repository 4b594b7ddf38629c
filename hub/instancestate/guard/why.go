package guard

import (
	"cmp"
	"slices"

	"github.com/capstan-hub/capstan/hub/instancestate/message"
)

// Result says why a merge of a fact changes the label or not.
type Result string

// Results. A merge changes what is known for Shown, Hidden and Ended only.
const (
	// Shown: the label shows the fact.
	Shown Result = "shown"
	// Hidden: the fact is kept, and the label shows the record By.
	Hidden Result = "hidden"
	// Ended: the fact is kept, and says that a scheduled change is over. The label shows the record By, or there is none.
	Ended Result = "ended"
	// Over: the scheduled change that the fact announces is over, by the record By.
	Over Result = "over"
	// Repeated: the fact is known.
	Repeated Result = "repeated"
	// Older: By is newer. It is the state, or a notice of the same kind; of a group its newest event.
	Older Result = "older"
	// Final: the instance is terminated, by the record By.
	Final Result = "final"
)

// Effect is what a merge does with a fact.
type Effect struct {
	Result Result
	// By is the record that prevails over the fact; zero for Shown, and for Ended if the label shows none.
	By Record
}

// Changes reports whether the merge changes what is known.
func (e Effect) Changes() bool { return e.Result == Shown || e.Result == Hidden || e.Result == Ended }

// Why returns what Merge does with a fact, and why.
func (i Instance) Why(f message.Fact) Effect {
	r := recordOf(f)
	merged, changed := i.Merge(f)
	of := i.Of(f.InstanceID)
	current, _ := merged.Current()
	switch at := of.like(r); {
	case changed:
		return effect(r, current)
	case at != nil && order(r, *at) == 0:
		return Effect{Result: Repeated, By: *at}
	case of.terminated():
		return Effect{Result: Final, By: *of.State}
	case f.Kind.Notice() && !of.counts(r):
		return Effect{Result: Older, By: *of.State}
	case f.Kind == message.ScheduledChange:
		return of.Changes.why(r)
	case at != nil:
		return Effect{Result: Older, By: *at}
	}
	return Effect{Result: Older, By: current}
}

// like returns the record that a record would replace; nil when there is none.
func (i Instance) like(r Record) *Record {
	if !r.Kind.Notice() {
		return i.State
	}
	if at := slices.IndexFunc(i.Notices, func(n Record) bool { return n.Kind == r.Kind }); at >= 0 {
		return &i.Notices[at]
	}
	return nil
}

// Why returns what Merge does with a fact, and why.
func (g Group) Why(f message.Fact) Effect {
	r := recordOf(f)
	r.Instance = f.InstanceID
	merged, changed := g.Merge(f)
	switch {
	case changed:
		current, _ := merged.Current()
		return effect(r, current)
	case f.Kind == message.ScheduledChange && g.counts(r):
		return g.Changes.why(r)
	case order(r, *g.Newest) == 0: // Without a newest event, any other fact changes something.
		return Effect{Result: Repeated, By: *g.Newest}
	}
	return Effect{Result: Older, By: *g.Newest}
}

// why returns why a record changes nothing.
func (c changes) why(r Record) Effect {
	if at, known := slices.BinarySearchFunc(c, r, byKey); known {
		switch {
		case order(r, c[at]) == 0:
			return Effect{Result: Repeated, By: c[at]}
		case c[at].Over && !r.Over:
			return Effect{Result: Over, By: c[at]}
		}
		return Effect{Result: Older, By: c[at]}
	}
	if at := slices.IndexFunc(c, func(n Record) bool { return replaces(n, r) }); at >= 0 {
		return Effect{Result: Older, By: c[at]}
	}
	return Effect{Result: Older, By: slices.MinFunc(c, order)} // As many newer ones as are kept.
}

// effect is that of a record that was merged.
func effect(r, current Record) Effect {
	switch {
	case r.Over:
		return Effect{Result: Ended, By: current}
	case order(r, current) == 0:
		return Effect{Result: Shown}
	}
	return Effect{Result: Hidden, By: current}
}

// Held is a record that a label is made of.
type Held struct {
	Record
	// Hidden is why the label does not show the record; empty for the one that it shows.
	Hidden string
}

// Held returns all records, first the one that the label shows, then by rank.
func (i Instance) Held() []Held {
	all := slices.Concat(i.Notices, i.Changes)
	if i.State != nil {
		all = append(all, *i.State)
	}
	current, _ := i.Current()
	return held(all, func(r Record) string { return hidden(r, current) })
}

// Held returns all records, first the one that the label shows, then by rank.
func (g Group) Held() []Held {
	all := slices.Clone(g.Changes)
	if g.Newest != nil {
		all = append(all, *g.Newest)
	}
	current, _ := g.Current()
	return held(all, func(r Record) string {
		switch {
		case r.Over:
			return over
		case order(r, current) == 0:
			return ""
		}
		return current.Label + " is newer"
	})
}

func held(all []Record, hidden func(Record) string) []Held {
	made := make([]Held, 0, len(all))
	for _, r := range all {
		made = append(made, Held{r, hidden(r)})
	}
	slices.SortStableFunc(made, func(a, b Held) int {
		return cmp.Or(cmp.Compare(min(len(a.Hidden), 1), min(len(b.Hidden), 1)), cmp.Compare(b.Rank, a.Rank))
	})
	return made
}

// over is why the label does not show a record.
const over = "the scheduled change is over"

// hidden returns why the label shows another record; empty when it shows r.
func hidden(r, current Record) string {
	switch {
	case r.Over:
		return over
	case order(r, current) == 0:
		return ""
	case !r.Kind.Notice():
		return "the notice " + current.Label + " is newer than the state"
	case r.Rank == current.Rank:
		return "the notice " + current.Label + " is newer, and has the same rank"
	}
	return "the notice " + current.Label + " has a higher rank"
}
