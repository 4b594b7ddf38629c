package clusters

import (
	"errors"
	"fmt"
)

// Classes of errors. The messages name the object and what to do.
var (
	// ErrNotFound: the object that a reference names does not exist (any more).
	ErrNotFound = errors.New("cluster not found")
	// ErrNotReady: the object has the condition Ready=False.
	ErrNotReady = errors.New("cluster not ready")
	// ErrInvalid: the object or the name is not valid.
	ErrInvalid = errors.New("cluster invalid")
	// ErrNotSynced: the hub has not read the objects of that kind yet.
	ErrNotSynced = errors.New("clusters not read yet")
	// ErrNotConnected: there is no connection, or none yet.
	ErrNotConnected = errors.New("cluster not connected")
	// ErrNoIndexes is the error of Manager.IndexField.
	ErrNoIndexes = errors.New("indexes are not supported: the caches of workload clusters have no informers")
)

// classified is an error of one of the classes. Its message does not repeat the text of
// the class.
type classified struct {
	class   error
	message string
}

func (e *classified) Error() string { return e.message }

// Unwrap returns the class.
func (e *classified) Unwrap() error { return e.class }

func failure(class error, format string, args ...any) error {
	return &classified{class: class, message: fmt.Sprintf(format, args...)}
}
