package guard

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/capstan-hub/capstan/hub/instancestate/message"
)

// Instance is the merged state of one instance. The zero value has no facts.
type Instance struct {
	// ID of the instance; empty before the first fact.
	ID string `json:"instance,omitempty"`
	// State is the newest state that EC2 reported.
	State *Record `json:"state,omitempty"`
	// Notices that are newer than State, but for scheduled changes: of each kind the newest,
	// ordered by kind.
	Notices []Record `json:"notices,omitempty"`
	// Changes are the scheduled changes that are newer than State.
	Changes changes `json:"changes,omitempty"`
}

// Merge merges a fact of the instance. It returns the receiver and false when the fact
// changes nothing; it never changes the receiver. A fact of another instance, which the
// object has now, replaces all that was known, including an end.
func (i Instance) Merge(f message.Fact) (Instance, bool) {
	i = i.Of(f.InstanceID)
	r := recordOf(f)
	if i.terminated() && r.Label != message.LabelTerminated {
		return i, false
	}
	if f.Kind.Notice() {
		return i.notice(r)
	}
	if i.State != nil && stateOrder(r, *i.State) <= 0 {
		return i, false
	}
	merged := Instance{ID: i.ID, State: &r}
	for _, n := range i.Notices {
		if merged.counts(n) {
			merged.Notices = append(merged.Notices, n)
		}
	}
	merged.Changes = i.Changes.only(merged.counts)
	return merged, true
}

func (i Instance) notice(r Record) (Instance, bool) {
	if !i.counts(r) {
		return i, false
	}
	if r.Kind == message.ScheduledChange {
		merged, changed := i.Changes.merge(r)
		i.Changes = merged
		return i, changed
	}
	at, known := slices.BinarySearchFunc(i.Notices, r.Kind, func(n Record, k message.Kind) int { return cmp.Compare(n.Kind, k) })
	switch {
	case !known:
		i.Notices = slices.Insert(slices.Clone(i.Notices), at, r)
	case order(r, i.Notices[at]) <= 0:
		return i, false
	default:
		i.Notices = slices.Clone(i.Notices)
		i.Notices[at] = r
	}
	return i, true
}

// Of returns what is known of the instance with an id: i, if i has this id or none, else
// an Instance without facts.
func (i Instance) Of(id string) Instance {
	if i.ID != "" && i.ID != id {
		return Instance{ID: id}
	}
	i.ID = id
	return i
}

// Outlived reports whether what a fact announces or reports has passed, and the instance is
// alive: it has started again, another instance has replaced it, or the scheduled change is over.
func (i Instance) Outlived(f message.Fact) bool {
	if i.ID != f.InstanceID || i.Changes.ended(f) {
		return true
	}
	return i.State != nil && !message.Ending(i.State.Label) && age(*i.State, recordOf(f)) > 0
}

// counts reports whether a notice is newer than the state.
func (i Instance) counts(n Record) bool {
	return i.State == nil || !i.terminated() && age(n, *i.State) > 0
}

func (i Instance) terminated() bool {
	return i.State != nil && i.State.Label == message.LabelTerminated
}

// stateOrder is order, with terminated after everything else.
func stateOrder(a, b Record) int {
	last := func(r Record) int {
		if r.Label == message.LabelTerminated {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(last(a), last(b)), order(a, b))
}

// Known reports whether any fact was merged. Then there is no Current if all that is known is
// the end of scheduled changes.
func (i Instance) Known() bool { return i.State != nil || len(i.Notices)+len(i.Changes) > 0 }

// Current returns the record that the label shows; false when there is none.
func (i Instance) Current() (Record, bool) {
	if notices := slices.Concat(i.Notices, i.Changes.open()); len(notices) > 0 {
		return slices.MaxFunc(notices, func(a, b Record) int { return cmp.Or(cmp.Compare(a.Rank, b.Rank), order(a, b)) }), true
	}
	if i.State == nil {
		return Record{}, false
	}
	return *i.State, true
}

// Label returns the value of the label; empty when there must be none.
func (i Instance) Label() string {
	current, _ := i.Current()
	return current.Label
}

// String returns the annotation.
func (i Instance) String() string { return encode(i) }

// ParseInstance parses an annotation; an empty one has no facts.
func ParseInstance(annotation string) (Instance, error) {
	var i Instance
	if annotation == "" {
		return i, nil
	}
	if err := json.Unmarshal([]byte(annotation), &i); err != nil {
		return Instance{}, fmt.Errorf("annotation of an instance's events: %w", err)
	}
	if i.State != nil && !i.State.validLabel() || slices.ContainsFunc(i.Notices, func(n Record) bool { return !n.validLabel() }) {
		return Instance{}, fmt.Errorf("annotation of an instance's events: %w", errLabel)
	}
	sortedByKind := slices.IsSortedFunc(i.Notices, func(a, b Record) int { return cmp.Compare(a.Kind, b.Kind) })
	twice := len(slices.CompactFunc(slices.Clone(i.Notices), func(a, b Record) bool { return a.Kind == b.Kind })) < len(i.Notices)
	if !sortedByKind || twice || slices.ContainsFunc(i.Notices, func(n Record) bool { return !n.Kind.Notice() || !i.counts(n) }) {
		return Instance{}, fmt.Errorf("annotation of an instance's events: its notices contradict each other or the state")
	}
	if err := i.Changes.validate(i.counts); err != nil {
		return Instance{}, fmt.Errorf("annotation of an instance's events: %w", err)
	}
	return i.upgraded(), nil
}

// upgraded moves a scheduled change from Notices, where earlier versions kept it, to Changes.
func (i Instance) upgraded() Instance {
	at := slices.IndexFunc(i.Notices, func(n Record) bool { return n.Kind == message.ScheduledChange })
	if at >= 0 {
		i.Changes, _ = i.Changes.merge(i.Notices[at])
		i.Notices = slices.Delete(i.Notices, at, at+1)
	}
	return i
}

func encode(v any) string {
	raw, err := json.Marshal(v)
	if err != nil { // A time after the year 9999, which RFC 3339 cannot represent.
		return "{}"
	}
	return string(raw)
}
