package catalogue

import (
	"errors"
	"fmt"
	"time"

	"github.com/capstan-hub/capstan/hub/awsconfig"
)

// Classes of errors, for errors.Is.
var (
	// ErrInstanceTypeUnknown: EC2 has no such instance type in the region. The lookup is
	// repeated after Timings.Negative.
	ErrInstanceTypeUnknown = errors.New("instance type unknown")
	// ErrIncomplete: EC2 has the type but reports no vCPUs or memory. The error wraps a
	// *capacity.IncompleteError.
	ErrIncomplete = errors.New("instance type incomplete")
	// ErrRegionUnknown: the name is not that of a region, or the region has no endpoint.
	ErrRegionUnknown = errors.New("region unknown")
	// ErrRegionNotOptedIn: the account has not enabled the region.
	ErrRegionNotOptedIn = errors.New("region not opted in")
	// ErrAccessDenied: the credentials do not allow Error.Action.
	ErrAccessDenied = errors.New("access denied")
	// ErrCredentials: there are no credentials, or AWS does not accept them.
	ErrCredentials = errors.New("credentials not accepted")
	// ErrThrottled: AWS throttles the account.
	ErrThrottled = errors.New("throttled")
	// ErrUnavailable: AWS does not answer, or the answer is not valid.
	ErrUnavailable = errors.New("unavailable")
	// ErrPending: the caller's context ended during the call to AWS. Notify reports when there
	// is an answer or a failure.
	ErrPending = errors.New("not known yet")
)

// Error is why there is no answer. Equal problems have equal messages, without request id, port
// or time, so that an Event is created once. It wraps the error of AWS.
type Error struct {
	// Class is one of the sentinels of this package.
	Class error
	// Query that failed.
	Query Query
	// Action is the denied IAM action, for ErrAccessDenied.
	Action string
	// Code is AWS' error code; empty if AWS did not answer.
	Code string
	// RetryAfter is how long the same answer is returned without a call to AWS.
	RetryAfter time.Duration
	// Err is the cause; may be nil.
	Err error
}

// Unwrap returns the class, for errors.Is, and the error of AWS, for errors.As.
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

// as returns a phrase with the assumed role.
func as(r awsconfig.Role) string {
	if r.ARN == "" {
		return ""
	}
	text := " with role " + r.ARN
	for r = r.Source(); r.ARN != ""; r = r.Source() {
		text += ", assumed by role " + r.ARN
	}
	return text
}
