package awsset

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/aws/smithy-go"

	"github.com/capstan-hub/capstan/hub/awsconfig"
)

// Kind of a Failure.
type Kind string

// Kinds.
const (
	// Denied: the caller may not call the action.
	Denied Kind = "denied"
	// Absent: the object does not exist.
	Absent Kind = "absent"
	// NoCredentials: none were found, or they are not valid in the region.
	NoCredentials Kind = "credentials"
	// Other failures.
	Other Kind = "other"
)

// Failure is a failed call of AWS.
type Failure struct {
	Kind Kind
	// Action such as sqs:GetQueueAttributes, and Resource that it was called for; "" for all.
	Action, Resource string
	// Caller is an ARN; empty if it is not known.
	Caller string
	Region string
	err    error
}

// Error implements error.
func (f *Failure) Error() string {
	caller := f.Caller
	if caller == "" {
		caller = "the caller"
	}
	switch f.Kind { //nolint:exhaustive // The others have the text of the SDK.
	case Denied:
		return fmt.Sprintf("%s may not call %s", caller, f.Action)
	case NoCredentials:
		if errors.Is(f.err, awsconfig.ErrCredentials) {
			return fmt.Sprintf("no AWS credentials were found: set AWS_PROFILE, AWS_ACCESS_KEY_ID or --profile: %v", f.err)
		}
		return fmt.Sprintf("AWS does not accept the credentials in region %s: check that the region exists and that the account has enabled it, and renew the credentials: %v", f.Region, f.err)
	}
	return fmt.Sprintf("calling %s in region %s: %v", f.Action, f.Region, f.err)
}

// Unwrap returns the error of the SDK.
func (f *Failure) Unwrap() error { return f.err }

// Fix is what to do.
func (f *Failure) Fix() string {
	switch f.Kind { //nolint:exhaustive // Nothing is known about the others.
	case Denied:
		on := f.Resource
		if on == "" {
			on = "*"
		}
		return fmt.Sprintf("allow %s on %s to %s; all actions: capstan aws-eventing print --caller-policy", f.Action, on, f.Caller)
	case NoCredentials:
		return "use valid credentials and a region that the account has enabled"
	}
	return "call it again; if it lasts, see the error"
}

// failure classifies the error of a call.
func failure(err error, action, caller, region string) *Failure {
	f := &Failure{Kind: Other, Action: action, Caller: caller, Region: region, err: err}
	var api smithy.APIError
	var dns *net.DNSError
	switch {
	case errors.As(err, &api) && kindOf(api) == Denied: // Also when a role may not be assumed.
		f.Kind = Denied
	case errors.Is(err, awsconfig.ErrCredentials), errors.As(err, &dns) && dns.IsNotFound:
		f.Kind = NoCredentials
	case api != nil:
		f.Kind = kindOf(api)
	}
	return f
}

func kindOf(err smithy.APIError) Kind {
	code := strings.TrimPrefix(err.ErrorCode(), "AWS.SimpleQueueService.")
	switch code {
	case "AccessDenied", "AccessDeniedException", "AuthorizationError", "UnauthorizedOperation":
		return Denied
	case "NonExistentQueue", "QueueDoesNotExist", "ResourceNotFoundException", "StackNotFoundException", "NoSuchEntity", "NoSuchEntityException", "ChangeSetNotFound", "ChangeSetNotFoundException":
		return Absent
	case "UnrecognizedClientException", "InvalidClientTokenId", "AuthFailure", "InvalidSignatureException", "SignatureDoesNotMatch", "ExpiredToken", "ExpiredTokenException", "RequestExpired", "OptInRequired":
		return NoCredentials
	case "ValidationError":
		if strings.Contains(err.ErrorMessage(), "does not exist") {
			return Absent
		}
	}
	return Other
}

// failed explains the error of a call of a target.
func (t *Target) failed(err error, action, resource string) *Failure {
	f := failure(err, action, t.Caller, t.Region)
	f.Resource = resource
	return f
}
