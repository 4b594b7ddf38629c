// Package queuetest has the tests of a queue.Consumer against an implementation of SQS:
// playground/aws/sqs, and goaws.
//
// Contract: Consumes uses the real clock and takes seconds; its subtests are parallel. It
// creates its queues before it reads any, and does not delete them.
package queuetest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"

	"github.com/capstan-hub/capstan/hub/instancestate/queue"
)

// Lacks names the missing features of an implementation.
type Lacks struct {
	// VisibilityBatch: there is no ChangeMessageVisibilityBatch, so that a message can be
	// neither extended nor released.
	VisibilityBatch bool
}

const (
	visibility = 5 * time.Second
	// patience is the timeout of waits, for a busy machine.
	patience = 2 * time.Minute
)

type suite struct {
	client *sqs.Client
	urls   map[string]string
}

// Consumes runs the tests against a client.
func Consumes(t *testing.T, client *sqs.Client, lacks Lacks) {
	s := &suite{client: client, urls: map[string]string{}}
	for _, name := range []string{"all", "again", "poison", "buried", "stop", "long"} {
		out, err := client.CreateQueue(t.Context(), &sqs.CreateQueueInput{
			QueueName: aws.String("consumer-" + name), Attributes: map[string]string{"VisibilityTimeout": "30"},
		})
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		s.urls[name] = *out.QueueUrl
	}
	t.Run("EveryMessageOnce", s.everyMessage)
	t.Run("NotAcknowledgedComesAgain", s.again)
	t.Run("MalformedIsBuried", s.malformed)
	t.Run("NoSuchQueue", s.noSuchQueue)
	if !lacks.VisibilityBatch {
		t.Run("StopReleases", s.stop)
		t.Run("LongWorkIsExtended", s.long)
	}
}

// Body of a state change of instance n.
func Body(n int) string {
	return fmt.Sprintf(`{"version":"0","id":"e-%d","detail-type":"EC2 Instance State-change Notification","source":"aws.ec2","account":"123456789012",`+
		`"time":"2026-01-10T10:00:00Z","region":"us-east-1","resources":[],"detail":{"instance-id":"i-%017x","state":"running"}}`, n, n)
}

func (s *suite) send(t *testing.T, name string, bodies ...string) {
	t.Helper()
	for begin := 0; begin < len(bodies); begin += 10 {
		var entries []types.SendMessageBatchRequestEntry
		for i, body := range bodies[begin:min(begin+10, len(bodies))] {
			entries = append(entries, types.SendMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(i)), MessageBody: aws.String(body)})
		}
		if _, err := s.client.SendMessageBatch(t.Context(), &sqs.SendMessageBatchInput{QueueUrl: aws.String(s.urls[name]), Entries: entries}); err != nil {
			t.Fatal(err)
		}
	}
}

// left returns how many messages a queue has: visible and in flight.
func (s *suite) left(t *testing.T, name string) func() string {
	return func() string {
		out, err := s.client.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{
			QueueUrl: aws.String(s.urls[name]), AttributeNames: []types.QueueAttributeName{"All"},
		})
		if err != nil {
			return err.Error()
		}
		return out.Attributes["ApproximateNumberOfMessages"] + "+" + out.Attributes["ApproximateNumberOfMessagesNotVisible"]
	}
}

// run a consumer; the returned function stops it and waits for its end.
func (s *suite) run(t *testing.T, url string, handler queue.Handler, edit func(*queue.Options)) (*queue.Consumer, func()) {
	o := queue.Options{
		Client: s.client, QueueURL: url, WaitTime: time.Second, VisibilityTimeout: visibility, PollersMin: 2, PollersMax: 4,
		Handler: handler, Clock: clock.RealClock{}, Log: logr.Discard(),
	}
	if edit != nil {
		edit(&o)
	}
	c := queue.New(o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Run(ctx)
	}()
	stop := sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(stop)
	return c, stop
}

// ledger counts deliveries, by event id.
type ledger struct {
	// mu guards seen.
	mu   sync.Mutex
	seen map[string]int
}

