package sink

import (
	"context"
	"errors"
	"fmt"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
)

// Sink takes events to one broker.
type Sink interface {
	// Ping asks whether the broker would take events now.
	Ping(ctx context.Context) error
	// Publish returns when the broker keeps the event.
	Publish(ctx context.Context, e ce.Event) error
	// Close ends all connections. Nothing is published after it.
	Close(ctx context.Context) error
}

// Class of an error: what is to be done about it.
type Class string

// Classes.
const (
	// Transient heals by itself: send the event again, later.
	Transient Class = "transient"
	// Refused is an event that the broker will never take. Others may pass.
	Refused Class = "refused"
	// TooLarge is an event that is larger than the broker takes.
	TooLarge Class = "too-large"
	// Unavailable is a broker that takes no event until somebody mends something: wrong
	// credentials, no stream, no space. The event is not to blame.
	Unavailable Class = "unavailable"
	// Gone is a broker that wants nothing any more: it is not asked again.
	Gone Class = "gone"
)

// Error of a sink.
type Error struct {
	Class Class
	// Code tells in one word what happened, such as stream-full.
	Code string
	// RetryAfter is how long the broker asked to be left alone; 0 when it did not.
	RetryAfter time.Duration
	// Err is the cause, for people.
	Err error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Err == nil {
		return e.Code
	}
	return e.Code + ": " + e.Err.Error()
}

// Unwrap gives the cause.
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
	// CodeForbidden: the credentials do not suffice.
	CodeForbidden = "forbidden"
	// CodeForbiddenAddress: the broker's address is one that the hub must not call.
	CodeForbiddenAddress = "forbidden-address"
	// CodeTooLarge: the event is larger than the broker takes.
	CodeTooLarge = "too-large"
	// CodeUnknown: an error of no class.
	CodeUnknown = "unknown"
)

// Of is the Error in err. What is none is transient.
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
