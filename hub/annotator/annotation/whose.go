package annotation

import (
	"maps"
	"slices"
)

// Whose is whose value an annotation has.
type Whose string

// Whose a value can be. Of Labels, single labels are; it is Ours when any of them is.
const (
	Ours    Whose = "ours"
	Theirs  Whose = "theirs"
	Changed Whose = "changed since"
)

// Value is an annotation that tells of a node's capacity.
type Value struct {
	Key, Value string
	Whose      Whose
}

// Values are those that an object bears, by key; of Applied, which is the record of
// them, nothing.
func Values(current map[string]string) []Value {
	r := parseRecord(current[Applied])
	var all []Value
	for _, key := range slices.Sorted(maps.Keys(current)) {
		if !Concerns(key) || key == Applied {
			continue
		}
		v := Value{Key: key, Value: current[key], Whose: Theirs}
		was, recorded := r.Values[key]
		switch {
		case recorded && was == v.Value, key == Labels && len(r.Labels) > 0:
			v.Whose = Ours
		case recorded:
			v.Whose = Changed
		}
		all = append(all, v)
	}
	return all
}
