package clusters

import (
	"errors"
	"fmt"
)

// Classes of errors; messages name the object and the mend.
var (
	// ErrNotFound: the object that a reference names does not exist (any more).
	ErrNotFound = errors.New("cluster not found")
	// ErrNotReady: the object says of itself that it is not ready.
	ErrNotReady = errors.New("cluster not ready")
	// ErrInvalid: the object or the name cannot be understood.
	ErrInvalid = errors.New("cluster invalid")
	// ErrNotSynced: the hub has not read the objects of that kind yet.
	ErrNotSynced = errors.New("clusters not read yet")
	// ErrNotConnected: there is no connection, or none yet.
	ErrNotConnected = errors.New("cluster not connected")
	// ErrNoIndexes: Manager.IndexField.
	ErrNoIndexes = errors.New("caches of workload clusters hold no informers to index")
)

// classified is an error of one of the classes whose message does not repeat the
// class's words.
type classified struct {
	class   error
	message string
}

func (e *classified) Error() string { return e.message }

// Unwrap gives the class.
func (e *classified) Unwrap() error { return e.class }

func failure(class error, format string, args ...any) error {
	return &classified{class: class, message: fmt.Sprintf(format, args...)}
}
