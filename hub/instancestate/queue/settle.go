package queue

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// deleteBatch deletes messages.
func (c *Consumer) deleteBatch(ctx context.Context, jobs []job) []job {
	entries := make([]types.DeleteMessageBatchRequestEntry, len(jobs))
	for i, j := range jobs {
		entries[i] = types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: aws.String(j.d.receipt)}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	out, err := c.Client.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: aws.String(c.knownURL()), Entries: entries})
	if err != nil {
		c.Observer.Count(DeleteFailed, len(jobs))
		c.failed(actionDelete, err)
		return jobs
	}
	c.succeeded(actionDelete)
	c.Observer.Count(Deleted, len(out.Successful))
	c.Observer.Count(DeleteFailed, len(out.Failed))
	return failedOf(jobs, out.Failed)
}

// notDeleted delays the next delivery of messages that cannot be deleted, as after a Retry: with the
// visibility timeout alone, they would become dead letters within minutes.
func (c *Consumer) notDeleted(jobs []job) {
	for i := range jobs {
		jobs[i].tries, jobs[i].visibility = 0, retryAfter(jobs[i].d.Receives)
		c.returns(jobs[i].d, jobs[i].visibility)
	}
	c.changes.put(jobs...)
}

// changeBatch changes when messages become visible.
func (c *Consumer) changeBatch(ctx context.Context, jobs []job) []job {
	if jobs = c.stillDue(jobs); len(jobs) == 0 {
		return nil
	}
	entries := make([]types.ChangeMessageVisibilityBatchRequestEntry, len(jobs))
	for i, j := range jobs {
		entries[i] = types.ChangeMessageVisibilityBatchRequestEntry{
			Id: aws.String(strconv.Itoa(i)), ReceiptHandle: aws.String(j.d.receipt), VisibilityTimeout: int32(j.visibility / time.Second),
		}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	asked := c.Clock.Now()
	out, err := c.Client.ChangeMessageVisibilityBatch(ctx, &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: aws.String(c.knownURL()), Entries: entries})
	if err != nil {
		c.Observer.Count(ChangeFailed, len(jobs))
		c.failed(actionChange, err)
		return jobs
	}
	c.succeeded(actionChange)
	c.Observer.Count(ChangeFailed, len(out.Failed))
	failed := map[*Delivery]bool{}
	for _, f := range out.Failed {
		if i, err := strconv.Atoi(aws.ToString(f.Id)); err == nil && i < len(jobs) {
			failed[jobs[i].d] = f.SenderFault
		}
	}
	c.mu.Lock()
	for _, j := range jobs {
		if mine, bad := failed[j.d]; !bad {
			j.d.until = asked.Add(j.visibility)
		} else if mine {
			// The receipt is invalid, or twelve hours are over: SQS delivers the message again.
			j.d.fixed = true
		}
	}
	c.mu.Unlock()
	return failedOf(jobs, out.Failed)
}

// stillDue returns the jobs of a batch without the extensions of messages that are being settled: an
// extension that is late would undo the delay of a retry.
func (c *Consumer) stillDue(jobs []job) []job {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(jobs), func(j job) bool { return !j.last && j.d.state != handed })
}

// failedOf returns the jobs of a batch that may succeed when they are retried.
func failedOf(jobs []job, failed []types.BatchResultErrorEntry) []job {
	var again []job
	for _, f := range failed {
		if i, err := strconv.Atoi(aws.ToString(f.Id)); err == nil && i < len(jobs) && !f.SenderFault {
			again = append(again, jobs[i])
		}
	}
	return again
}

// extendVisibility extends the visibility of the messages in the window until the context
// ends.
func (c *Consumer) extendVisibility(ctx context.Context) {
	// A message is extended when half of its time is over. Four checks in that time leave a
	// quarter of it to retry a failed call.
	ticker := c.Clock.NewTicker(c.VisibilityTimeout / 4)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		now := c.Clock.Now()
		var due []job
		c.mu.Lock()
		for d := range c.window {
			if d.state == handed && !d.fixed && d.until.Sub(now) <= c.VisibilityTimeout/2 {
				// So the message is not extended again before the call has ended.
				d.until = now.Add(c.VisibilityTimeout)
				due = append(due, job{d: d, visibility: c.VisibilityTimeout})
			}
		}
		c.mu.Unlock()
		if len(due) > 0 {
			c.Observer.Count(Extended, len(due))
			c.changes.put(due...)
		}
	}
}
