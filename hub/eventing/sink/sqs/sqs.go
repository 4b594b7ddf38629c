package sqs

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
	ce "github.com/cloudevents/sdk-go/v2/event"

	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/hub/eventing/event"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/hub/eventing/sink"
	"github.com/capstan-hub/capstan/internal/netguard"
)

// Attributes of a message.
const (
	typeAttribute   = "ce-type"
	sourceAttribute = "ce-source"
	stringType      = "String"
)

const (
	fifo = ".fifo"
	// maxGroup is the maximum length of a message group id.
	maxGroup = 128
)

// Options of a Sink.
type Options struct {
	// Config of a backend of type sqs with role sink.
	Config schema.Config
	// AWS is the configuration of the process.
	AWS *awsconfig.Config
	// AllowLoopback allows addresses of this machine in the key endpoint: for tests and the
	// playground.
	AllowLoopback bool
}

// Sink sends to one queue.
type Sink struct {
	config schema.Config
	client *sqs.Client
	// queue is the URL of the queue; nil until it is known.
	queue atomic.Pointer[string]
}

var _ sink.Sink = &Sink{}

// Open makes a Sink without a call.
func Open(o Options) *Sink {
	c := o.Config
	s := &Sink{config: c}
	if queue := c.String("queueUrl"); queue != "" {
		s.queue.Store(&queue)
	}
	role := awsconfig.Role{ARN: c.String("roleArn"), ExternalID: c.String("externalId")}
	s.client = sqs.NewFromConfig(o.AWS.In(regionOf(c, o.AWS.Region()), role), func(q *sqs.Options) {
		q.Retryer = aws.NopRetryer{}
		if endpoint := c.String("endpoint"); endpoint != "" {
			q.BaseEndpoint = &endpoint
			q.HTTPClient = o.AWS.Guarded(netguard.Policy{AllowLoopback: o.AllowLoopback})
		}
	})
	return s
}

// regionOf returns the region of a queue: as configured, else from its URL
// (sqs.<region>.amazonaws.com), else the hub's.
func regionOf(c schema.Config, otherwise string) string {
	if region := c.String("region"); region != "" {
		return region
	}
	if u, err := url.Parse(c.String("queueUrl")); err == nil {
		if service, rest, _ := strings.Cut(u.Hostname(), "."); service == "sqs" {
			region, _, _ := strings.Cut(rest, ".")
			return region
		}
	}
	return otherwise
}

// Ping reads an attribute of the queue.
func (s *Sink) Ping(ctx context.Context) error {
	queue, err := s.url(ctx)
	if err != nil {
		return err
	}
	if _, err := s.client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: &queue, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameQueueArn},
	}); err != nil {
		return class(err)
	}
	return nil
}

// url returns the URL of the queue. It is read from SQS if only the name is configured.
func (s *Sink) url(ctx context.Context) (string, error) {
	if known := s.queue.Load(); known != nil {
		return *known, nil
	}
	name, in := s.config.String("queueName"), &sqs.GetQueueUrlInput{}
	in.QueueName = &name
	if owner := s.config.String("queueOwnerAccountId"); owner != "" {
		in.QueueOwnerAWSAccountId = &owner
	}
	out, err := s.client.GetQueueUrl(ctx, in)
	if err != nil {
		return "", class(err)
	}
	s.queue.Store(out.QueueUrl)
	return *out.QueueUrl, nil
}

// Publish implements sink.Sink.
func (s *Sink) Publish(ctx context.Context, e ce.Event) error {
	queue, err := s.url(ctx)
	if err != nil {
		return err
	}
	body, err := json.Marshal(e)
	if err != nil {
		return sink.Errorf(sink.Refused, "malformed", "the event has no JSON form: %w", err)
	}
	message := s.message(queue, e, string(body))
	if size, most := sizeOf(message), s.config.Int("maxMessageBytes"); size > most {
		return sink.Errorf(sink.TooLarge, sink.CodeTooLarge, "the message has %d bytes; maxMessageBytes allows %d", size, most)
	}
	if _, err := s.client.SendMessage(ctx, message); err != nil {
		return class(err)
	}
	return nil
}

