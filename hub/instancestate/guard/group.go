package guard

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/arn"

	"github.com/capstan-hub/capstan/hub/instancestate/message"
)

// Group is the merged state of an Auto Scaling group. The zero value has no facts.
type Group struct {
	// Newest event of the group, or of one of its instances without an own object, but for
	// scheduled changes.
	Newest *Record `json:"newest,omitempty"`
	// Changes are the scheduled changes of its instances that are newer than Newest.
	Changes changes `json:"changes,omitempty"`
	// Group is the newest group that an event has named; nil unless Learn was called.
	Group *Named `json:"group,omitempty"`
}

// Named is a group as an event named it.
type Named struct {
	ARN  string    `json:"arn"`
	Time time.Time `json:"time"`
}

// Merge merges a fact of the group, or of one of its instances. It returns the receiver
// and false when the fact changes nothing.
func (g Group) Merge(f message.Fact) (Group, bool) {
	r := recordOf(f)
	r.Instance = f.InstanceID
	if r.Kind == message.ScheduledChange {
		if !g.counts(r) {
			return g, false
		}
		merged, changed := g.Changes.merge(r)
		g.Changes = merged
		return g, changed
	}
	if g.Newest != nil && order(r, *g.Newest) <= 0 {
		return g, false
	}
	g.Newest = &r
	g.Changes = g.Changes.only(g.counts)
	return g, true
}

// counts reports whether a scheduled change is newer than the newest other event.
func (g Group) counts(r Record) bool { return g.Newest == nil || age(r, *g.Newest) > 0 }

// Known reports whether any fact was merged. Then there is no Current if all that is known is
// the end of scheduled changes.
func (g Group) Known() bool { return g.Newest != nil || len(g.Changes) > 0 }

// Learn keeps the ARN of the group that a fact names: the newest one and, of the same time, the
// greatest. An ARN of another account or region than the event's own is not kept, so that a
// sender cannot name the group of an account that the sender may not send events of. It
// returns the receiver and false when the fact changes nothing.
func (g Group) Learn(f message.Fact) (Group, bool) {
	if named, err := arn.Parse(f.GroupARN); err != nil || named.Region != f.Region || named.AccountID != f.Account {
		return g, false
	}
	now := Named{ARN: f.GroupARN, Time: f.Time.UTC()}
	if g.Group != nil && cmp.Or(now.Time.Compare(g.Group.Time), cmp.Compare(now.ARN, g.Group.ARN)) <= 0 {
		return g, false
	}
	g.Group = &now
	return g, true
}

// LearnedARN returns the ARN of the group that Learn has kept; empty when there is none.
func (g Group) LearnedARN() string {
	if g.Group == nil {
		return ""
	}
	return g.Group.ARN
}

// Current returns the record that the label shows, the newest one; false when there is none.
func (g Group) Current() (Record, bool) {
	if open := g.Changes.open(); len(open) > 0 {
		return slices.MaxFunc(open, order), true
	}
	if g.Newest == nil {
		return Record{}, false
	}
	return *g.Newest, true
}

// Label returns the value of the label; empty when there must be none.
func (g Group) Label() string {
	current, _ := g.Current()
	return current.Label
}

// String returns the annotation.
func (g Group) String() string { return encode(g) }

// ParseGroup parses an annotation; an empty one has no facts.
func ParseGroup(annotation string) (Group, error) {
	var g Group
	if annotation == "" {
		return g, nil
	}
	if err := json.Unmarshal([]byte(annotation), &g); err != nil {
		return Group{}, fmt.Errorf("annotation of a group's events: %w", err)
	}
	if g.Newest != nil && !g.Newest.validLabel() {
		return Group{}, fmt.Errorf("annotation of a group's events: %w", errLabel)
	}
	if g.Newest != nil && g.Newest.Kind == message.ScheduledChange { // An earlier version wrote it.
		old := *g.Newest
		g.Newest = nil
		g.Changes, _ = g.Changes.merge(old)
	}
	if err := g.Changes.validate(g.counts); err != nil {
		return Group{}, fmt.Errorf("annotation of a group's events: %w", err)
	}
	return g, nil
}
