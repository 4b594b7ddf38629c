package queue

import (
	"context"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

// API is what is called of SQS; *sqs.Client has it.
type API interface {
	GetQueueUrl(context.Context, *sqs.GetQueueUrlInput, ...func(*sqs.Options)) (*sqs.GetQueueUrlOutput, error)
	GetQueueAttributes(context.Context, *sqs.GetQueueAttributesInput, ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error)
	ReceiveMessage(context.Context, *sqs.ReceiveMessageInput, ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error)
	DeleteMessageBatch(context.Context, *sqs.DeleteMessageBatchInput, ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error)
	ChangeMessageVisibilityBatch(context.Context, *sqs.ChangeMessageVisibilityBatchInput, ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error)
	SendMessage(context.Context, *sqs.SendMessageInput, ...func(*sqs.Options)) (*sqs.SendMessageOutput, error)
}

// Handler takes a message. It is called by a poller, which reads on when it returns:
// to block is to slow the queue down.
type Handler func(ctx context.Context, d *Delivery)

const (
	// batchSize is the most that one call of SQS takes or gives.
	batchSize = 10
	// settlers are how many calls of one kind settle messages at a time: with ten
	// messages each, and 10 ms a call, four of them settle 4,000 messages a second.
	settlers = 4
	// DefaultWindow is how many messages may be received and not yet settled.
	DefaultWindow = 10_000
	// DefaultWindowBytes is how large they may be together. EventBridge's events are of 1
	// to 2 KB, those of Health larger.
	DefaultWindowBytes = 64 << 20
	// callTimeout of every call, beyond the time that a receive waits by itself.
	callTimeout = 15 * time.Second
	// stopTimeout of all that is done when Run ends; a pod has 30 s in all.
	stopTimeout = 5 * time.Second
	// receiveGrace is how long a receive may go on when Run ends. To cut it off while
	// messages are on their way would hide them from other readers for VisibilityTimeout;
	// with messages in the queue it is back within that time.
	receiveGrace = 500 * time.Millisecond
	// abortDelay is how long what is released waits for SQS to see that a receive was cut off:
	// else it would be handed to that receive, and be hidden.
	abortDelay = 200 * time.Millisecond
)

// Options of a Consumer.
type Options struct {
	Client API
	// QueueURL or, when it is empty, QueueName; Account owns the latter, when it is not
	// that of the credentials.
	QueueURL, QueueName, Account string
	// WaitTime of a receive, and VisibilityTimeout of what it gets; whole seconds.
	WaitTime, VisibilityTimeout time.Duration
	// PollersMin are always there; up to PollersMax while receives come back full.
	PollersMin, PollersMax int
	// DeadLetterQueueURL is where undecodable messages go when the queue has no redrive
	// policy; they are deleted when it is empty.
	DeadLetterQueueURL string
	// Window and WindowBytes; the defaults when 0.
	Window      int
	WindowBytes int64
	Handler     Handler
	// Observer may be nil.
	Observer Observer
	Clock    clock.WithTicker
	Log      logr.Logger
}

// Consumer of one queue.
type Consumer struct {
	Options
	deletes, changes *batcher
	pollers          sync.WaitGroup
	// reading ends a moment after the context of Run. It is set before the first poller.
	reading context.Context

	// mu guards the fields that follow, and what the Deliveries share.
	mu sync.Mutex
	// url of the queue, once it is known.
	url string
	// window holds what was received and is not settled.
	window map[*Delivery]struct{}
	bytes  int64
	// often is how many of them were received often, and grown that there may be many.
	manyReceives int
	startupOver  bool
	// reserved is room for what receives under way may bring.
	reserved int
	// room is closed, and made anew, when the window shrinks.
	room chan struct{}
	// stopped says that nothing more is settled.
	stopped bool
	status  Status
	// failures in a row.
	failures int
	redrive  redrive
}

// New Consumer. Run must be called, once.
func New(o Options) *Consumer {
	if o.Window == 0 {
		o.Window = DefaultWindow
	}
	o.Window = max(o.Window, batchSize)
	if o.WindowBytes == 0 {
		o.WindowBytes = DefaultWindowBytes
	}
	if o.Observer == nil {
		o.Observer = noObserver{}
	}
	c := &Consumer{Options: o, url: o.QueueURL, window: map[*Delivery]struct{}{}, room: make(chan struct{})}
	c.deletes = newBatcher(o.Clock, c.deleteBatch, c.settled)
	c.changes = newBatcher(o.Clock, c.changeBatch, c.settled)
	return c
}

// Run reads the queue until the context ends, and returns when everything has stopped.
func (c *Consumer) Run(ctx context.Context) {
	// What settles messages goes on for a while after the context has ended.
	calls, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	drain := make(chan struct{})
	var settling, watching sync.WaitGroup
	for range settlers {
		settling.Go(func() { c.deletes.work(calls, drain) })
		settling.Go(func() { c.changes.work(calls, drain) })
	}
	watching.Go(func() { c.extendVisibility(ctx) })
	watching.Go(func() { c.watchAttributes(ctx) })
	watching.Go(func() { c.endStartup(ctx) })
	reading, stopReading := context.WithCancel(calls)
	defer stopReading()
	c.reading = reading
	for range c.PollersMin {
		c.startPoller(ctx, false)
	}
	<-ctx.Done()
	late, cancel := context.WithTimeout(calls, stopTimeout)
	defer cancel()
	context.AfterFunc(late, end)
	grace, cancel := context.WithTimeout(calls, receiveGrace)
	defer cancel()
	context.AfterFunc(grace, stopReading)
	c.pollers.Wait()
	watching.Wait()
	if reading.Err() != nil {
		hung, cancel := context.WithTimeout(calls, abortDelay)
		defer cancel()
		<-hung.Done()
	}
	c.release()
	close(drain)
	settling.Wait()
}

// release to other readers what is not acknowledged.
func (c *Consumer) release() {
	c.mu.Lock()
	c.stopped = true
	var open []job
	for d := range c.window {
		if d.state == handed {
			d.state = settling
			open = append(open, job{d: d, last: true})
		}
	}
	c.mu.Unlock()
	c.changes.put(open...)
}
