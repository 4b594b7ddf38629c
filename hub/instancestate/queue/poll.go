package queue

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/capstan-hub/capstan/hub/instancestate/message"
	"github.com/capstan-hub/capstan/internal/backoff"
)

const (
	// firstBackoff and lastBackoff bound the delay after a failed receive. A spot notice is
	// valid for two minutes: a queue that recovers is read again within that time.
	firstBackoff = time.Second
	lastBackoff  = 30 * time.Second
)

// startPoller starts a poller, unless PollersMax run. An extra one ends when the queue is
// empty.
func (c *Consumer) startPoller(ctx context.Context, extra bool) {
	c.mu.Lock()
	full := c.status.Pollers >= max(c.PollersMax, c.PollersMin) || ctx.Err() != nil
	if !full {
		c.status.Pollers++
	}
	c.mu.Unlock()
	if full {
		return
	}
	c.pollers.Go(func() {
		defer func() {
			c.mu.Lock()
			c.status.Pollers--
			c.mu.Unlock()
		}()
		c.poll(ctx, extra)
	})
}

func (c *Consumer) poll(ctx context.Context, extra bool) {
	// The first receive does not wait, so that the status shows at once whether it succeeds.
	wait, retry := time.Duration(0), backoff.Sequence{Policy: backoff.Policy{First: firstBackoff, Max: lastBackoff}}
	for c.waitForRoom(ctx) {
		n, err := c.receive(ctx, wait)
		switch {
		case ctx.Err() != nil || extra && (err != nil || n == 0):
			return
		case err != nil:
			timer := c.Clock.NewTimer(retry.Wait())
			select {
			case <-timer.C():
			case <-ctx.Done():
				timer.Stop()
			}
		default:
			wait = c.WaitTime
			retry.Reset()
			if n == batchSize {
				c.startPoller(ctx, true)
			}
		}
	}
}

// receive receives messages and passes them to the Handler.
func (c *Consumer) receive(ctx context.Context, wait time.Duration) (int, error) {
	messages, err := c.fetch(wait)
	// The visibility of messages in the window is extended: so all are entered before the
	// first is handled.
	given := make([]*Delivery, len(messages))
	for i := range messages {
		given[i] = c.delivery(&messages[i])
		given[i].More = len(messages) == batchSize
	}
	c.received()
	if ctx.Err() != nil {
		return 0, ctx.Err() // They are released with the others.
	}
	for i, d := range given {
		c.handle(ctx, d, aws.ToString(messages[i].Body))
	}
	return len(messages), err
}

// longestWait of a receive: the maximum of SQS.
const longestWait = 20 * time.Second

// fetch calls SQS for messages.
func (c *Consumer) fetch(wait time.Duration) ([]types.Message, error) {
	url, err := c.resolve(c.reading)
	if c.reading.Err() != nil {
		return nil, c.reading.Err()
	}
	if err != nil {
		c.failed(actionURL, err)
		return nil, err
	}
	if c.Claim != nil {
		if err := c.Claim(); err != nil {
			c.failed(actionClaim, err)
			return nil, err
		}
	}
	limit := wait
	if wait == 0 {
		// The SDK does not send 0, and SQS then waits for as long as the queue's own attribute says.
		limit = longestWait
	}
	call, cancel := context.WithTimeout(c.reading, limit+callTimeout)
	defer cancel()
	asked := c.Clock.Now()
	out, err := c.Client.ReceiveMessage(call, &sqs.ReceiveMessageInput{
		QueueUrl: aws.String(url), MaxNumberOfMessages: batchSize,
		WaitTimeSeconds: int32(wait / time.Second), VisibilityTimeout: int32(c.VisibilityTimeout / time.Second),
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{
			types.MessageSystemAttributeNameSentTimestamp, types.MessageSystemAttributeNameApproximateReceiveCount,
		},
	})
	if c.reading.Err() != nil {
		return nil, c.reading.Err()
	}
	if err != nil {
		if ClassOf(err) == NoSuchQueue {
			c.forgetURL()
		}
		c.failed(actionReceive, err)
		return nil, err
	}
	c.receiveSucceeded(asked)
	if len(out.Messages) > 0 {
		c.Observer.Count(Received, len(out.Messages))
	}
	return out.Messages, nil
}

// delivery returns the Delivery of a received message, in the window.
func (c *Consumer) delivery(m *types.Message) *Delivery {
	now := c.Clock.Now()
	d := &Delivery{
		MessageID: aws.ToString(m.MessageId), Sent: now, Received: now, Receives: 1,
		consumer: c, receipt: aws.ToString(m.ReceiptHandle), until: now.Add(c.VisibilityTimeout),
	}
	if millis, err := strconv.ParseInt(m.Attributes["SentTimestamp"], 10, 64); err == nil {
		d.Sent = time.UnixMilli(millis)
	}
	if n, err := strconv.Atoi(m.Attributes["ApproximateReceiveCount"]); err == nil {
		d.Receives = n
	}
	d.size = int64(len(aws.ToString(m.Body)))
	c.enter(d)
	c.Observer.Waited(now.Sub(d.Sent))
	return d
}

// handle decodes a message and passes it to the Handler, or dead-letters it. A panic of the
// decoder or the Handler causes a Retry.
func (c *Consumer) handle(ctx context.Context, d *Delivery, body string) {
	defer func() {
		if r := recover(); r != nil {
			c.Observer.Count(Panicked, 1)
			c.Log.Error(fmt.Errorf("panic: %v", r), "Handling a message failed; SQS delivers it again", "messageID", d.MessageID)
			d.Retry()
		}
	}()
	read, err := message.Decode([]byte(body), d.Sent)
	if err != nil {
		c.malformed(ctx, d, err, body)
		return
	}
	d.Message = read
	c.Handler(ctx, d)
}

// resolve returns the queue's URL.
func (c *Consumer) resolve(ctx context.Context) (string, error) {
	if url := c.knownURL(); url != "" {
		return url, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	in := &sqs.GetQueueUrlInput{QueueName: aws.String(c.QueueName)}
	if c.Account != "" {
		in.QueueOwnerAWSAccountId = aws.String(c.Account)
	}
	out, err := c.Client.GetQueueUrl(ctx, in)
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.url = aws.ToString(out.QueueUrl)
	return c.url, nil
}

// URL returns the URL of the queue; empty until it is known. asked is false until the first
// attempt to find it has ended.
func (c *Consumer) URL() (url string, asked bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, failed := c.faults[actionURL]
	return c.url, failed || c.url != ""
}

func (c *Consumer) knownURL() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.url
}

// forgetURL forgets the URL of a queue that was found by name and was deleted.
func (c *Consumer) forgetURL() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.url = c.QueueURL
}
