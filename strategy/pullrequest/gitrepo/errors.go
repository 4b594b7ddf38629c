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
	// NotFound: the repository does not exist, or the credentials may not read it.
	NotFound Class = "NotFound"
	// Empty: the repository has no branch at all.
	Empty Class = "Empty"
	// Unauthorized: the credentials are wrong or expired.
	Unauthorized Class = "Unauthorized"
	// Forbidden: the credentials are valid, but lack a right.
	Forbidden Class = "Forbidden"
	// Untrusted: the server's certificate is not signed by a trusted CA.
	Untrusted Class = "Untrusted"
	// Invalid: the URL leads to an address that the hub must not call.
	Invalid Class = "Invalid"
	// TooLarge: the repository is over a limit.
	TooLarge Class = "TooLarge"
	// Refused: a rule of the server refuses the push, such as a protected branch or a
	// hook.
	Refused Class = "Refused"
	// Moved: the head of the branch is not the commit to be replaced.
	Moved Class = "Moved"
	// RateLimited: too many requests.
	RateLimited Class = "RateLimited"
	// Transient: network, 5xx, a response that is not Git's, or the context's end. A
	// push may have taken effect.
	Transient Class = "Transient"
)

// Terminal reports whether no repetition fixes errors of the class.
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

// Error is the error of an operation. It contains no secret.
type Error struct {
	// Class of the error.
	Class Class
	// Op in a few words, as "push".
	Op string
	// Status of the HTTP response; 0 when there was none.
	Status int
	// Message says what failed.
	Message string
	// RetryAfter is the wait that the server requested; 0 when it requested none.
	RetryAfter time.Duration
	// TimedOut is set when the server was silent for Remote.Silence, or for the timeout of the
	// transport. The wait for a slot does not count, nor does a transfer that continues.
	TimedOut bool
	// OutOfTime is set when the context's deadline ended an operation whose server was not
	// silent for that long.
	OutOfTime bool
	// Err is the cause, if it adds information: the context's error when the context ended.
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

// ClassOf returns the class of an error; Transient if it is not an *Error.
func ClassOf(err error) Class {
	var e *Error
	if errors.As(err, &e) {
		return e.Class
	}
	return Transient
}
