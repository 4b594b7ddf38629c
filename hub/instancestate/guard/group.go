package guard

import (
	"encoding/json"
	"fmt"

	"github.com/capstan-hub/capstan/hub/instancestate/message"
)

// Group is the merged state of an Auto Scaling group. The zero value has no facts.
type Group struct {
	// Newest event of the group, or of one of its instances without an own object.
	Newest *Record `json:"newest,omitempty"`
}

// Merge merges a fact of the group, or of one of its instances. It returns the receiver
// and false when the fact changes nothing.
func (g Group) Merge(f message.Fact) (Group, bool) {
	r := recordOf(f)
	r.Instance = f.InstanceID
	if g.Newest != nil && order(r, *g.Newest) <= 0 {
		return g, false
	}
	return Group{Newest: &r}, true
}

// Current returns the record that the label shows; false without facts.
func (g Group) Current() (Record, bool) {
	if g.Newest == nil {
		return Record{}, false
	}
	return *g.Newest, true
}

// Label returns the value of the label; empty without facts.
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
	return g, nil
}
