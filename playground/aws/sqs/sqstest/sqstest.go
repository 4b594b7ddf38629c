// Package sqstest has the tests of the behaviour of queues. They run against the simulator
// playground/aws/sqs and against another implementation of SQS, so that the simulator is
// compared with an independent one.
//
// Contract: Behaves uses the real clock and takes seconds. It creates its queues before it
// uses any, and does not delete them.
package sqstest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
	. "github.com/onsi/gomega"
)

// Lacks names the missing features of an implementation.
type Lacks struct {
	// ReceiveCount: ApproximateReceiveCount does not change.
	ReceiveCount bool
	// SendBatchResult: the response to SendMessageBatch does not list the sent messages.
	SendBatchResult bool
	// VisibilityBatch: there is no ChangeMessageVisibilityBatch.
	VisibilityBatch bool
	// DeadLetterSources: there is no ListDeadLetterSourceQueues.
	DeadLetterSources bool
}

// patience is the timeout of waits, for a busy machine.
const patience = 2 * time.Minute

type suite struct {
	client *sqs.Client
	lacks  Lacks
	urls   map[string]string
}

// Behaves runs the tests against a client.
func Behaves(t *testing.T, client *sqs.Client, lacks Lacks) {
	s := &suite{client: client, lacks: lacks, urls: map[string]string{}}
	g := NewWithT(t)
	for _, name := range []string{"plain", "poll", "visibility", "batch", "dead"} {
		s.create(t, name, nil)
	}
	dead, err := client.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{
		QueueUrl: aws.String(s.urls["dead"]), AttributeNames: []types.QueueAttributeName{"QueueArn"},
	})
	g.Expect(err).NotTo(HaveOccurred())
	s.create(t, "redrive", map[string]string{
		"VisibilityTimeout": "1", "RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":"2"}`, dead.Attributes["QueueArn"]),
	})
	for name, test := range map[string]func(*suite, *testing.T){
		"Plain": (*suite).plain, "LongPoll": (*suite).longPoll, "Visibility": (*suite).visibility,
		"Batch": (*suite).batch, "Redrive": (*suite).redrive, "NoSuchQueue": (*suite).noSuchQueue,
	} {
		t.Run(name, func(t *testing.T) { test(s, t) })
	}
}

func (s *suite) create(t *testing.T, name string, attributes map[string]string) {
	t.Helper()
	all := map[string]string{"VisibilityTimeout": "30"}
	for key, value := range attributes {
		all[key] = value
	}
	out, err := s.client.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String("suite-" + name), Attributes: all})
	if err != nil {
		t.Fatal(err)
	}
	s.urls[name] = *out.QueueUrl
}

func (s *suite) send(t *testing.T, queue, body string) string {
	t.Helper()
	out, err := s.client.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: aws.String(s.urls[queue]), MessageBody: aws.String(body)})
	if err != nil {
		t.Fatal(err)
	}
	return *out.MessageId
}

func (s *suite) receive(ctx context.Context, t *testing.T, queue string, wait int32) []types.Message {
	t.Helper()
	out, err := s.client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: aws.String(s.urls[queue]), MaxNumberOfMessages: 10, WaitTimeSeconds: wait,
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.Messages
}

// A sent message is received once, unchanged, and can be deleted.
func (s *suite) plain(t *testing.T) {
	g := NewWithT(t)
	body := `{"text":"Ä <b> & \"q\"` + strings.Repeat("x", 100_000) + `"}`
	id := s.send(t, "plain", body)
	got := s.receive(t.Context(), t, "plain", 1)
	g.Expect(got).To(HaveLen(1))
	g.Expect(*got[0].MessageId).To(Equal(id))
	g.Expect(*got[0].Body).To(Equal(body))
	g.Expect(got[0].Attributes).To(HaveKey("SentTimestamp"))
	g.Expect(got[0].Attributes).To(HaveKeyWithValue("ApproximateReceiveCount", "1"))
	g.Expect(s.receive(t.Context(), t, "plain", 1)).To(BeEmpty(), "it is in flight")
	_, err := s.client.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: aws.String(s.urls["plain"]), ReceiptHandle: got[0].ReceiptHandle})
	g.Expect(err).NotTo(HaveOccurred())
	out, err := s.client.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{
		QueueUrl: aws.String(s.urls["plain"]), AttributeNames: []types.QueueAttributeName{"All"},
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out.Attributes).To(HaveKeyWithValue("ApproximateNumberOfMessages", "0"))
	g.Expect(out.Attributes).To(HaveKeyWithValue("ApproximateNumberOfMessagesNotVisible", "0"))
	url, err := s.client.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String("suite-plain")})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(*url.QueueUrl).To(Equal(s.urls["plain"]))
}

// A waiting receive gets a message as soon as it is sent.
func (s *suite) longPoll(t *testing.T) {
	g := NewWithT(t)
	got := make(chan []types.Message, 1)
	begun := time.Now()
	go func() { got <- s.receive(t.Context(), t, "poll", 20) }()
	g.Consistently(got, "300ms").ShouldNot(Receive())
	s.send(t, "poll", "now")
	var messages []types.Message
	g.Eventually(got, patience).Should(Receive(&messages))
	g.Expect(messages).To(HaveLen(1))
	g.Expect(time.Since(begun)).To(BeNumerically("<", 15*time.Second), "not only when the receive ends")
}

// A message that is not deleted is received again after its visibility timeout, also a
// changed one.
func (s *suite) visibility(t *testing.T) {
	g := NewWithT(t)
	s.send(t, "visibility", "again")
	change := func(m types.Message, seconds int32) {
		_, err := s.client.ChangeMessageVisibility(t.Context(), &sqs.ChangeMessageVisibilityInput{
			QueueUrl: aws.String(s.urls["visibility"]), ReceiptHandle: m.ReceiptHandle, VisibilityTimeout: seconds,
		})
		g.Expect(err).NotTo(HaveOccurred())
	}
	first := s.receive(t.Context(), t, "visibility", 1)
	g.Expect(first).To(HaveLen(1))
	change(first[0], 0)
	second := s.receive(t.Context(), t, "visibility", 5)
	g.Expect(second).To(HaveLen(1))
	if !s.lacks.ReceiveCount {
		g.Expect(second[0].Attributes).To(HaveKeyWithValue("ApproximateReceiveCount", "2"))
	}
	change(second[0], 2)
	g.Expect(s.receive(t.Context(), t, "visibility", 0)).To(BeEmpty())
	third := s.receive(t.Context(), t, "visibility", 10)
	g.Expect(third).To(HaveLen(1))
	if s.lacks.VisibilityBatch {
		return
	}
	out, err := s.client.ChangeMessageVisibilityBatch(t.Context(), &sqs.ChangeMessageVisibilityBatchInput{
		QueueUrl: aws.String(s.urls["visibility"]), Entries: []types.ChangeMessageVisibilityBatchRequestEntry{
			{Id: aws.String("a"), ReceiptHandle: third[0].ReceiptHandle, VisibilityTimeout: 0},
			{Id: aws.String("b"), ReceiptHandle: aws.String("nonsense"), VisibilityTimeout: 0},
		},
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out.Successful).To(HaveLen(1))
	g.Expect(out.Failed).To(HaveLen(1))
	g.Expect(*out.Failed[0].Id).To(Equal("b"))
	g.Expect(out.Failed[0].SenderFault).To(BeTrue())
}

// Batches of ten messages.
func (s *suite) batch(t *testing.T) {
	g := NewWithT(t)
	var entries []types.SendMessageBatchRequestEntry
	for i := range 10 {
		entries = append(entries, types.SendMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(i)), MessageBody: aws.String(fmt.Sprint("body ", i))})
	}
	sent, err := s.client.SendMessageBatch(t.Context(), &sqs.SendMessageBatchInput{QueueUrl: aws.String(s.urls["batch"]), Entries: entries})
	g.Expect(err).NotTo(HaveOccurred())
	if !s.lacks.SendBatchResult {
		g.Expect(sent.Successful).To(HaveLen(10))
	}
	seen := map[string]bool{}
	for len(seen) < 10 {
		got := s.receive(t.Context(), t, "batch", 1)
		g.Expect(got).NotTo(BeEmpty())
		var out []types.DeleteMessageBatchRequestEntry
		for i, m := range got {
			g.Expect(seen[*m.Body]).To(BeFalse())
			seen[*m.Body] = true
			out = append(out, types.DeleteMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(i)), ReceiptHandle: m.ReceiptHandle})
		}
		deleted, err := s.client.DeleteMessageBatch(t.Context(), &sqs.DeleteMessageBatchInput{QueueUrl: aws.String(s.urls["batch"]), Entries: out})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(deleted.Successful).To(HaveLen(len(out)))
	}
}

// A message that was received too often is moved to the dead-letter queue.
func (s *suite) redrive(t *testing.T) {
	g := NewWithT(t)
	s.send(t, "redrive", "poison")
	for range 2 {
		g.Eventually(func() []types.Message { return s.receive(t.Context(), t, "redrive", 2) }, patience).Should(HaveLen(1))
	}
	g.Eventually(func() []types.Message {
		s.receive(t.Context(), t, "redrive", 1)
		return s.receive(t.Context(), t, "dead", 1)
	}, patience).Should(ContainElement(HaveField("Body", HaveValue(Equal("poison")))))
	if s.lacks.DeadLetterSources {
		return
	}
	out, err := s.client.ListDeadLetterSourceQueues(t.Context(), &sqs.ListDeadLetterSourceQueuesInput{QueueUrl: aws.String(s.urls["dead"])})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out.QueueUrls).To(ConsistOf(s.urls["redrive"]))
}

// A queue that does not exist has its own error code, of the new or old protocol.
func (s *suite) noSuchQueue(t *testing.T) {
	g := NewWithT(t)
	_, err := s.client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: aws.String(s.urls["plain"] + "-not")})
	var api smithy.APIError
	g.Expect(err).To(BeAssignableToTypeOf(&smithy.OperationError{}))
	g.Expect(errors.As(err, &api)).To(BeTrue())
	g.Expect(api.ErrorCode()).To(BeElementOf("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue"))
}
