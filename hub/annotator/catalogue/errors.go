package catalogue

import (
	"errors"
	"fmt"
	"time"

	"github.com/capstan-hub/capstan/hub/awsconfig"
)

// Classes of errors, for errors.Is.
var (
	// ErrInstanceTypeUnknown: EC2 has no such instance type in the region. Nothing is
	// wrong with AWS; it is asked again after Timings.Negative.
	ErrInstanceTypeUnknown = errors.New("instance type unknown")
	// ErrIncomplete: EC2 knows the type but not its vCPUs or memory. The error wraps a
	// *capacity.IncompleteError.
	ErrIncomplete = errors.New("instance type incomplete")
	// ErrRegionUnknown: the name is not that of a region, or none that answers.
	ErrRegionUnknown = errors.New("region unknown")
	// ErrRegionNotOptedIn: the account has not enabled the region.
	ErrRegionNotOptedIn = errors.New("region not opted in")
	// ErrAccessDenied: the credentials may not do what Error.Action names.
	ErrAccessDenied = errors.New("access denied")
	// ErrCredentials: there are no credentials, or AWS does not accept them.
	ErrCredentials = errors.New("credentials not accepted")
	// ErrThrottled: AWS asks to be called less often.
	ErrThrottled = errors.New("throttled")
	// ErrUnavailable: AWS does not answer, or answers with nonsense.
	ErrUnavailable = errors.New("unavailable")
	// ErrPending: AWS is being asked, and the caller's context ended first. Notify tells
	// when there is an answer or a failure.
	ErrPending = errors.New("not known yet")
)

// Error is why there is no answer. Its message is the same for the same trouble: no
// request id, port or time is in it, so that it can stand in an Event that is made
// once. What AWS said is what it wraps.
type Error struct {
	// Class is one of the sentinels of this package.
	Class error
	// Query that was asked.
	Query Query
	// Action of IAM that was denied, of ErrAccessDenied.
	Action string
	// Code is AWS' error code; empty where AWS did not answer.
	Code string
	// RetryAfter is how long the same answer will be given without asking AWS.
	RetryAfter time.Duration
	// Err that led to this; may be nil.
	Err error
}

// Unwrap makes errors.Is find the class, and errors.As what AWS said.
func (e *Error) Unwrap() []error { return []error{e.Class, e.Err} }

// Error implements error.
func (e *Error) Error() string {
	region, with := e.Query.Region, as(e.Query.Role)
	var message string
	switch is := func(class error) bool { return errors.Is(e.Class, class) }; {
	case is(ErrInstanceTypeUnknown):
		message = fmt.Sprintf("EC2 has no instance type %q in region %s", e.Query.InstanceType, region)
	case is(ErrIncomplete):
		message = fmt.Sprintf("%v, in region %s", e.Err, region)
	case is(ErrRegionUnknown):
		message = fmt.Sprintf("%q is not a region of AWS, or does not answer", region)
	case is(ErrRegionNotOptedIn):
		message = fmt.Sprintf("region %s is not enabled for the AWS account%s", region, with)
	case is(ErrAccessDenied):
		message = fmt.Sprintf("AWS denies %s in region %s%s: allow it in an IAM policy", e.Action, region, with)
	case is(ErrCredentials):
		message = fmt.Sprintf("AWS credentials%s are missing or not accepted in region %s", with, region)
	case is(ErrThrottled):
		message = fmt.Sprintf("AWS throttles calls in region %s%s", region, with)
	case is(ErrPending):
		message = fmt.Sprintf("EC2 in region %s has not answered yet", region)
	default:
		message = fmt.Sprintf("EC2 in region %s is unreachable or returned an invalid answer", region)
	}
	if e.Code != "" {
		message += " (" + e.Code + ")"
	}
	return message
}

// as names the role that was assumed.
func as(r awsconfig.Role) string {
	if r.ARN == "" {
		return ""
	}
	return " with role " + r.ARN
}
