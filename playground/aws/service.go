package aws

import (
	"net/http"
	"net/url"
	"strings"
)

// Service is one of AWS' services.
type Service interface {
	// Name in the scope of a signature, such as "ec2".
	Name() string
	// Anonymous reports whether an action needs no signature.
	Anonymous(action string) bool
	// Serve answers a call, or returns a fault, which Refuse writes. In that case Serve must
	// not have written anything.
	Serve(w http.ResponseWriter, c *Call) *Fault
	// Refuse writes a fault in the service's protocol.
	Refuse(w http.ResponseWriter, f *Fault)
}

// Call is a request to a service.
type Call struct {
	// Server that was called.
	Server *Server
	// Request, whose body was read into Body.
	Request *http.Request
	Body    []byte
	// Form of the body, in the query protocols.
	Form url.Values
	// Service, Action and Region of the call.
	Service, Action, Region string
	// Caller is an ARN: RootARN, that of an assumed role's session, or that of a key of
	// AddKey. Empty when the call is anonymous.
	Caller string
	// Account of the caller.
	Account string
}

// Resourcer is a Service that returns the ARN of the resource of a call, for the messages of
// denied calls. The resource is "*" for other services.
type Resourcer interface{ ResourceOf(c *Call) string }

// Fault is an error response of AWS.
type Fault struct {
	// Status of the HTTP response.
	Status int
	// Code such as "UnauthorizedOperation".
	Code    string
	Message string
}

// Faults with the texts of AWS.
var (
	// Throttled is the fault of EC2; STS and others use the code "Throttling".
	Throttled = Fault{Status: http.StatusServiceUnavailable, Code: "RequestLimitExceeded", Message: "Request limit exceeded."}
	// Denied: no IAM policy allows the action. Rule.Deny has the message of other services.
	Denied = Fault{
		Status: http.StatusForbidden, Code: "UnauthorizedOperation",
		Message: "You are not authorized to perform this operation. Encoded authorization failure message: b2Yd3x",
	}
	// Throttling is the fault of services with the query or JSON protocol; EC2 has Throttled.
	Throttling = Fault{Status: http.StatusBadRequest, Code: "Throttling", Message: "Rate exceeded"}
	// OptInRequired: the account has not subscribed to the service.
	OptInRequired = Fault{
		Status: http.StatusUnauthorized, Code: "OptInRequired",
		Message: "You are not subscribed to this service. Please go to http://aws.amazon.com to subscribe.",
	}
	// AuthFailure is EC2's response to invalid credentials, and to valid ones in a region that
	// their account has not enabled.
	AuthFailure = Fault{
		Status: http.StatusUnauthorized, Code: "AuthFailure",
		Message: "AWS was not able to validate the provided access credentials",
	}
	// InternalError is a failure of the service.
	InternalError = Fault{Status: http.StatusInternalServerError, Code: "InternalError", Message: "An internal error has occurred"}
)

// AccessDenied is the code of the fault of a Rule with Deny. Services with another code
// translate it.
const AccessDenied = "AccessDenied"

// denied returns the fault of a call that no policy of the caller allows.
func denied(service Service, c *Call) *Fault {
	resource := "*"
	if r, is := service.(Resourcer); is {
		resource = r.ResourceOf(c)
	}
	action := c.Service + ":" + c.Action
	if c.Service == "sqs" {
		action = strings.ToLower(action) // SQS writes it so.
	}
	return &Fault{
		Status: http.StatusForbidden, Code: AccessDenied,
		Message: "User: " + c.Caller + " is not authorized to perform: " + action + " on resource: " + resource +
			" because no identity-based policy allows the " + action + " action",
	}
}
