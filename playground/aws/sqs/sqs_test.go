package sqs_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	api "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/sqs"
	"github.com/capstan-hub/capstan/playground/aws/sqs/sqstest"
	"github.com/capstan-hub/capstan/playground/leaks"
)

const region = "eu-west-1"

func TestMain(m *testing.M) {
	SetDefaultEventuallyTimeout(2 * time.Minute) // A machine may be busy.
	os.Exit(m.Run())
}

type world struct {
	*aws.Server
	*api.Client
	sqs *sqs.Service
}

func start(t testing.TB, c clock.Clock) *world {
	t.Helper()
	leaks.AtEnd(t)
	w := &world{sqs: sqs.New(sqs.Options{Clock: c, Seed: 1})}
	var err error
	if w.Server, err = aws.Start(aws.Options{Services: []aws.Service{w.sqs}, Clock: c}); err != nil {
		t.Fatal(err)
	}
	config, closeConnections := w.Config(aws.Root(), region)
	w.Client = api.NewFromConfig(config)
	t.Cleanup(func() {
		w.Stop()
		closeConnections()
	})
	return w
}

// queue of a name, with attributes: name, value, name, value.
func (w *world) queue(t testing.TB, name string, attributes ...string) string {
	t.Helper()
	in := &api.CreateQueueInput{QueueName: sdk.String(name), Attributes: map[string]string{}}
	for i := 0; i < len(attributes); i += 2 {
		in.Attributes[attributes[i]] = attributes[i+1]
	}
	out, err := w.CreateQueue(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return *out.QueueUrl
}

func (w *world) receive(t testing.TB, url string) []types.Message {
	t.Helper()
	out, err := w.ReceiveMessage(t.Context(), &api.ReceiveMessageInput{
		QueueUrl: sdk.String(url), MaxNumberOfMessages: 10, MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.Messages
}

func codeOf(err error) string {
	var e smithy.APIError
	if errors.As(err, &e) {
		return e.ErrorCode()
	}
	return ""
}

func TestBehaves(t *testing.T) {
	sqstest.Behaves(t, start(t, clock.RealClock{}).Client, sqstest.Lacks{})
}

// All times use the clock: visibility, delay, long polls, retention, age.
func TestClock(t *testing.T) {
	g := NewWithT(t)
	c := testclock.NewFakeClock(time.Now())
	w := start(t, c)
	url := w.queue(t, "q", "VisibilityTimeout", "60", "DelaySeconds", "5", "MessageRetentionPeriod", "120")
	g.Expect(w.sqs.Put(region, "q", "a")).To(BeNil())
	g.Expect(w.receive(t, url)).To(BeEmpty())
	got := make(chan int, 1)
	go func() {
		out, err := w.ReceiveMessage(t.Context(), &api.ReceiveMessageInput{QueueUrl: sdk.String(url), WaitTimeSeconds: 20})
		if err == nil {
			got <- len(out.Messages)
		}
	}()
	g.Eventually(c.HasWaiters).Should(BeTrue())
	g.Expect(w.sqs.Stats(region, "q").Delayed).To(Equal(1))
	c.Step(5 * time.Second)
	g.Eventually(got).Should(Receive(Equal(1)))
	g.Expect(w.receive(t, url)).To(BeEmpty())
	c.Step(59 * time.Second)
	g.Expect(w.receive(t, url)).To(BeEmpty())
	g.Expect(w.sqs.Stats(region, "q").InFlight).To(Equal(1))
	c.Step(time.Second)
	again := w.receive(t, url)
	g.Expect(again).To(HaveLen(1))
	g.Expect(again[0].Attributes).To(HaveKeyWithValue("ApproximateReceiveCount", "2"))
	g.Expect(w.sqs.Stats(region, "q").Oldest).To(Equal(65 * time.Second))
	c.Step(61 * time.Second)
	g.Expect(w.receive(t, url)).To(BeEmpty(), "it is older than the queue keeps messages")
	g.Expect(w.sqs.Stats(region, "q").Expired).To(Equal(1))
}

// Only the newest receipt of a message deletes it.
func TestReceipts(t *testing.T) {
	g := NewWithT(t)
	c := testclock.NewFakeClock(time.Now())
	w := start(t, c)
	url := w.queue(t, "q", "VisibilityTimeout", "1")
	g.Expect(w.sqs.Put(region, "q", "a")).To(BeNil())
	first := w.receive(t, url)
	c.Step(time.Second)
	second := w.receive(t, url)
	remove := func(receipt *string) error {
		_, err := w.DeleteMessage(t.Context(), &api.DeleteMessageInput{QueueUrl: sdk.String(url), ReceiptHandle: receipt})
		return err
	}
	g.Expect(remove(first[0].ReceiptHandle)).To(Succeed())
	g.Expect(w.sqs.Stats(region, "q").InFlight).To(Equal(1), "an old receipt deletes nothing, and says nothing")
	g.Expect(remove(second[0].ReceiptHandle)).To(Succeed())
	g.Expect(w.sqs.Bodies(region, "q")).To(BeEmpty())
	g.Expect(remove(second[0].ReceiptHandle)).To(Succeed(), "deleting is idempotent")
	g.Expect(codeOf(remove(sdk.String("x")))).To(Equal("ReceiptHandleIsInvalid"))
	_, err := w.ChangeMessageVisibility(t.Context(), &api.ChangeMessageVisibilityInput{QueueUrl: sdk.String(url), ReceiptHandle: second[0].ReceiptHandle})
	g.Expect(codeOf(err)).To(Equal("InvalidParameterValue"))
}

// Invalid requests are rejected as by AWS, with the same codes and types.
func TestRefusals(t *testing.T) {
	g := NewWithT(t)
	w := start(t, nil)
	url := w.queue(t, "q", "MaximumMessageSize", "1024")
	_, err := w.ReceiveMessage(t.Context(), &api.ReceiveMessageInput{QueueUrl: sdk.String(w.URL() + "/1/no")})
	var missing *types.QueueDoesNotExist
	g.Expect(errors.As(err, &missing)).To(BeTrue(), "%v", err)
	_, err = w.ReceiveMessage(t.Context(), &api.ReceiveMessageInput{QueueUrl: sdk.String(url), MaxNumberOfMessages: 11})
	g.Expect(codeOf(err)).To(Equal("InvalidParameterValue"))
	send := func(body string) string {
		_, err := w.SendMessage(t.Context(), &api.SendMessageInput{QueueUrl: sdk.String(url), MessageBody: sdk.String(body)})
		return codeOf(err)
	}
	g.Expect(send(strings.Repeat("x", 1025))).To(Equal("InvalidParameterValue"))
	g.Expect(send("a\x01")).To(Equal("InvalidMessageContents"))
	for _, attributes := range []map[string]string{
		{"Colour": "red"}, {"VisibilityTimeout": "43201"}, {"RedrivePolicy": `{"deadLetterTargetArn":"arn:aws:sqs:eu-west-1:1:no","maxReceiveCount":3}`},
	} {
		_, err = w.SetQueueAttributes(t.Context(), &api.SetQueueAttributesInput{QueueUrl: sdk.String(url), Attributes: attributes})
		g.Expect(codeOf(err)).To(HavePrefix("InvalidAttribute"))
	}
	_, err = w.CreateQueue(t.Context(), &api.CreateQueueInput{QueueName: sdk.String("q.fifo")})
	g.Expect(codeOf(err)).To(Equal("InvalidParameterValue"))
	_, err = w.CreateQueue(t.Context(), &api.CreateQueueInput{QueueName: sdk.String("q"), Attributes: map[string]string{"MaximumMessageSize": "2048"}})
	var exists *types.QueueNameExists
	g.Expect(errors.As(err, &exists)).To(BeTrue(), "%v", err)
	_, err = w.DeleteMessageBatch(t.Context(), &api.DeleteMessageBatchInput{QueueUrl: sdk.String(url), Entries: []types.DeleteMessageBatchRequestEntry{
		{Id: sdk.String("a"), ReceiptHandle: sdk.String("x")}, {Id: sdk.String("a"), ReceiptHandle: sdk.String("x")},
	}})
	var twice *types.BatchEntryIdsNotDistinct
	g.Expect(errors.As(err, &twice)).To(BeTrue(), "%v", err)

	for fault, code := range map[*aws.Fault]string{
		sqs.Throttled: "RequestThrottled", sqs.Denied: "AccessDenied", sqs.Expired: "ExpiredToken", sqs.Missing: "AWS.SimpleQueueService.NonExistentQueue",
		&aws.InternalError: "InternalFailure", &aws.AuthFailure: "InvalidClientTokenId",
	} {
		w.sqs.SetFaults(region, "q", sqs.Faults{Refuse: fault, RefuseRate: 1})
		_, err = w.ReceiveMessage(t.Context(), &api.ReceiveMessageInput{QueueUrl: sdk.String(url)})
		g.Expect(codeOf(err)).To(Or(Equal(code), Equal(strings.TrimPrefix(code, "AWS.SimpleQueueService.")), Equal("QueueDoesNotExist")), fault.Code)
	}
}

// A queue that is deleted ends the polls that wait for it.
func TestQueueIsDeletedUnderAPoll(t *testing.T) {
	g := NewWithT(t)
	w := start(t, nil)
	url := w.queue(t, "q")
	done := make(chan error, 1)
	go func() {
		_, err := w.ReceiveMessage(t.Context(), &api.ReceiveMessageInput{QueueUrl: sdk.String(url), WaitTimeSeconds: 20})
		done <- err
	}()
	g.Eventually(func() int { return w.UnderWay(aws.Match{Action: "ReceiveMessage"}) }).Should(Equal(1))
	_, err := w.DeleteQueue(t.Context(), &api.DeleteQueueInput{QueueUrl: sdk.String(url)})
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(done).Should(Receive(HaveOccurred()))
}

// Attributes of messages are unchanged, and the SDK accepts their sums.
func TestMessageAttributes(t *testing.T) {
	g := NewWithT(t)
	w := start(t, nil)
	url := w.queue(t, "q")
	given := map[string]types.MessageAttributeValue{
		"b": {DataType: sdk.String("Binary"), BinaryValue: []byte{0, 1}}, "a": {DataType: sdk.String("String"), StringValue: sdk.String("x")},
	}
	out, err := w.SendMessage(t.Context(), &api.SendMessageInput{QueueUrl: sdk.String(url), MessageBody: sdk.String("m"), MessageAttributes: given})
	g.Expect(err).NotTo(HaveOccurred())
	// The result of AWS' documented algorithm for these two, computed by hand:
	// md5 of 00000001 61 00000006 "String" 01 00000001 78 00000001 62 00000006 "Binary" 02 00000002 0001.
	g.Expect(*out.MD5OfMessageAttributes).To(Equal("fa20e2def088daf7b14bc51e836c5547"))
	got, err := w.ReceiveMessage(t.Context(), &api.ReceiveMessageInput{QueueUrl: sdk.String(url), MessageAttributeNames: []string{"All"}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got.Messages[0].MessageAttributes).To(HaveLen(2))
	g.Expect(*got.Messages[0].MessageAttributes["a"].StringValue).To(Equal("x"))
}

// Each fault has its documented effect, and no other.
func TestFaults(t *testing.T) {
	for name, c := range map[string]struct {
		faults sqs.Faults
		check  func(g *WithT, w *world, url string)
	}{
		"drop": {sqs.Faults{Drop: 1}, func(g *WithT, w *world, _ string) {
			g.Expect(w.sqs.Bodies(region, "q")).To(BeEmpty())
			g.Expect(w.sqs.Stats(region, "q").Dropped).To(Equal(20))
		}},
		"delay": {sqs.Faults{Delay: time.Minute}, func(g *WithT, w *world, _ string) {
			g.Expect(w.sqs.Stats(region, "q").Delayed).To(Equal(20))
		}},
		"duplicate": {sqs.Faults{Duplicate: 1}, func(g *WithT, w *world, url string) {
			for range 3 {
				g.Expect(w.receive(t, url)).To(HaveLen(10))
			}
			g.Expect(w.sqs.Stats(region, "q").Visible).To(Equal(20))
		}},
		"reorder": {sqs.Faults{Reorder: true}, func(g *WithT, w *world, url string) {
			var bodies []string
			for _, m := range w.receive(t, url) {
				bodies = append(bodies, *m.Body)
			}
			g.Expect(bodies).NotTo(Equal([]string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}))
		}},
		"lose receive": {sqs.Faults{LoseReceive: 1}, func(g *WithT, w *world, url string) {
			_, err := w.ReceiveMessage(t.Context(), &api.ReceiveMessageInput{QueueUrl: sdk.String(url), MaxNumberOfMessages: 10})
			g.Expect(codeOf(err)).To(Equal("InternalFailure"))
			g.Expect(w.sqs.Stats(region, "q").InFlight).To(Equal(10))
		}},
		"forget delete and fail entries": {sqs.Faults{ForgetDelete: 1, FailEntry: 0.5}, func(g *WithT, w *world, url string) {
			var entries []types.DeleteMessageBatchRequestEntry
			for i, m := range w.receive(t, url) {
				entries = append(entries, types.DeleteMessageBatchRequestEntry{Id: sdk.String(fmt.Sprint(i)), ReceiptHandle: m.ReceiptHandle})
			}
			out, err := w.DeleteMessageBatch(t.Context(), &api.DeleteMessageBatchInput{QueueUrl: sdk.String(url), Entries: entries})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(out.Failed).NotTo(BeEmpty())
			g.Expect(out.Successful).NotTo(BeEmpty())
			g.Expect(len(out.Failed) + len(out.Successful)).To(Equal(10))
			g.Expect(w.sqs.Bodies(region, "q")).To(HaveLen(20))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := start(t, nil)
			url := w.queue(t, "q")
			w.sqs.SetFaults(region, "q", c.faults)
			for i := range 20 {
				g.Expect(w.sqs.Put(region, "q", fmt.Sprint(i))).To(BeNil())
			}
			c.check(g, w, url)
		})
	}
}

// Eight readers process fifteen thousand messages in seconds, each message once.
func TestManyMessages(t *testing.T) {
	g := NewWithT(t)
	w := start(t, nil)
	url := w.queue(t, "q")
	const n = 15_000
	for i := range n {
		g.Expect(w.sqs.Put(region, "q", fmt.Sprint(i))).To(BeNil())
	}
	var mu sync.Mutex
	seen := map[string]bool{}
	var readers sync.WaitGroup
	begun := time.Now()
	for range 8 {
		readers.Go(func() {
			for {
				got := w.receive(t, url)
				if len(got) == 0 {
					return
				}
				var entries []types.DeleteMessageBatchRequestEntry
				mu.Lock()
				for i, m := range got {
					seen[*m.Body] = true
					entries = append(entries, types.DeleteMessageBatchRequestEntry{Id: sdk.String(fmt.Sprint(i)), ReceiptHandle: m.ReceiptHandle})
				}
				mu.Unlock()
				if _, err := w.DeleteMessageBatch(t.Context(), &api.DeleteMessageBatchInput{QueueUrl: sdk.String(url), Entries: entries}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	readers.Wait()
	t.Logf("%d messages in %s", n, time.Since(begun))
	g.Expect(seen).To(HaveLen(n))
	g.Expect(w.sqs.Stats(region, "q")).To(And(HaveField("Deleted", n), HaveField("Received", n), HaveField("InFlight", 0)))
}
