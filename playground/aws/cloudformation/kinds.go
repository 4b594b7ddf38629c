package cloudformation

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	sqsapi "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go"
)

// kind of resource.
type kind struct {
	// properties, and whether a change of one needs a replacement of the resource.
	properties map[string]bool
	// attributes for Fn::GetAtt.
	attributes []string
	attribute  func(e environment, physical, name string) string
	// named is the property with the name that needs CAPABILITY_NAMED_IAM; iam needs a capability.
	iam   bool
	named string
	// tagged resources get the tags of the stack, in their property Tags.
	tagged bool
	// create returns the physical id of the resource, also with an error if the resource exists
	// then and must be deleted.
	create func(ctx context.Context, w *worker, logical string, p map[string]any) (physical string, err error)
	update func(ctx context.Context, w *worker, physical string, before, p map[string]any) error
	// read returns the live values of the properties p, and may return others. Its error is one
	// of notFound if the resource does not exist.
	read func(ctx context.Context, w *worker, physical string, p map[string]any) (map[string]any, error)
	// remove deletes the resource. It succeeds if the resource does not exist.
	remove func(ctx context.Context, w *worker, physical string, p map[string]any) error
}

// kinds by type.
var kinds = map[string]kind{
	"AWS::SQS::Queue":         queueKind,
	"AWS::SQS::QueuePolicy":   queuePolicyKind,
	"AWS::Events::Rule":       ruleKind,
	"AWS::IAM::Role":          roleKind,
	"AWS::IAM::ManagedPolicy": managedPolicyKind,
}

// worker does the work of a stack with the calls of a caller.
type worker struct {
	environment
	queues *sqsapi.Client
	iam    *iam.Client
	events *eventbridge.Client
}

// name returns a generated name of a resource, of at most limit characters.
func (w *worker) name(logical string, limit int) string {
	const suffix = 12
	prefix := w.stack + "-" + logical
	return prefix[:min(len(prefix), limit-suffix-1)] + "-" + rand.Text()[:suffix]
}

// handlerError is the failure of a resource.
type handlerError struct{ code, message string }

// Error implements error, with the text of AWS.
func (e *handlerError) Error() string {
	return fmt.Sprintf("Resource handler returned message: %q (RequestToken: %s, HandlerErrorCode: %s)", e.message, rand.Text(), e.code)
}

func alreadyExists(kind, name string) error {
	return &handlerError{"AlreadyExists", fmt.Sprintf("Resource of type '%s' with identifier '%s' already exists.", kind, name)}
}

// handlerCodes are the codes of CloudFormation for those of the services.
var handlerCodes = map[string]string{
	"AccessDenied": "AccessDenied", "AccessDeniedException": "AccessDenied",
	"EntityAlreadyExists": "AlreadyExists", "QueueNameExists": "AlreadyExists", "QueueAlreadyExists": "AlreadyExists",
	"NoSuchEntity": "NotFound", "ResourceNotFoundException": "NotFound", "QueueDoesNotExist": "NotFound", nonExistentQueue: "NotFound",
	"Throttling": "Throttling", "ThrottlingException": "Throttling", "RequestThrottled": "Throttling",
}

const nonExistentQueue = "AWS.SimpleQueueService.NonExistentQueue"

// reason returns the status reason of a resource that failed.
func reason(err error) string {
	var handler *handlerError
	if errors.As(err, &handler) {
		return handler.Error()
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		code := handlerCodes[api.ErrorCode()]
		if code == "" {
			code = "InvalidRequest"
		}
		return (&handlerError{code, api.ErrorMessage()}).Error()
	}
	return (&handlerError{"InternalFailure", err.Error()}).Error()
}

// notFound reports whether a call failed because the object does not exist.
func notFound(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && handlerCodes[api.ErrorCode()] == "NotFound"
}

// ignoreMissing returns nil if a call failed because the object does not exist.
func ignoreMissing(err error) error {
	if notFound(err) {
		return nil
	}
	return err
}

// into decodes properties, and refuses those that v does not have.
func into(p map[string]any, v any) error {
	raw, err := json.Marshal(p)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(v); err != nil {
		return &handlerError{"InvalidRequest", "Properties validation failed: " + strings.TrimPrefix(err.Error(), "json: ")}
	}
	return nil
}

// text encodes a document of a policy or pattern; one that is a text stays as it is.
func text(v any) string {
	if s, is := v.(string); is {
		return s
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v) // Values of a template can be encoded.
	}
	return string(raw)
}

// without returns the elements of a that b does not have.
func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(one string) bool { return slices.Contains(b, one) })
}
