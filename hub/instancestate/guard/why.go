package guard

import (
	"cmp"
	"slices"

	"github.com/capstan-hub/capstan/hub/instancestate/message"
)

// Reason is why a merge of a fact changes the label or not.
type Reason string

// Reasons. A merge changes what is known for Shown and Hidden only.
const (
	// Shown: the label shows the fact.
	Shown Reason = "shown"
	// Hidden: the fact is kept, and the label shows the record By.
	Hidden Reason = "hidden"
	// Repeated: the fact is known.
	Repeated Reason = "repeated"
	// Older: By is newer. It is the state, or a notice of the same kind; of a group its newest event.
	Older Reason = "older"
	// Final: the instance is terminated, by the record By.
	Final Reason = "final"
)

// Effect is what a merge does with a fact.
type Effect struct {
	Reason Reason
	// By is the record that prevails over the fact; zero for Shown.
	By Record
}

// Changes reports whether the merge changes what is known.
func (e Effect) Changes() bool { return e.Reason == Shown || e.Reason == Hidden }

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
		return Effect{Reason: Repeated, By: *at}
	case of.terminated():
		return Effect{Reason: Final, By: *of.State}
	case f.Kind.Notice() && !of.counts(r):
		return Effect{Reason: Older, By: *of.State}
	case at != nil:
		return Effect{Reason: Older, By: *at}
	}
	return Effect{Reason: Older, By: current}
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
	switch current, _ := merged.Current(); {
	case changed:
		return effect(r, current)
	case order(r, current) == 0:
		return Effect{Reason: Repeated, By: current}
	default:
		return Effect{Reason: Older, By: current}
	}
}

// effect is that of a record that was merged.
func effect(r, current Record) Effect {
	if order(r, current) == 0 {
		return Effect{Reason: Shown}
	}
	return Effect{Reason: Hidden, By: current}
}

// Held is a record that a label is made of.
type Held struct {
	Record
	// Hidden is why the label does not show the record; empty for the one that it shows.
	Hidden string
}

// Held returns all records, first the one that the label shows, then by rank.
func (i Instance) Held() []Held {
	all := slices.Clone(i.Notices)
	if i.State != nil {
		all = append(all, *i.State)
	}
	current, _ := i.Current()
	var held []Held
	for _, r := range all {
		held = append(held, Held{r, hidden(r, current)})
	}
	slices.SortStableFunc(held, func(a, b Held) int {
		return cmp.Or(cmp.Compare(min(len(a.Hidden), 1), min(len(b.Hidden), 1)), cmp.Compare(b.Rank, a.Rank))
	})
	return held
}

// hidden returns why the label shows another record; empty when it shows r.
func hidden(r, current Record) string {
	switch {
	case order(r, current) == 0:
		return ""
	case !r.Kind.Notice():
		return "the notice " + current.Label + " is newer than the state"
	case r.Rank == current.Rank:
		return "the notice " + current.Label + " is newer, and has the same rank"
	}
	return "the notice " + current.Label + " has a higher rank"
}
