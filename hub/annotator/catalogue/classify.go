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

// codeAuthFailure is EC2's code for all problems of the caller's credentials.
const codeAuthFailure = "AuthFailure"

// classes maps error codes of EC2 and STS. The SDK has the codes for throttling; all other
// codes are ErrUnavailable.
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
	"ValidationError":             ErrCredentials, // A role's ARN or session name is not valid.
}

// classify converts an error of EC2.
func classify(err error) *Error {
	e := &Error{Class: ErrUnavailable, Err: err}
	var api smithy.APIError
	if !errors.As(err, &api) {
		var dns *net.DNSError
		if errors.As(err, &dns) && dns.IsNotFound {
			e.Class = ErrRegionUnknown // ec2.<region>.amazonaws.com does not exist.
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

// classifyCredentials converts an error of fetching credentials: of STS, of the metadata service
// or of a file.
func classifyCredentials(err error) *Error {
	e := classify(err)
	operation := stsOperation(err)
	switch {
	case errors.Is(e.Class, ErrAccessDenied):
		e.Action = "sts:" + operation
	case e.Code == "" && operation == "":
		e.Class = ErrCredentials
	case errors.Is(e.Class, ErrRegionUnknown):
		e.Class = ErrUnavailable // The host of STS was not found, not that of EC2.
	}
	return e
}

// stsOperation returns the STS operation that failed; empty if the error is not from STS.
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

// about returns a copy of the error with another Query.
func (e *Error) about(q Query) *Error {
	about := *e
	about.Query = q
	return &about
}
