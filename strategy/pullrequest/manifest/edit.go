package manifest

import (
	"bytes"
	"fmt"
)

// MaxBytes of a file that is edited. A manifest with a marker is written by hand
// and has some kilobytes; Kubernetes itself takes no object over 1.5 MiB. A file
// of this size takes about 60 MiB of memory while it is edited, as two trees of
// nodes; one of nothing but digits and commas four times that.
const MaxBytes = 1 << 20

// Change is what an edit did to one scalar.
type Change struct {
	// Line of the scalar, from 1.
	Line int
	// From is what was there, for people: the string as it was read, or, where it was
	// not a string, the text with its kind, such as "1.10 (number)". It may contain
	// any character. It equals To when the scalar was left as it is.
	From string
	// To is the value.
	To string
	// Object that the scalar is of, such as "HelmRelease apps/podinfo"; empty when
	// the document is not a Kubernetes object.
	Object string
}

// Edit puts the value into every scalar of the content that bears the marker.
//
// edited is content itself when the value is there already; changes tells of every
// marked scalar, of one that was left as well, and is never empty without an error.
// content is not written to. Every error is an *Error.
func Edit(content []byte, m Marker, value string) (edited []byte, changes []Change, err error) {
	if err := check(value); err != nil {
		return nil, nil, err
	}
	if !Mentions(content, m) {
		return nil, nil, noMarker(m)
	}
	if len(content) > MaxBytes {
		return nil, nil, &Error{Err: ErrTooLarge, Detail: fmt.Sprintf(
			"it has %d bytes, and at most %d are edited; put the marked object into a file of its own", len(content), MaxBytes)}
	}
	documents, err := parse(content)
	if err != nil {
		return nil, nil, err
	}
	lexemes, err := locate(content, documents)
	if err != nil {
		return nil, nil, err
	}
	marked, err := targets(content, lexemes, m)
	if err != nil {
		return nil, nil, err
	}
	if len(marked) == 0 {
		return nil, nil, noMarker(m)
	}

	line, counted, copied := 1, 0, 0
	for _, l := range marked {
		line += bytes.Count(content[counted:l.start], []byte("\n"))
		counted = l.start
		replacement, from, err := replace(content, l, value)
		if err != nil {
			return nil, nil, &Error{Line: line, Err: err, Detail: "write the value plainly, without tag"}
		}
		changes = append(changes, Change{Line: line, From: from, To: value, Object: object(documents[l.document])})
		if replacement != "" {
			edited = append(append(edited, content[copied:l.start]...), replacement...)
			copied = l.end
		}
	}
	if edited == nil {
		return content, changes, nil
	}
	edited = append(edited, content[copied:]...)
	if err := verify(edited, documents, marked, value); err != nil {
		return nil, nil, err
	}
	return edited, changes, nil
}

func noMarker(m Marker) error {
	return &Error{Err: ErrNoMarker, Detail: fmt.Sprintf(
		`put the comment # {%q: %q} behind the version, on its line; it must be a comment of its own`, key, m)}
}

// replace returns the text that puts the value in a scalar's place, empty when it
// is there already, and what was there, for people. Errors are sentinels.
func replace(content []byte, l *lexeme, value string) (replacement, from string, err error) {
	properties, text := content[l.from:l.start], l.text(content)
	old, err := read(properties, text)
	if err != nil {
		return "", "", ErrNotString // by a tag that has its handle in a directive
	}
	if old.is(value) {
		return "", value, nil
	}
	replacement = written(value, l, old.text)
	if len(text) == 0 || len(properties) > 0 && len(bytes.TrimSpace(properties[len(properties)-1:])) > 0 {
		replacement = " " + replacement // what is before it ends without a blank
	}
	if now, err := read(properties, []byte(replacement)); err != nil || !now.is(value) {
		return "", "", ErrUnverified
	}
	return replacement, old.String(), nil
}
