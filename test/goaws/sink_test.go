package goaws

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	ce "github.com/cloudevents/sdk-go/v2/event"
	. "github.com/onsi/gomega"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
	sink "github.com/capstan-hub/capstan/hub/eventing/sink/sqs"
)

// TestPublishes: an independent SQS stores an event of the sink unchanged, including
// control characters. To a FIFO queue the sink sends the event's id and group.
func TestPublishes(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "a")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "b")
	config, err := awsconfig.Load(t.Context(), awsconfig.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(config.Close)
	e := ce.New()
	e.SetID("0123456789abcdef")
	e.SetType("dev.capstan.promotion.succeeded.v1")
	e.SetSource("/hubs/fleet")
	e.SetSubject("pipelines/shop/web")
	e.SetTime(time.Unix(1_700_000_000, 0).UTC())
	e.SetExtension("partitionkey", "shop/web")
	g.Expect(e.SetData(ce.ApplicationJSON, map[string]string{"message": "a\x01b\n\"ü"})).To(Succeed())

	for _, name := range []string{"events", "events.fifo"} {
		queue := &sqs.CreateQueueInput{QueueName: &name}
		if name != "events" {
			queue.Attributes = map[string]string{"FifoQueue": "true"}
		}
		made, err := client.CreateQueue(t.Context(), queue)
		g.Expect(err).NotTo(HaveOccurred())
		s := sink.Open(sink.Options{Config: configOf(g, map[string]any{"role": "sink", "region": "eu-west-1", "queueName": name, "endpoint": endpoint}), AWS: config, AllowLoopback: true})
		g.Expect(s.Ping(t.Context())).To(Succeed())
		g.Expect(s.Publish(t.Context(), e)).To(Succeed())
		kept, err := client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: made.QueueUrl, WaitTimeSeconds: 5, MessageAttributeNames: []string{"All"}})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(kept.Messages).To(HaveLen(1))
		m := kept.Messages[0]
		var got ce.Event
		g.Expect(got.UnmarshalJSON([]byte(aws.ToString(m.Body)))).To(Succeed())
		g.Expect(got.String()).To(Equal(e.String()))
		g.Expect(aws.ToString(m.MessageAttributes["ce-type"].StringValue)).To(Equal(e.Type()))
	}
	// A queue that does not exist.
	s := sink.Open(sink.Options{Config: configOf(g, map[string]any{"role": "sink", "region": "eu-west-1", "queueName": "nowhere", "endpoint": endpoint}), AWS: config, AllowLoopback: true})
	g.Expect(s.Ping(t.Context())).To(MatchError(ContainSubstring("no-queue")))
}

func configOf(g *WithT, values map[string]any) schema.Config {
	entries, err := eventingv1.NewConfig(values)
	g.Expect(err).NotTo(HaveOccurred())
	c, problems := schema.SQS().Resolve(entries)
	g.Expect(problems).To(BeEmpty())
	return c
}
