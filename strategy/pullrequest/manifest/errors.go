package manifest

import (
	"errors"
	"fmt"
)

// Sentinels for errors.Is. No repetition heals any of them: the file, or the
// revision, must change.
var (
	// ErrNoMarker: no comment of the file is the marker.
	ErrNoMarker = errors.New("no marker")
	// ErrUnparsable: the file bears the marker, but is not YAML.
	ErrUnparsable = errors.New("not parsable as YAML")
	// ErrTooLarge: the file bears the marker, but has more than MaxBytes.
	ErrTooLarge = errors.New("file too large")
	// ErrTwoMarkers: two scalars of one document bear the marker, or one scalar
	// bears the markers of two environments.
	ErrTwoMarkers = errors.New("two markers")
	// ErrNotScalar: the marker stands at a mapping, a list, an alias, or at nothing.
	ErrNotScalar = errors.New("marker is not at a scalar")
	// ErrMultiline: the marked scalar is a block scalar, or goes over several lines.
	ErrMultiline = errors.New("marked scalar spans lines")
	// ErrNotString: the marked scalar's tag makes it something else than a string.
	ErrNotString = errors.New("marked scalar is tagged as no string")
	// ErrValue: the revision is empty or has characters that do not print.
	ErrValue = errors.New("revision cannot be written")
	// ErrUnverified: the edited file did not read back as it should. No edit was
	// made; it is a fault of this package or of the parser.
	ErrUnverified = errors.New("edit does not read back")
)

// Error is every error of this package: a sentinel and where it was met. It says
// nothing of the file but lines, and names of anchors where the parser does.
type Error struct {
	// Line of the file, from 1; 0 when it is not about one line. Of ErrUnparsable
	// it is the parser's, who may name the line before.
	Line int
	// Err is the sentinel.
	Err error
	// Detail is what was found there, and the mend.
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
