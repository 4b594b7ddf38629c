package manifest

import (
	"bytes"
	"errors"
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/capstan-hub/capstan/internal/revision"
)

// MaxBytes is the size of the largest file that is edited. A manifest with a marker is
// written by hand and has some kilobytes; Kubernetes accepts no object over 1.5 MiB. A
// file of this size needs about 60 MiB of memory during the edit, for two trees of nodes;
// a file that consists only of digits and commas needs four times that.
const MaxBytes = 1 << 20

// Change describes the edit of one scalar.
type Change struct {
	// Line of the scalar, from 1.
	Line int
	// Field is the key whose value the scalar is, such as "tag"; empty for an item of a list
	// and for a document that is a scalar.
	Field string
	// From is the earlier value, for people: the string as it was read or, if it was not
	// a string, the text with its kind, such as "1.10 (number)". It may contain any
	// character. It equals To when the scalar is unchanged.
	From string
	// To is the new value.
	To string
	// Object that contains the scalar, such as "HelmRelease apps/podinfo"; empty when
	// the document is not a Kubernetes object.
	Object string
	// Clusters of the markers of the scalar; an empty one for a marker without a cluster.
	Clusters []string
	// Part of the revision that the marker requests; empty for all of it.
	Part revision.Part
}

// Edit writes a revision into every scalar of the content that has the marker, or the part
// of it that the marker requests.
//
// edited is content itself when all marked scalars have their value already. changes has an
// entry for every marked scalar, also for an unchanged one, and is never empty without an
// error. content is not modified. Every error is an *Error.
func Edit(content []byte, m Marker, of string) (edited []byte, changes []Change, err error) {
	if err := check(of); err != nil {
		return nil, nil, err
	}
	if !Mentions(content, m) {
		return nil, nil, noMarker(m)
	}
	if len(content) > MaxBytes {
		return nil, nil, &Error{Err: ErrTooLarge, Detail: fmt.Sprintf(
			"it has %d bytes, more than the limit of %d; move the marked object into a file of its own", len(content), MaxBytes)}
	}
	documents, err := parse(content)
	if err != nil {
		return nil, nil, err
	}
	lexemes, err := locate(content, documents)
	if err != nil {
		return nil, nil, err
	}
	marked, marks, err := targets(content, lexemes, m)
	if err != nil {
		return nil, nil, err
	}
	if len(marked) == 0 {
		return nil, nil, noMarker(m)
	}

	line, counted, copied := 1, 0, 0
	values := make(map[*yaml.Node]string, len(marked))
	for i, l := range marked {
		line += bytes.Count(content[counted:l.start], []byte("\n"))
		counted = l.start
		value, err := revision.Value(of, marks[l].part)
		if err != nil {
			return nil, nil, &Error{Line: line, Err: ErrPart, Detail: err.Error()}
		}
		values[l.node] = value
		replacement, from, err := replace(content, l, value, shared(marked, i))
		switch {
		case errors.Is(err, ErrTwoMarkers):
			return nil, nil, &Error{Line: line, Err: err, Detail: "the document has the marker several times, and here it is at a boolean, which is no version; remove the marker from this line"}
		case err != nil:
			return nil, nil, &Error{Line: line, Err: err, Detail: "write the value plainly, without tag"}
		}
		changes = append(changes, Change{Line: line, Field: l.key, From: from, To: value, Part: marks[l].part, Object: object(documents[l.document]), Clusters: marks[l].clusters})
		if replacement != "" {
			edited = append(append(edited, content[copied:l.start]...), replacement...)
			copied = l.end
		}
	}
	if edited == nil {
		return content, changes, nil
	}
	edited = append(edited, content[copied:]...)
	if err := verify(edited, documents, values); err != nil {
		return nil, nil, err
	}
	return edited, changes, nil
}

func noMarker(m Marker) error {
	return &Error{Err: ErrNoMarker, Detail: fmt.Sprintf(
		`put the comment # {%q: %q} behind the version, on its line; it must be a comment of its own`, key, m)}
}

// shared reports whether the document of a marked scalar has another one.
func shared(marked []*lexeme, i int) bool {
	return i > 0 && marked[i-1].document == marked[i].document ||
		i+1 < len(marked) && marked[i+1].document == marked[i].document
}

// replace returns the text that replaces a scalar, empty when the scalar has the value
// already, and its earlier value for people. shared is true if its document has another
// marked scalar. Errors are sentinels.
func replace(content []byte, l *lexeme, value string, shared bool) (replacement, from string, err error) {
	properties, text := content[l.from:l.start], l.text(content)
	old, err := read(properties, text)
	if err != nil {
		return "", "", ErrNotString // The handle of its tag is defined in a directive.
	}
	if old.is(value) {
		return "", value, nil
	}
	if _, boolean := old.value.(bool); boolean && shared {
		return "", "", ErrTwoMarkers
	}
	replacement = written(value, l, old.text)
	if len(text) == 0 || len(properties) > 0 && len(bytes.TrimSpace(properties[len(properties)-1:])) > 0 {
		replacement = " " + replacement // The text before it does not end with a blank.
	}
	if now, err := read(properties, []byte(replacement)); err != nil || !now.is(value) {
		return "", "", ErrUnverified
	}
	return replacement, old.String(), nil
}
