package guard

import (
	"encoding/json"
	"fmt"

	"github.com/capstan-hub/capstan/hub/instancestate/message"
)

// Group is what is remembered of an Auto Scaling group. The zero value knows nothing.
type Group struct {
	// Newest event of the group, or of one of its instances that has no object of its
	// own.
	Newest *Record `json:"newest,omitempty"`
}

// Merge a fact of the group, or of one of its instances. It returns the receiver, and
// false, when the fact says nothing new.
func (g Group) Merge(f message.Fact) (Group, bool) {
	r := recordOf(f)
	r.Instance = f.InstanceID
	if g.Newest != nil && order(r, *g.Newest) <= 0 {
		return g, false
	}
	return Group{Newest: &r}, true
}

// Current is the record that the label shows; false when nothing is known.
func (g Group) Current() (Record, bool) {
	if g.Newest == nil {
		return Record{}, false
	}
	return *g.Newest, true
}

// Label is the value of the label; empty when nothing is known.
func (g Group) Label() string {
	current, _ := g.Current()
	return current.Word
}

// String is the annotation.
func (g Group) String() string { return encode(g) }

// ParseGroup reads an annotation; an empty one knows nothing.
func ParseGroup(annotation string) (Group, error) {
	var g Group
	if annotation == "" {
		return g, nil
	}
	if err := json.Unmarshal([]byte(annotation), &g); err != nil {
		return Group{}, fmt.Errorf("annotation of a group's events: %w", err)
	}
	if g.Newest != nil && !g.Newest.tellable() {
		return Group{}, fmt.Errorf("annotation of a group's events: %w", errWord)
	}
	return g, nil
}
