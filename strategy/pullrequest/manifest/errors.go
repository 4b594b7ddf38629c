package manifest

import (
	"errors"
	"fmt"
)

// Sentinels for errors.Is. No repetition fixes any of them: the file, or the
// revision, must change.
var (
	// ErrNoMarker: no comment of the file is the marker.
	ErrNoMarker = errors.New("no marker")
	// ErrUnparsable: the file has the marker, but is not YAML.
	ErrUnparsable = errors.New("not parsable as YAML")
	// ErrTooLarge: the file has the marker, but is larger than MaxBytes.
	ErrTooLarge = errors.New("file too large")
	// ErrTwoMarkers: one scalar has the markers of two environments, or a document has the
	// marker several times, and one of them is at a boolean.
	ErrTwoMarkers = errors.New("two markers")
	// ErrNotScalar: the marker is at a mapping, a list, an alias, or at nothing.
	ErrNotScalar = errors.New("marker is not at a scalar")
	// ErrMultiline: the marked scalar is a block scalar, or has several lines.
	ErrMultiline = errors.New("marked scalar spans lines")
	// ErrNotString: the marked scalar has a tag of a type other than string.
	ErrNotString = errors.New("the tag of the marked scalar is not that of a string")
	// ErrValue: the revision is empty or has unprintable characters.
	ErrValue = errors.New("revision cannot be written")
	// ErrPart: the revision does not have the part that the marker requests.
	ErrPart = errors.New("the marker requests a part that the revision does not have")
	// ErrUnverified: the edited file, parsed again, differs from the expected one. No edit
	// was made; this is a defect of this package or of the parser.
	ErrUnverified = errors.New("the edited file does not parse as expected")
)

// Error is the type of every error of this package: a sentinel and its place. It shows
// nothing of the file but line numbers, and names of anchors if the parser names them.
type Error struct {
	// Line of the file, from 1; 0 when it does not concern one line. Of ErrUnparsable
	// it is the parser's, which may name the line before.
	Line int
	// Err is the sentinel.
	Err error
	// Detail says what was found there, and what to change.
	Detail string
}

// Error implements error.
func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%v: %s", e.Err, e.Detail)
	}
	return fmt.Sprintf("line %d: %v: %s", e.Line, e.Err, e.Detail)
}

// Unwrap returns the sentinel.
func (e *Error) Unwrap() error { return e.Err }
