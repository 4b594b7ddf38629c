package manifest

import "go.yaml.in/yaml/v3"

// verify parses the edited file and compares it with the original. values has the new values of
// the marked nodes of the original.
func verify(edited []byte, before []*yaml.Node, values map[*yaml.Node]string) error {
	after, err := parse(edited)
	if err != nil || len(after) != len(before) {
		return unverified(0)
	}
	for i := range before {
		if n := difference(before[i], after[i], values); n != nil {
			return unverified(n.Line)
		}
	}
	return nil
}

// difference returns the first node that changed or, if it is marked, does not have the
// value for it. Aliases are compared by name and not followed, so that the depth of the comparison
// is that of the file, not of its expansion.
func difference(before, after *yaml.Node, values map[*yaml.Node]string) *yaml.Node {
	if before.Kind != after.Kind || before.Anchor != after.Anchor || len(before.Content) != len(after.Content) {
		return before
	}
	if value, marked := values[before]; marked {
		tag := after.ShortTag()
		if after.Value == value && (tag == stringTag || tag == integerTag && integer(value)) {
			return nil
		}
		return before
	}
	if before.Value != after.Value || before.Tag != after.Tag || before.Style != after.Style {
		return before
	}
	for i := range before.Content {
		if n := difference(before.Content[i], after.Content[i], values); n != nil {
			return n
		}
	}
	return nil
}

func unverified(line int) error {
	return &Error{Line: line, Err: ErrUnverified, Detail: "nothing was changed; write the marked line in a simpler form, and report this"}
}
