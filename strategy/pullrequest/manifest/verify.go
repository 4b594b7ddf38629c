package manifest

import "go.yaml.in/yaml/v3"

// verify parses the edited file and compares it with the original.
func verify(edited []byte, before []*yaml.Node, marked []*lexeme, value string) error {
	after, err := parse(edited)
	if err != nil || len(after) != len(before) {
		return unverified(0)
	}
	is := make(map[*yaml.Node]bool, len(marked))
	for _, l := range marked {
		is[l.node] = true
	}
	for i := range before {
		if n := difference(before[i], after[i], is, value); n != nil {
			return unverified(n.Line)
		}
	}
	return nil
}

// difference returns the first node that changed or, if it is marked, does not have the
// value. Aliases are compared by name and not followed, so that the depth of the comparison
// is that of the file, not of its expansion.
func difference(before, after *yaml.Node, marked map[*yaml.Node]bool, value string) *yaml.Node {
	if before.Kind != after.Kind || before.Anchor != after.Anchor || len(before.Content) != len(after.Content) {
		return before
	}
	if marked[before] {
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
		if n := difference(before.Content[i], after.Content[i], marked, value); n != nil {
			return n
		}
	}
	return nil
}

func unverified(line int) error {
	return &Error{Line: line, Err: ErrUnverified, Detail: "nothing was changed; write the marked line in a simpler form, and report this"}
}
