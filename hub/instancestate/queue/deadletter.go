package queue

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

const (
	// attributesEvery is the interval at which the queue's attributes are read: for metrics,
	// and for the redrive policy, which rarely changes.
	attributesEvery = time.Minute
	// attributesRetry is the interval after a failed read.
	attributesRetry = 5 * time.Second
	// maxSample is the size of a sample of a malformed body, in bytes.
	maxSample = 256
)

// redrive is the known state of the queue's redrive policy.
type redrive struct {
	// known is set when the queue's attributes were read.
	known bool
	// arn of the dead-letter queue of the queue's redrive policy; empty without one.
	arn string
	// receives after which the policy moves a message there.
	receives int
	// url of that queue; empty until it is found.
	url string
}

// malformed dead-letters a message that cannot be decoded.
func (c *Consumer) malformed(ctx context.Context, d *Delivery, reason error, body string) {
	if d.Receives <= 1 {
		c.Observer.Malformed(reason, sample(body))
	}
	c.mu.Lock()
	redrive := c.redrive
	c.mu.Unlock()
	switch {
	case !redrive.known:
		// A retry loses nothing: the policy may be known by then.
		d.Retry()
	case redrive.arn != "" && d.Receives > redrive.receives:
		d.Retry() // The dead-letter queue does not accept it, for example because it was deleted.
	case redrive.arn != "":
		// SQS moves it after maxReceiveCount receives: make it visible at once.
		if d.settle() {
			if d.Receives <= 1 {
				c.Observer.Count(DeadLettered, 1)
			}
			c.changes.put(job{d: d, last: true})
		}
	case c.DeadLetterQueueURL != "":
		c.sendToDeadLetters(ctx, d, body)
	default:
		c.Observer.Count(Discarded, 1)
		d.Ack()
	}
}

// sendToDeadLetters sends a message to the configured queue and deletes it.
func (c *Consumer) sendToDeadLetters(ctx context.Context, d *Delivery, body string) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	in := &sqs.SendMessageInput{QueueUrl: aws.String(c.DeadLetterQueueURL), MessageBody: aws.String(body)}
	if _, err := c.Client.SendMessage(ctx, in); err != nil {
		c.failed(actionSend, err)
		d.Retry()
		return
	}
	c.succeeded(actionSend)
	c.Observer.Count(DeadLettered, 1)
	d.Ack()
}

// sample returns the begin of a body, cut between characters.
func sample(body string) string {
	if len(body) > maxSample {
		body = body[:maxSample]
	}
	return strings.ToValidUTF8(body, "")
}

// watchAttributes reads the attributes of the queue and of its dead-letter queue until the
// context ends.
func (c *Consumer) watchAttributes(ctx context.Context) {
	for ctx.Err() == nil {
		again := attributesEvery
		if !c.checkAttributes(ctx) {
			again = attributesRetry
		}
		timer := c.Clock.NewTimer(again)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// checkAttributes reads them once. It returns false when that failed.
func (c *Consumer) checkAttributes(ctx context.Context) bool {
	url, err := c.resolve(ctx)
	if err != nil {
		return false
	}
	attributes, err := c.attributes(ctx, url)
	if err != nil {
		c.failed(actionAttributes, err)
		return false
	}
	c.succeeded(actionAttributes)
	arn, receives := policyOf(attributes["RedrivePolicy"])
	c.mu.Lock()
	known := c.redrive
	c.mu.Unlock()
	found, dead := redrive{known: true, arn: arn, receives: receives}, c.DeadLetterQueueURL
	if arn != "" {
		if found.url = known.url; found.url == "" || known.arn != arn {
			found.url = c.deadLetterURL(ctx, arn)
		}
		dead = found.url
	}
	letters, counted := 0, false
	if dead != "" {
		if at, err := c.attributes(ctx, dead); err == nil {
			letters, counted = number(at["ApproximateNumberOfMessages"]), true
		}
	}
	c.mu.Lock()
	c.redrive = found
	c.mu.Unlock()
	c.change(func(s *Status) {
		s.Visible, s.NotVisible = number(attributes["ApproximateNumberOfMessages"]), number(attributes["ApproximateNumberOfMessagesNotVisible"])
		s.DeadLetters, s.HasDeadLetters = letters, counted
	})
	return true
}

func (c *Consumer) attributes(ctx context.Context, url string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	out, err := c.Client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: aws.String(url), AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
	})
	if err != nil {
		return nil, err
	}
	return out.Attributes, nil
}

// deadLetterURL returns the URL of a redrive policy's queue, which is in the same region;
// empty when it is not found.
func (c *Consumer) deadLetterURL(ctx context.Context, of string) string {
	named, err := arn.Parse(of)
	if err != nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	out, err := c.Client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String(named.Resource), QueueOwnerAWSAccountId: aws.String(named.AccountID)})
	if err != nil {
		return ""
	}
	return aws.ToString(out.QueueUrl)
}

// policyOf parses a redrive policy: the queue that gets messages, and after how many receives.
func policyOf(text string) (arn string, receives int) {
	var read struct {
		ARN string      `json:"deadLetterTargetArn"`
		Max json.Number `json:"maxReceiveCount"` // A number, or one in quotes.
	}
	if json.Unmarshal([]byte(text), &read) != nil {
		return "", 0
	}
	return read.ARN, number(read.Max.String())
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n
}
