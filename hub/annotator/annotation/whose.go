package annotation

import (
	"maps"
	"slices"
	"strings"
)

// Whose says who set the value of an annotation.
type Whose string

// Values of Whose. The annotation Labels is Ours when any of its labels is.
const (
	Ours    Whose = "ours"
	Theirs  Whose = "theirs"
	Changed Whose = "changed since"
)

// Value is a capacity annotation.
type Value struct {
	Key, Value string
	Whose      Whose
}

// Label returns the value of a label of a future node, such as LabelInstanceType, in the annotations of its node group;
// empty when they have none.
func Label(current map[string]string, key string) string {
	return parseLabels(current[Labels]).labels[key]
}

// Name returns the last part of the key of a capacity annotation, such as "cpu"; false for every other key, also that of
// Applied.
func Name(key string) (string, bool) {
	for _, prefix := range []string{prefixUpstream, prefixOpenShift} {
		if name, is := strings.CutPrefix(key, prefix); is {
			return name, true
		}
	}
	return "", false
}

// Values returns the capacity annotations of an object, sorted by key. It leaves out Applied,
// which is the record.
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
