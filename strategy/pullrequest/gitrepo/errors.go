package gitrepo

import (
	"errors"
	"fmt"
	"time"
)

// Class of an error: what the caller can do about it.
type Class string

// Classes of errors.
const (
	// NotFound: no such repository, or none that the credentials may see.
	NotFound Class = "NotFound"
	// Empty: the repository has no branch at all.
	Empty Class = "Empty"
	// Unauthorized: the credentials are wrong or expired.
	Unauthorized Class = "Unauthorized"
	// Forbidden: the credentials are good, but lack a right.
	Forbidden Class = "Forbidden"
	// Untrusted: the server's certificate is not signed by a trusted CA.
	Untrusted Class = "Untrusted"
	// Invalid: the URL leads where the hub does not go.
	Invalid Class = "Invalid"
	// TooLarge: the repository is over a limit.
	TooLarge Class = "TooLarge"
	// Refused: a rule of the server stands against the push: a protected branch, a
	// hook.
	Refused Class = "Refused"
	// Moved: the branch is not at the commit that was to be replaced.
	Moved Class = "Moved"
	// RateLimited: too many requests.
	RateLimited Class = "RateLimited"
	// Transient: network, 5xx, an answer that is not Git's, or the context's end. A
	// push may have taken effect.
	Transient Class = "Transient"
)

// Terminal tells whether no repetition heals errors of the class.
func (c Class) Terminal() bool {
	switch c {
	case NotFound, Empty, Unauthorized, Forbidden, Untrusted, Invalid, TooLarge, Refused:
		return true
	case Moved, RateLimited, Transient:
		return false
	default:
		return false
	}
}

// Error of an operation. It holds no secret.
type Error struct {
	// Class of the error.
	Class Class
	// Op in a few words, as "push".
	Op string
	// Status of the HTTP answer; 0 when there was none.
	Status int
	// Message says what went wrong.
	Message string
	// RetryAfter is how long the server asked to wait; 0 when it did not.
	RetryAfter time.Duration
	// TimedOut is set when the server did not answer, or not to the end, in time: the
	// transport's, or the context's. The wait for a slot is no such time.
	TimedOut bool
	// Err is the cause, if it says more: the context's error when the context ended.
	Err error
}

// Error implements error.
func (e *Error) Error() string {
	text := "git"
	if e.Op != "" {
		text += " " + e.Op
	}
	if e.Status != 0 {
		text += fmt.Sprintf(" (%d)", e.Status)
	}
	return text + ": " + e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

func failed(class Class, format string, args ...any) *Error {
	return &Error{Class: class, Message: fmt.Sprintf(format, args...)}
}

// ClassOf an error; Transient for those that are no *Error.
func ClassOf(err error) Class {
	var e *Error
	if errors.As(err, &e) {
		return e.Class
	}
	return Transient
}