func (l *ledger) note(d *queue.Delivery) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen == nil {
		l.seen = map[string]int{}
	}
	l.seen[d.Event.ID]++
	return l.seen[d.Event.ID]
}

func (l *ledger) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.seen)
}

func (s *suite) everyMessage(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	const n = 300
	var bodies []string
	for i := range n {
		bodies = append(bodies, Body(i))
	}
	s.send(t, "all", bodies...)
	var seen ledger
	c, stop := s.run(t, s.urls["all"], func(_ context.Context, d *queue.Delivery) {
		seen.note(d)
		go d.Ack() // From another goroutine, as a worker does.
	}, nil)
	g.Eventually(seen.len, patience).Should(Equal(n))
	g.Eventually(s.left(t, "all"), patience).Should(Equal("0+0"))
	g.Expect(c.Status()).To(And(HaveField("Ready", true), HaveField("Class", queue.None)))
	g.Eventually(c.InFlight, patience).Should(BeZero())
	stop()
}

func (s *suite) again(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	s.send(t, "again", Body(1), Body(2))
	var seen ledger
	s.run(t, s.urls["again"], func(_ context.Context, d *queue.Delivery) {
		if times := seen.note(d); d.Event.ID == "e-2" || times == 2 {
			d.Ack()
			d.Ack()
			return
		}
		d.Retry()
		d.Ack() // Too late.
	}, nil)
	g.Eventually(s.left(t, "again"), patience).Should(Equal("0+0"))
	g.Expect(seen.seen).To(Equal(map[string]int{"e-1": 2, "e-2": 1}))
}

func (s *suite) malformed(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	s.send(t, "poison", "abcd", Body(1), Body(2), Body(3))
	var seen ledger
	s.run(t, s.urls["poison"], func(_ context.Context, d *queue.Delivery) {
		seen.note(d)
		d.Ack()
	}, func(o *queue.Options) { o.DeadLetterQueueURL = s.urls["buried"] })
	g.Eventually(s.left(t, "poison"), patience).Should(Equal("0+0"))
	g.Expect(seen.len()).To(Equal(3), "the others are not disturbed")
	out, err := s.client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: aws.String(s.urls["buried"]), MaxNumberOfMessages: 10, WaitTimeSeconds: 1})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out.Messages).To(HaveLen(1))
	g.Expect(*out.Messages[0].Body).To(Equal("abcd"))
}

func (s *suite) noSuchQueue(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	c, stop := s.run(t, strings.Replace(s.urls["all"], "consumer-all", "consumer-none", 1), func(context.Context, *queue.Delivery) {}, nil)
	g.Eventually(c.Status, patience).Should(HaveField("Class", queue.NoSuchQueue))
	g.Expect(c.Status().Message).To(ContainSubstring("create the queue"))
	stop()
}

func (s *suite) stop(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	s.send(t, "stop", Body(1), Body(2))
	handed := make(chan *queue.Delivery, 2)
	_, stop := s.run(t, s.urls["stop"], func(_ context.Context, d *queue.Delivery) { handed <- d }, func(o *queue.Options) { o.VisibilityTimeout = time.Hour })
	first, second := <-handed, <-handed
	first.Ack()
	stop()
	second.Ack() // After the end.
	g.Expect(s.left(t, "stop")()).To(Equal("1+0"), "it is visible to other readers at once")
}

func (s *suite) long(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	s.send(t, "long", Body(1))
	var seen ledger
	handed := make(chan *queue.Delivery, 10)
	s.run(t, s.urls["long"], func(_ context.Context, d *queue.Delivery) {
		seen.note(d)
		handed <- d
	}, nil)
	d := <-handed
	g.Consistently(s.left(t, "long"), "7s", "200ms").Should(Equal("0+1"), "it stays hidden longer than its visibility timeout")
	d.Ack()
	g.Eventually(s.left(t, "long"), patience).Should(Equal("0+0"))
	g.Expect(seen.seen).To(Equal(map[string]int{"e-1": 1}))
}
