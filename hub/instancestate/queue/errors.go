package queue

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"

	"github.com/aws/smithy-go"

	"github.com/capstan-hub/capstan/hub/awsconfig"
)

// Class of an error of SQS.
type Class string

// Classes.
const (
	// None: there is no error.
	None Class = ""
	// Denied: the credentials are valid but lack a permission.
	Denied Class = "Denied"
	// Credentials are missing, wrong or expired.
	Credentials Class = "Credentials"
	// NoSuchQueue: the queue does not exist in this region and account.
	NoSuchQueue Class = "NoSuchQueue"
	// Throttled: SQS limits the rate of calls.
	Throttled Class = "Throttled"
	// Network: there was no response.
	Network Class = "Network"
	// Server: SQS failed.
	Server Class = "Server"
	// Shared: another Consumer reads the queue.
	Shared Class = "Shared"
	// Other errors, for example an invalid parameter.
	Other Class = "Other"
)

// classes by the code of an error. SQS has two protocols, whose codes differ; other
// implementations speak either.
var classes = map[string]Class{
	"AccessDenied": Denied, "AccessDeniedException": Denied, "KmsAccessDenied": Denied, "KMS.AccessDeniedException": Denied,
	"InvalidSecurity":   Denied,
	"QueueDoesNotExist": NoSuchQueue, "AWS.SimpleQueueService.NonExistentQueue": NoSuchQueue,
	"RequestThrottled": Throttled, "ThrottlingException": Throttled, "Throttling": Throttled, "OverLimit": Throttled,
	"KmsThrottled": Throttled, "TooManyRequestsException": Throttled, "RequestLimitExceeded": Throttled,
	"ExpiredToken": Credentials, "ExpiredTokenException": Credentials, "InvalidClientTokenId": Credentials,
	"UnrecognizedClientException": Credentials, "SignatureDoesNotMatch": Credentials, "MissingAuthenticationToken": Credentials,
	"RequestExpired": Credentials, "InvalidAccessKeyId": Credentials,
}

// ErrShared is an error of Options.Claim: another Consumer reads the queue.
var ErrShared = errors.New("the queue has another reader")

// lasting reports whether a user must fix the error.
func (c Class) lasting() bool {
	return c == Denied || c == Credentials || c == NoSuchQueue || c == Shared
}

// ClassOf returns the class of an error.
func ClassOf(err error) Class {
	var api smithy.APIError
	var answer interface{ HTTPStatusCode() int }
	var network net.Error
	switch {
	case err == nil:
		return None
	case errors.Is(err, ErrShared):
		return Shared
	case errors.Is(err, awsconfig.ErrCredentials):
		return Credentials
	case errors.As(err, &api):
		class, known := classes[api.ErrorCode()]
		switch {
		case known:
			return class
		case errors.As(err, &answer) && answer.HTTPStatusCode() >= http.StatusInternalServerError:
			return Server
		}
		return Other
	case errors.As(err, &network), errors.Is(err, context.DeadlineExceeded):
		return Network
	case errors.As(err, &answer) && answer.HTTPStatusCode() >= http.StatusInternalServerError:
		return Server
	}
	return Other
}

// remedies say what a user must do.
var remedies = map[Class]string{
	None:        "nothing",
	Denied:      "allow sqs:ReceiveMessage, sqs:DeleteMessage, sqs:ChangeMessageVisibility, sqs:GetQueueAttributes and sqs:GetQueueUrl on the queue",
	Credentials: "check the hub's credentials, or the role to assume and its trust policy",
	NoSuchQueue: "create the queue, or correct queueUrl or queueName, region and account",
	Throttled:   "no action is needed: the call is retried",
	Network:     "check that the hub can reach the SQS endpoint of the region",
	Server:      "no action is needed: the call is retried",
	Shared:      "delete one of the two, and list the accounts of both in the other",
	Other:       "check the configuration of the source",
}

// variable are the parts of an error's text that change with every call: ids of requests,
// and addresses with ports.
var variable = regexp.MustCompile(`(RequestID|HostID): [^,]*,? ?| (\[[^]]*\]|[0-9.]*):[0-9]+(->(\[[^]]*\]|[0-9.]*):[0-9]+)?`)

// describe returns the message of an error. It stays the same while the error lasts.
func describe(action string, err error) string {
	text := err.Error()
	if action == actionClaim {
		return text + "; " + remedies[ClassOf(err)]
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		text = api.ErrorCode() + ": " + api.ErrorMessage()
	}
	return fmt.Sprintf("%s: %s; %s", action, variable.ReplaceAllString(text, ""), remedies[ClassOf(err)])
}
