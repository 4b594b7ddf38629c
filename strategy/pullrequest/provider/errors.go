package provider

import (
	"errors"
	"fmt"
	"strings"
	"time"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// Class of an error: what the caller can do about it.
type Class string

// Classes of errors.
const (
	// Invalid: the options are wrong: URL, credentials' form, CA bundle.
	Invalid Class = "Invalid"
	// NotFound: no such repository or pull request, or none that the credentials
	// may see: services do not tell the two apart.
	NotFound Class = "NotFound"
	// Unauthorized: the credentials are wrong or expired.
	Unauthorized Class = "Unauthorized"
	// Forbidden: the credentials are good, but lack a right.
	Forbidden Class = "Forbidden"
	// Untrusted: the service's certificate is not signed by a trusted CA.
	Untrusted Class = "Untrusted"
	// Validation: the service understood and will not have it.
	Validation Class = "Validation"
	// Unsupported: the service has no such thing.
	Unsupported Class = "Unsupported"
	// AlreadyExists: a pull request is open for the same branches.
	AlreadyExists Class = "AlreadyExists"
	// HeadMoved: the head is another commit than the one to be merged.
	HeadMoved Class = "HeadMoved"
	// Conflict: it was changed meanwhile, or is in a state that forbids the act.
	Conflict Class = "Conflict"
	// NotMergeable: checks, reviews, conflicts or rules stand against merging now.
	NotMergeable Class = "NotMergeable"
	// RateLimited: too many requests; RetryAfter says when to come back.
	RateLimited Class = "RateLimited"
	// Transient: network, 5xx, an answer that is not the service's API, or the
	// context's end. The act may have taken effect.
	Transient Class = "Transient"
)

// Sentinels for errors.Is, one for each Class.
var (
	ErrInvalid       = errors.New("invalid provider options")
	ErrNotFound      = errors.New("not found")
	ErrUnauthorized  = errors.New("unauthorized")
	ErrForbidden     = errors.New("forbidden")
	ErrUntrusted     = errors.New("certificate not trusted")
	ErrValidation    = errors.New("refused by the service")
	ErrUnsupported   = errors.New("not supported by the service")
	ErrAlreadyExists = errors.New("pull request already exists")
	ErrHeadMoved     = errors.New("head moved")
	ErrConflict      = errors.New("conflict")
	ErrNotMergeable  = errors.New("not mergeable")
	ErrRateLimited   = errors.New("rate limited")
	ErrTransient     = errors.New("transient")
)

func (c Class) sentinel() error {
	switch c {
	case Invalid:
		return ErrInvalid
	case NotFound:
		return ErrNotFound
	case Unauthorized:
		return ErrUnauthorized
	case Forbidden:
		return ErrForbidden
	case Untrusted:
		return ErrUntrusted
	case Validation:
		return ErrValidation
	case Unsupported:
		return ErrUnsupported
	case AlreadyExists:
		return ErrAlreadyExists
	case HeadMoved:
		return ErrHeadMoved
	case Conflict:
		return ErrConflict
	case NotMergeable:
		return ErrNotMergeable
	case RateLimited:
		return ErrRateLimited
	case Transient:
		return ErrTransient
	default:
		return nil
	}
}

// Terminal tells whether no repetition heals errors of the class: the Pipeline,
// its Secret or the rights at the service must be changed first.
func (c Class) Terminal() bool {
	switch c {
	case Invalid, NotFound, Unauthorized, Forbidden, Untrusted, Validation, Unsupported:
		return true
	case AlreadyExists, HeadMoved, Conflict, NotMergeable, RateLimited, Transient:
		return false
	default:
		return false
	}
}

// Error of a call. It holds no secret: what a service said is bounded, and every
// credential is struck out of it.
type Error struct {
	// Class of the error; errors.Is finds its sentinel.
	Class Class
	// Provider that was called.
	Provider pipelinesv1.GitProviderType
	// Op in a few words, as "create pull request".
	Op string
	// Status of the HTTP answer; 0 when there was none.
	Status int
	// Message of the service, or what went wrong.
	Message string
	// Mend says what to do about it; empty where time heals it.
	Mend string
	// RetryAfter is how long to wait at least; 0 when the service did not say and
	// the caller's own backoff holds. Never 0 for RateLimited, never over an hour.
	RetryAfter time.Duration
	// TimedOut is set when the service did not answer in time, be it the time of one
	// request or the caller's that had passed.
	TimedOut bool
	// Err is the cause, if it says more: the context's error when the caller's
	// context ended.
	Err error
}

// Error implements error.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(string(e.Provider))
	if e.Op != "" {
		b.WriteString(": " + e.Op)
	}
	b.WriteString(": " + e.Class.sentinel().Error())
	if e.Status != 0 {
		fmt.Fprintf(&b, " (%d)", e.Status)
	}
	if e.Message != "" {
		b.WriteString(": " + e.Message)
	}
	if e.Mend != "" {
		b.WriteString("; " + e.Mend)
	}
	return b.String()
}

// Unwrap returns the sentinel of the class and the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Class.sentinel()}
	}
	return []error{e.Class.sentinel(), e.Err}
}

func invalid(t pipelinesv1.GitProviderType, format string, args ...any) *Error {
	return &Error{Class: Invalid, Provider: t, Message: fmt.Sprintf(format, args...)}
}

func refused(class Class, format string, args ...any) *Error {
	return &Error{Class: class, Message: fmt.Sprintf(format, args...)}
}
