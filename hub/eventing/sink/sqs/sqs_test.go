package sqs

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	api "github.com/aws/aws-sdk-go-v2/service/sqs"
	ce "github.com/cloudevents/sdk-go/v2/event"
	. "github.com/onsi/gomega"
	"go.uber.org/goleak"
	"k8s.io/utils/clock"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/hub/eventing/event"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/hub/eventing/sink"
	"github.com/capstan-hub/capstan/internal/netguard/netguardtest"
	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/sqs"
	"github.com/capstan-hub/capstan/playground/aws/sts"
	"github.com/capstan-hub/capstan/playground/leaks"
)

const (
	region  = "eu-west-1"
	roleARN = "arn:aws:iam::111122223333:role/events"
)

// world is a simulated SQS and STS, called by the real SDK.
type world struct {
	*aws.Server
	sqs    *sqs.Service
	sts    *sts.Service
	aws    *awsconfig.Config
	client *api.Client
}

func start(t *testing.T) *world {
	t.Helper()
	before := goleak.IgnoreCurrent()
	w := &world{sqs: sqs.New(sqs.Options{Clock: clock.RealClock{}, Seed: 1}), sts: sts.New()}
	var err error
	if w.Server, err = aws.Start(aws.Options{Services: []aws.Service{w.sqs, w.sts}, Clock: clock.RealClock{}}); err != nil {
		t.Fatal(err)
	}
	for name, value := range w.Env() {
		t.Setenv(name, value)
	}
	if w.aws, err = awsconfig.Load(t.Context(), awsconfig.Options{}); err != nil {
		t.Fatal(err)
	}
	url := w.URL()
	w.client = api.NewFromConfig(w.aws.In(region, awsconfig.Role{}), func(o *api.Options) {
		o.BaseEndpoint = &url
		o.Credentials = credentials.NewStaticCredentialsProvider(aws.AccessKeyID, aws.SecretAccessKey, "")
	})
	t.Cleanup(func() {
		w.aws.Close()
		w.Stop()
		if err := leaks.Find(before); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *world) queue(t *testing.T, name string) {
	t.Helper()
	if _, err := w.client.CreateQueue(t.Context(), &api.CreateQueueInput{QueueName: &name}); err != nil {
		t.Fatal(err)
	}
}

func config(t *testing.T, more map[string]any) schema.Config {
	t.Helper()
	all := map[string]any{"role": "sink", "region": region}
	for name, value := range more {
		all[name] = value
	}
	maps.DeleteFunc(all, func(_ string, value any) bool { return value == nil }) // Not set.
	entries, err := eventingv1.NewConfig(all)
	if err != nil {
		t.Fatal(err)
	}
	c, problems := schema.SQS().Resolve(entries)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return c
}

func news(n string) ce.Event {
	e := ce.New()
	e.SetID(n)
	e.SetType(event.DefaultPrefix + "." + string(event.PromotionSucceeded))
	e.SetSource("/hubs/test")
	e.SetSubject("pipelines/shop/web")
	e.SetTime(time.Unix(1_700_000_000, 0).UTC())
	e.SetExtension(event.PartitionKeyExtension, "shop/web")
	if err := e.SetData(ce.ApplicationJSON, map[string]string{"message": "a\x01b\n\"ü"}); err != nil {
		panic(err)
	}
	return e
}

// TestPublish: a message has the whole event, with control characters escaped, and two
// attributes.
func TestPublish(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	w := start(t)
	w.queue(t, "bus")
	s := Open(Options{Config: config(t, map[string]any{"queueName": "bus"}), AWS: w.aws})
	g.Expect(s.Ping(ctx)).To(Succeed())
	g.Expect(s.Publish(ctx, news("id-1"))).To(Succeed())
	out, err := w.client.ReceiveMessage(ctx, &api.ReceiveMessageInput{QueueUrl: s.queue.Load(), MessageAttributeNames: []string{"All"}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out.Messages).To(HaveLen(1))
	var got ce.Event
	g.Expect(json.Unmarshal([]byte(*out.Messages[0].Body), &got)).To(Succeed())
	g.Expect(got.Validate()).To(Succeed())
	g.Expect(got.String()).To(Equal(news("id-1").String()))
	attributes := map[string]string{}
	for name, value := range out.Messages[0].MessageAttributes {
		attributes[name] = *value.StringValue
	}
	g.Expect(attributes).To(Equal(map[string]string{"ce-type": "dev.capstan.promotion.succeeded.v1", "ce-source": "/hubs/test"}))
	again := Open(Options{Config: config(t, map[string]any{"queueUrl": *s.queue.Load()}), AWS: w.aws})
	g.Expect(again.Publish(ctx, news("id-2"))).To(Succeed())
}

// TestFaults: each fault has its class, and no message of AWS is shown.
func TestFaults(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	w := start(t)
	w.queue(t, "bus")
	s := Open(Options{Config: config(t, map[string]any{"queueName": "bus"}), AWS: w.aws})
	g.Expect(s.Ping(ctx)).To(Succeed())
	for code, want := range map[string]sink.Class{
		"RequestThrottled": sink.Transient, "ThrottlingException": sink.Transient, "InternalFailure": sink.Transient, "OverLimit": sink.Transient,
		"AccessDeniedException": sink.Unavailable, "KmsAccessDenied": sink.Unavailable, "ExpiredToken": sink.Unavailable,
		"UnrecognizedClientException": sink.Unavailable, "InvalidMessageContents": sink.Refused,
	} {
		status := 400
		if code == "InternalFailure" {
			status = 500
		}
		remove := w.Inject(aws.Rule{Match: aws.Match{Service: "sqs"}, Fault: &aws.Fault{Status: status, Code: code, Message: "S3CR3T-CANARY"}})
		err := s.Publish(ctx, news("id-"+code))
		remove()
		g.Expect(err).To(HaveOccurred(), code)
		g.Expect(sink.Of(err).Class).To(Equal(want), "%s: %v", code, err)
		g.Expect(err.Error()).To(And(ContainSubstring(code), Not(ContainSubstring("CANARY"))))
	}
	g.Expect(s.Publish(ctx, news("id-1"))).To(Succeed())
	missing := Open(Options{Config: config(t, map[string]any{"queueName": "missing"}), AWS: w.aws})
	g.Expect(sink.Of(missing.Ping(ctx)).Code).To(Equal("no-queue"))
	w.Stop()
	g.Expect(sink.Of(s.Publish(ctx, news("id-2"))).Class).To(Equal(sink.Transient))
}

// TestRoleThatCannotBeAssumedRefusesNoEvent: whatever STS answers concerns the role and not the
// event, which is sent when the role can be assumed again.
func TestRoleThatCannotBeAssumedRefusesNoEvent(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	w := start(t)
	w.queue(t, "bus")
	for _, code := range []string{
		"InvalidIdentityToken", "IDPCommunicationError", "IDPRejectedClaim", "RegionDisabledException", "AccessDenied", "ExpiredTokenException",
		"ValidationError", "MalformedPolicyDocument", "PackedPolicyTooLarge", "InternalFailure", "Throttling",
	} {
		s := Open(Options{Config: config(t, map[string]any{"queueName": "bus", "roleArn": roleARN, "externalId": code}), AWS: w.aws})
		w.sts.Put(sts.Role{ARN: roleARN, ExternalID: code})
		remove := w.Inject(aws.Rule{Match: aws.Match{Service: "sts"}, Fault: &aws.Fault{Status: 400, Code: code, Message: "S3CR3T-CANARY"}})
		err := s.Publish(ctx, news("id-"+code))
		remove()
		g.Expect(err).To(HaveOccurred(), code)
		g.Expect(sink.Of(err).Class).To(Equal(sink.Unavailable), "%s: %v", code, err)
		g.Expect(err.Error()).To(And(ContainSubstring("fetching credentials failed with "+code), ContainSubstring("roleArn"), Not(ContainSubstring("CANARY"))))
		g.Expect(s.Publish(ctx, news("id-"+code))).To(Succeed(), code)
	}
}

// TestTooLarge: a message above the limit, attributes included, is not sent. One that just fits
// is sent.
func TestTooLarge(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	w := start(t)
	w.queue(t, "bus")
	s := Open(Options{Config: config(t, map[string]any{"queueName": "bus"}), AWS: w.aws})
	e := news("id-1")
	e.DataEncoded = []byte(`""`)
	body, err := json.Marshal(e)
	g.Expect(err).NotTo(HaveOccurred())
	room := int(s.config.Int("maxMessageBytes") - sizeOf(s.message("q", e, string(body))))
	e.DataEncoded = []byte(`"` + strings.Repeat("x", room) + `"`)
	g.Expect(s.Publish(ctx, e)).To(Succeed())
	e.DataEncoded = []byte(`"` + strings.Repeat("x", room+1) + `"`)
	g.Expect(sink.Of(s.Publish(ctx, e)).Class).To(Equal(sink.TooLarge))
	g.Expect(w.Count(aws.Match{Service: "sqs", Action: "SendMessage"})).To(Equal(1))
}

// TestFIFO: the group is the partition key in the characters that SQS allows, and the id
// deduplicates. There is no delay, because FIFO queues reject it for a single message.
func TestFIFO(t *testing.T) {
	g := NewWithT(t)
	w := start(t)
	s := Open(Options{Config: config(t, map[string]any{"queueName": "bus.fifo", "delaySeconds": 5}), AWS: w.aws})
	m := s.message("https://sqs.eu-west-1.amazonaws.com/111122223333/bus.fifo", news("id-1"), "{}")
	g.Expect(*m.MessageGroupId).To(Equal("shop/web"))
	g.Expect(*m.MessageDeduplicationId).To(Equal("id-1"))
	g.Expect(m.DelaySeconds).To(BeZero())
	e := news("id-2")
	e.SetExtension(event.PartitionKeyExtension, strings.Repeat("ü ", 100))
	g.Expect(groupOf(e)).To(MatchRegexp(`^_{128}$`))
	s = Open(Options{Config: config(t, map[string]any{"queueName": "bus.fifo", "messageGroupId": "hub"}), AWS: w.aws})
	g.Expect(*s.message("x.fifo", e, "{}").MessageGroupId).To(Equal("hub"))
	plain := s.message("https://sqs/bus", e, "{}")
	g.Expect(plain.MessageGroupId).To(BeNil())
	g.Expect(plain.MessageAttributes).To(HaveLen(2))
}

// TestRegion of a queue: its key's, else its URL's, else the hub's.
func TestRegion(t *testing.T) {
	g := NewWithT(t)
	url := "https://sqs.ap-south-1.amazonaws.com/111122223333/bus"
	for want, keys := range map[string]map[string]any{
		"us-west-2":  {"queueUrl": url, "region": "us-west-2"},
		"ap-south-1": {"queueUrl": url, "region": nil},
		"eu-north-1": {"queueName": "bus", "region": nil},
	} {
		g.Expect(regionOf(config(t, keys), "eu-north-1")).To(Equal(want))
	}
}

// TestForbiddenEndpoints proves the policy of internal/netguard for key endpoint of a
// backend: every forbidden address is refused whatever the option is, and loopback only
// where it is not allowed.
func TestForbiddenEndpoints(t *testing.T) {
	g := NewWithT(t)
	w := start(t)
	w.queue(t, "events")
	publish := func(endpoint string, loopback bool) error {
		c := config(t, map[string]any{"queueName": "events", "endpoint": endpoint})
		return Open(Options{Config: c, AWS: w.aws, AllowLoopback: loopback}).Publish(t.Context(), news("a"))
	}
	refused := func(endpoint, reason string, loopback bool) {
		err := publish(endpoint, loopback)
		g.Expect(err).To(MatchError(And(ContainSubstring("key endpoint: the hub must not call"), ContainSubstring(reason))), endpoint)
		g.Expect(sink.Of(err).Class).To(Equal(sink.Unavailable), endpoint)
		g.Expect(sink.Of(err).Code).To(Equal(sink.CodeForbiddenAddress), endpoint)
	}
	g.Expect(publish(w.URL(), true)).To(Succeed())
	refused(w.URL(), "loopback", false)
	for _, a := range netguardtest.Forbidden {
		refused("https://"+a.Host(), a.Reason, false)
		refused("https://"+a.Host(), a.Reason, true)
	}
	for _, a := range netguardtest.Loopback {
		refused("https://"+a.Host(), a.Reason, false)
	}
}
