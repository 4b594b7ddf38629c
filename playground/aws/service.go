package aws

import (
	"net/http"
	"net/url"
)

// Service is one of AWS' services.
type Service interface {
	// Name in the scope of a signature, such as "ec2".
	Name() string
	// Anonymous says that an action needs no signature.
	Anonymous(action string) bool
	// Serve answers a call. What it returns instead is written by Refuse; then it must
	// have written nothing itself.
	Serve(w http.ResponseWriter, c *Call) *Fault
	// Refuse writes a fault in the service's protocol.
	Refuse(w http.ResponseWriter, f *Fault)
}

// Call of a service.
type Call struct {
	// Server that was called.
	Server *Server
	// Request, whose body was read into Body.
	Request *http.Request
	Body    []byte
	// Form of the body, where the protocol is a query's.
	Form url.Values
	// Service, Action and Region that are called.
	Service, Action, Region string
	// Caller's ARN: RootARN, or that of an assumed role's session. Empty when the call
	// is anonymous.
	Caller string
}

// Fault is an error of AWS' making.
type Fault struct {
	// Status of the HTTP response.
	Status int
	// Code such as "UnauthorizedOperation".
	Code    string
	Message string
}

// Faults that services answer with, as AWS words them.
var (
	// Throttled is EC2's wording; STS and others say "Throttling".
	Throttled = Fault{Status: http.StatusServiceUnavailable, Code: "RequestLimitExceeded", Message: "Request limit exceeded."}
	// Denied says that an IAM policy lacks the action.
	Denied = Fault{
		Status: http.StatusForbidden, Code: "UnauthorizedOperation",
		Message: "You are not authorized to perform this operation. Encoded authorization failure message: b2Yd3x",
	}
	// OptInRequired says that the account has not subscribed to the service.
	OptInRequired = Fault{
		Status: http.StatusUnauthorized, Code: "OptInRequired",
		Message: "You are not subscribed to this service. Please go to http://aws.amazon.com to subscribe.",
	}
	// AuthFailure is EC2's answer to bad credentials, and to good ones in a region that
	// their account has not enabled.
	AuthFailure = Fault{
		Status: http.StatusUnauthorized, Code: "AuthFailure",
		Message: "AWS was not able to validate the provided access credentials",
	}
	// InternalError is a failure of the service's own.
	InternalError = Fault{Status: http.StatusInternalServerError, Code: "InternalError", Message: "An internal error has occurred"}
)
