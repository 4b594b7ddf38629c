package catalogue

import (
	"errors"
	"net"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	smithy "github.com/aws/smithy-go"
)

// action that the hub's IAM policy must allow.
const action = "ec2:DescribeInstanceTypes"

// codeAuthFailure is EC2's for all that is wrong with whoever calls.
const codeAuthFailure = "AuthFailure"

// classes of EC2's and STS' error codes. Those that throttle are the SDK's to know;
// all others are ErrUnavailable.
var classes = map[string]error{
	"UnauthorizedOperation": ErrAccessDenied,
	"AccessDenied":          ErrAccessDenied,
	"AccessDeniedException": ErrAccessDenied,

	"OptInRequired":           ErrRegionNotOptedIn,
	"RegionDisabledException": ErrRegionNotOptedIn,

	codeAuthFailure:               ErrCredentials,
	"ExpiredToken":                ErrCredentials,
	"ExpiredTokenException":       ErrCredentials,
	"IDPRejectedClaim":            ErrCredentials,
	"IncompleteSignature":         ErrCredentials,
	"InvalidClientTokenId":        ErrCredentials,
	"InvalidIdentityToken":        ErrCredentials,
	"MissingAuthenticationToken":  ErrCredentials,
	"RequestExpired":              ErrCredentials,
	"SignatureDoesNotMatch":       ErrCredentials,
	"UnrecognizedClientException": ErrCredentials,
	"ValidationError":             ErrCredentials, // Of a role's ARN or session name.
}

// classify an error of EC2's.
func classify(err error) *Error {
	e := &Error{Class: ErrUnavailable, Err: err}
	var api smithy.APIError
	if !errors.As(err, &api) {
		var dns *net.DNSError
		if errors.As(err, &dns) && dns.IsNotFound {
			e.Class = ErrRegionUnknown // ec2.<region>.amazonaws.com is no host.
		}
		return e
	}
	e.Code = api.ErrorCode()
	if class := classes[e.Code]; class != nil {
		e.Class = class
	}
	if _, throttles := retry.DefaultThrottleErrorCodes[e.Code]; throttles {
		e.Class = ErrThrottled
	}
	if e.Code == codeAuthFailure && strings.Contains(api.ErrorMessage(), "valid region") {
		e.Class = ErrRegionUnknown
	}
	if errors.Is(e.Class, ErrAccessDenied) {
		e.Action = action
	}
	return e
}

// classifyCredentials is classify for what led to no credentials: an error of STS', of
// the metadata service, or of a file.
func classifyCredentials(err error) *Error {
	e := classify(err)
	operation := stsOperation(err)
	switch {
	case errors.Is(e.Class, ErrAccessDenied):
		e.Action = "sts:" + operation
	case e.Code == "" && operation == "":
		e.Class = ErrCredentials
	case errors.Is(e.Class, ErrRegionUnknown):
		e.Class = ErrUnavailable // It is STS that is not found.
	}
	return e
}

// stsOperation that an error is of; empty if of none.
func stsOperation(err error) string {
	for {
		var operation *smithy.OperationError
		if !errors.As(err, &operation) {
			return ""
		}
		if operation.Service() == "STS" {
			return operation.Operation()
		}
		err = operation.Unwrap()
	}
}

// about a query, the same error.
func (e *Error) about(q Query) *Error {
	about := *e
	about.Query = q
	return &about
}
