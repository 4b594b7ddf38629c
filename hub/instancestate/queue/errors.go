package queue

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strings"

	"github.com/aws/smithy-go"
)

// Class of an error of SQS.
type Class string

// Classes.
const (
	// None: there is no error.
	None Class = ""
	// Denied: the credentials are good and may not do this.
	Denied Class = "Denied"
	// Credentials are missing, wrong or expired.
	Credentials Class = "Credentials"
	// NoSuchQueue in this region and account.
	NoSuchQueue Class = "NoSuchQueue"
	// Throttled by SQS.
	Throttled Class = "Throttled"
	// Network: there was no answer.
	Network Class = "Network"
	// Server: SQS has a failure of its own.
	Server Class = "Server"
	// Other refusals, such as of a wrong parameter.
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

// lasting errors do not go away by themselves.
func (c Class) lasting() bool { return c == Denied || c == Credentials || c == NoSuchQueue }

// identity begins the errors of getting credentials, for which the SDK has no type.
const identity = "get identity: "

// ClassOf an error.
func ClassOf(err error) Class {
	var api smithy.APIError
	var answer interface{ HTTPStatusCode() int }
	var network net.Error
	switch {
	case err == nil:
		return None
	case strings.Contains(err.Error(), identity):
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

// remedies tell people what to do.
var remedies = map[Class]string{
	None:        "nothing",
	Denied:      "allow sqs:ReceiveMessage, sqs:DeleteMessage, sqs:ChangeMessageVisibility, sqs:GetQueueAttributes and sqs:GetQueueUrl on the queue",
	Credentials: "check the hub's credentials, or the role to assume and its trust policy",
	NoSuchQueue: "create the queue, or correct queueUrl or queueName, region and account",
	Throttled:   "nothing: it is tried again",
	Network:     "check that the region's endpoint of SQS can be reached from the hub",
	Server:      "nothing: it is tried again",
	Other:       "check the configuration of the source",
}

// variable are parts of an error's text that are others at every try: ids of requests, and
// addresses with ports.
var variable = regexp.MustCompile(`(RequestID|HostID): [^,]*,? ?| (\[[^]]*\]|[0-9.]*):[0-9]+(->(\[[^]]*\]|[0-9.]*):[0-9]+)?`)

// describe an error in words that stay the same while it lasts.
func describe(action string, err error) string {
	text := err.Error()
	var api smithy.APIError
	if errors.As(err, &api) {
		text = api.ErrorCode() + ": " + api.ErrorMessage()
	}
	return fmt.Sprintf("%s: %s; %s", action, variable.ReplaceAllString(text, ""), remedies[ClassOf(err)])
}
