package sink

import (
	"context"
	"errors"
	"fmt"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
)

// Sink publishes events to one broker.
type Sink interface {
	// Ping checks whether the broker accepts events now.
	Ping(ctx context.Context) error
	// Publish returns nil when the broker has acknowledged the event.
	Publish(ctx context.Context, e ce.Event) error
	// Close ends all connections. Publish must not be called after it.
	Close(ctx context.Context) error
}

// Class of an error decides what the publisher does with the event.
type Class string

// Classes.
const (
	// Transient errors end by themselves: the event is sent again later.
	Transient Class = "transient"
	// Refused means that the broker never accepts this event. It may accept others.
	Refused Class = "refused"
	// TooLarge means that the event is larger than the broker accepts.
	TooLarge Class = "too-large"
	// Unavailable means that the broker accepts no events until a user fixes something, such
	// as wrong credentials, a missing stream, or no space. The event is not the cause.
	Unavailable Class = "unavailable"
	// Gone means that the broker accepts no more events (HTTP 410). It is not called again.
	Gone Class = "gone"
)

// Error of a sink.
type Error struct {
	Class Class
	// Code says in one word what happened, such as stream-full.
	Code string
	// RetryAfter is the delay that the broker requests; 0 if it requests none.
	RetryAfter time.Duration
	// Err is the cause, as text for users.
	Err error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Err == nil {
		return e.Code
	}
	return e.Code + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an Error.
func Errorf(class Class, code, format string, values ...any) *Error {
	return &Error{Class: class, Code: code, Err: fmt.Errorf(format, values...)}
}

// Codes of errors that several sinks have.
const (
	// CodeTimeout: the broker did not answer in time.
	CodeTimeout = "timeout"
	// CodeUnreachable: there is no connection.
	CodeUnreachable = "unreachable"
	// CodeUnauthorized: the credentials are missing or rejected.
	CodeUnauthorized = "unauthorized"
	// CodeForbidden: the credentials lack a permission.
	CodeForbidden = "forbidden"
	// CodeForbiddenAddress: the broker's address is one that the hub must not call.
	CodeForbiddenAddress = "forbidden-address"
	// CodeTooLarge: the event is larger than the broker accepts.
	CodeTooLarge = "too-large"
	// CodeUnknown: an error of no class.
	CodeUnknown = "unknown"
)

// Of returns the Error in err. An error without one becomes a Transient Error.
func Of(err error) *Error {
	var known *Error
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{Class: Transient, Code: CodeTimeout, Err: err}
	}
	return &Error{Class: Transient, Code: CodeUnknown, Err: err}
}