func (s *Sink) message(queue string, e ce.Event, body string) *sqs.SendMessageInput {
	text := func(value string) types.MessageAttributeValue {
		return types.MessageAttributeValue{DataType: aws.String(stringType), StringValue: &value}
	}
	m := &sqs.SendMessageInput{
		QueueUrl: &queue, MessageBody: &body,
		MessageAttributes: map[string]types.MessageAttributeValue{typeAttribute: text(e.Type()), sourceAttribute: text(e.Source())},
	}
	if !strings.HasSuffix(queue, fifo) {
		m.DelaySeconds = int32(s.config.Int("delaySeconds")) //nolint:gosec // The schema bounds it.
		return m
	}
	group := s.config.String("messageGroupId")
	if group == "" {
		group = groupOf(e)
	}
	m.MessageGroupId, m.MessageDeduplicationId = &group, aws.String(e.ID())
	return m
}

// groupOf returns the partition key of an event, in the characters and length that SQS allows.
func groupOf(e ce.Event) string {
	group := strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return '_'
		}
		return r
	}, event.PartitionKey(e))
	if group == "" {
		return "_"
	}
	return group[:min(len(group), maxGroup)]
}

// sizeOf returns the size of a message as SQS counts it: body and attributes, with their names
// and types.
func sizeOf(m *sqs.SendMessageInput) int64 {
	size := len(*m.MessageBody)
	for name, value := range m.MessageAttributes {
		size += len(name) + len(*value.DataType) + len(*value.StringValue)
	}
	return int64(size)
}

// class maps an error of the SDK to an Error.
func class(err error) error {
	var api smithy.APIError
	switch {
	case errors.Is(err, netguard.ErrForbidden):
		return sink.Errorf(sink.Unavailable, sink.CodeForbiddenAddress, "%w", cause(err))
	case errors.Is(err, awsconfig.ErrCredentials):
		return classOfCredentials(err)
	case errors.Is(err, context.DeadlineExceeded):
		return sink.Errorf(sink.Transient, sink.CodeTimeout, "SQS did not answer in time")
	case !errors.As(err, &api):
		return sink.Errorf(sink.Transient, sink.CodeUnreachable, "SQS did not answer; check endpoint and region")
	}
	code := api.ErrorCode()
	answered := func(c sink.Class, short string) error {
		return sink.Errorf(c, short, "SQS answered %s", code)
	}
	switch {
	case strings.HasSuffix(code, "NonExistentQueue"), code == "QueueDoesNotExist":
		return answered(sink.Unavailable, "no-queue")
	case strings.HasPrefix(code, "AccessDenied"), strings.HasPrefix(code, "Kms"):
		return answered(sink.Unavailable, sink.CodeForbidden)
	case code == "InvalidClientTokenId", code == "UnrecognizedClientException", strings.HasPrefix(code, "ExpiredToken"),
		code == "SignatureDoesNotMatch", code == "InvalidSecurity", code == "MissingAuthenticationToken":
		return answered(sink.Unavailable, sink.CodeUnauthorized)
	case strings.Contains(code, "Thrott"), code == "OverLimit", api.ErrorFault() == smithy.FaultServer, api.ErrorFault() == smithy.FaultUnknown:
		return answered(sink.Transient, "sqs-"+code)
	}
	if strings.Contains(api.ErrorMessage(), "MaximumMessageSize") || strings.Contains(api.ErrorMessage(), "shorter than") {
		return answered(sink.TooLarge, sink.CodeTooLarge)
	}
	return answered(sink.Refused, "sqs-"+code)
}

// classOfCredentials maps an error of fetching credentials. None is of the event, so none gives
// it up.
func classOfCredentials(err error) error {
	const remedy = "check the hub's AWS credentials, or roleArn, externalId and the role's trust policy"
	var api smithy.APIError
	if !errors.As(err, &api) {
		return sink.Errorf(sink.Unavailable, sink.CodeUnauthorized, "no credentials could be fetched; %s", remedy)
	}
	return sink.Errorf(sink.Unavailable, sink.CodeUnauthorized, "fetching credentials failed with %s; %s", api.ErrorCode(), remedy)
}

// cause returns why a connection was not made, without the text that the SDK adds.
func cause(err error) error {
	var dialled *net.OpError
	if errors.As(err, &dialled) {
		return dialled.Err
	}
	return netguard.ErrForbidden
}

// Close implements sink.Sink. It does nothing: the process shares the connections.
func (*Sink) Close(context.Context) error { return nil }
