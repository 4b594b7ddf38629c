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
	// Invalid: the options are wrong: URL, form of the credentials, CA bundle.
	Invalid Class = "Invalid"
	// NotFound: the repository or pull request does not exist, or the credentials may not
	// read it. Services do not distinguish the two.
	NotFound Class = "NotFound"
	// Unauthorized: the credentials are wrong or expired.
	Unauthorized Class = "Unauthorized"
	// Forbidden: the credentials are valid, but lack a right.
	Forbidden Class = "Forbidden"
	// Untrusted: the service's certificate is not signed by a trusted CA.
	Untrusted Class = "Untrusted"
	// Validation: the service understood the request and refuses it.
	Validation Class = "Validation"
	// Unsupported: the service does not have this feature.
	Unsupported Class = "Unsupported"
	// AlreadyExists: a pull request is open for the same branches.
	AlreadyExists Class = "AlreadyExists"
	// HeadMoved: the head is not the commit to be merged.
	HeadMoved Class = "HeadMoved"
	// Conflict: the pull request was changed meanwhile, or its state does not allow the act.
	Conflict Class = "Conflict"
	// NotMergeable: checks, reviews, conflicts or rules block the merge now.
	NotMergeable Class = "NotMergeable"
	// RateLimited: too many requests; RetryAfter is the wait.
	RateLimited Class = "RateLimited"
	// Transient: network, 5xx, a response that is not the service's API, or the
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

// Classes has all classes.
var Classes = []Class{
	Invalid, NotFound, Unauthorized, Forbidden, Untrusted, Validation, Unsupported,
	AlreadyExists, HeadMoved, Conflict, NotMergeable, RateLimited, Transient,
}

// Error is the error of a call. It contains no secret: the service's message is bounded,
// and every credential is removed from it.
type Error struct {
	// Class of the error; errors.Is finds its sentinel.
	Class Class
	// Provider that was called.
	Provider pipelinesv1.GitProviderType
	// Op in a few words, as "create pull request".
	Op string
	// Status of the HTTP response; 0 when there was none.
	Status int
	// Message of the service, or what failed.
	Message string
	// Remedy says how to fix it; empty if no action is needed.
	Remedy string
	// RetryAfter is the shortest wait; 0 when the service requested none, and the caller
	// uses its own backoff. Never 0 for RateLimited, never over one hour.
	RetryAfter time.Duration
	// Behind is set for NotMergeable when the service requires the branch to contain the
	// head of the base branch, and it does not.
	Behind bool
	// TimedOut is set when the service did not respond within the time of one request or of
	// the caller's context.
	TimedOut bool
	// Err is the cause, if it adds information: the context's error when the caller's
	// context ended.
	Err error

	// foreign is set when the response is not that of the service's API.
	foreign bool
}

// Error implements error. The message of some classes says what the class is; before the
// others' messages stands the text of the class.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(string(e.Provider) + ": ")
	if e.Op != "" {
		b.WriteString(e.Op + ": ")
	}
	explained := e.Message != "" && (e.Class == Invalid || e.Class == NotFound || e.Class == Transient)
	if explained {
		b.WriteString(e.Message)
	} else {
		b.WriteString(e.Class.sentinel().Error())
	}
	if e.Status != 0 {
		fmt.Fprintf(&b, " (%d)", e.Status)
	}
	if !explained && e.Message != "" && !strings.EqualFold(e.Message, e.Class.sentinel().Error()) {
		b.WriteString(": " + e.Message)
	}
	if e.Remedy != "" {
		b.WriteString("; " + e.Remedy)
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

// unreadable returns the error for a response that is not of the service's API. Another
// service may have sent it.
func unreadable(message string) *Error {
	e := refused(Transient, "%s", message)
	e.foreign = true
	return e
}
