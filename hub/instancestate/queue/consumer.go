package queue

import (
	"context"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

// API has the operations of SQS that a Consumer calls; *sqs.Client implements it.
type API interface {
	GetQueueUrl(context.Context, *sqs.GetQueueUrlInput, ...func(*sqs.Options)) (*sqs.GetQueueUrlOutput, error)
	GetQueueAttributes(context.Context, *sqs.GetQueueAttributesInput, ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error)
	ReceiveMessage(context.Context, *sqs.ReceiveMessageInput, ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error)
	DeleteMessageBatch(context.Context, *sqs.DeleteMessageBatchInput, ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error)
	ChangeMessageVisibilityBatch(context.Context, *sqs.ChangeMessageVisibilityBatchInput, ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error)
	SendMessage(context.Context, *sqs.SendMessageInput, ...func(*sqs.Options)) (*sqs.SendMessageOutput, error)
}

// Handler gets a message. A poller calls it, and continues to read when it returns. A
// Handler that blocks delays the queue.
type Handler func(ctx context.Context, d *Delivery)

const (
	// batchSize is the largest number of messages in one call of SQS.
	batchSize = 10
	// settlers is how many calls of one kind settle messages at the same time: with ten
	// messages each, and 10 ms a call, four of them settle 4,000 messages a second.
	settlers = 4
	// DefaultWindow is how many messages may be received and not yet settled.
	DefaultWindow = 10_000
	// DefaultWindowBytes is the total size of their bodies. Events of EventBridge have 1 to
	// 2 KB, those of AWS Health more.
	DefaultWindowBytes = 64 << 20
	// callTimeout of every call, in addition to the wait time of a receive.
	callTimeout = 15 * time.Second
	// stopTimeout of everything that Run does at its end. A pod has 30 s to stop.
	stopTimeout = 5 * time.Second
	// receiveGrace is how long a receive may continue when Run ends. If it were canceled while
	// SQS sends messages, these would be hidden from other readers for VisibilityTimeout. A
	// receive of a queue with messages ends within this time.
	receiveGrace = 500 * time.Millisecond
	// abortDelay is the delay between a canceled receive and the release of messages. It lets
	// SQS detect the end of the connection, or it would deliver them to that receive, hidden.
	abortDelay = 200 * time.Millisecond
)

// Options of a Consumer.
type Options struct {
	Client API
	// QueueURL or, when it is empty, QueueName. Account owns the queue of that name; empty for
	// the account of the credentials.
	QueueURL, QueueName, Account string
	// WaitTime of a receive, and VisibilityTimeout of its messages; whole seconds.
	WaitTime, VisibilityTimeout time.Duration
	// PollersMin always run; up to PollersMax run while receives are full.
	PollersMin, PollersMax int
	// DeadLetterQueueURL gets the messages that cannot be decoded when the queue has no
	// redrive policy. They are deleted when it is empty.
	DeadLetterQueueURL string
	// Window and WindowBytes; the defaults when 0.
	Window      int
	WindowBytes int64
	Handler     Handler
	// Claim is called before each receive, when the URL of the queue is known; nil when not
	// needed. An error, such as ErrShared, prevents the receive. It must not block.
	Claim func() error
	// Observer may be nil.
	Observer Observer
	Clock    clock.WithTicker
	Log      logr.Logger
}

// Consumer reads one queue.
type Consumer struct {
	Options
	deletes, changes *batcher
	pollers          sync.WaitGroup
	// reading ends up to receiveGrace after the context of Run. It is set before the first
	// poller starts.
	reading context.Context

	// mu guards the fields that follow, and what the Deliveries share.
	mu sync.Mutex
	// url of the queue; empty until it is known.
	url string
	// window has the messages that were received and are not settled.
	window map[*Delivery]struct{}
	bytes  int64
	// manyReceives is how many of them were received manyReceives times or more. startupOver
	// is set when their number is no longer limited.
	manyReceives int
	startupOver  bool
	// returned are the messages that were returned to the queue, by id.
	returned map[string]returned
	// purged is when those that are not expected any more were last removed.
	purged time.Time
	// reserved is the room for the messages of receives in progress.
	reserved int
	// room is closed and replaced when the window shrinks.
	room chan struct{}
	// stopped is set when Ack, Retry and Release have no effect any more.
	stopped bool
	status  Status
	// faults by action, each since the last success of the action.
	faults  map[string]fault
	redrive redrive
}

// New returns a Consumer. The caller must call Run once.
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
	c := &Consumer{Options: o, url: o.QueueURL, window: map[*Delivery]struct{}{}, faults: map[string]fault{}, returned: map[string]returned{}, room: make(chan struct{})}
	c.deletes = newBatcher(o.Clock, c.deleteBatch, c.settled, c.notDeleted)
	c.changes = newBatcher(o.Clock, c.changeBatch, c.settled, c.settled)
	return c
}

// Run reads the queue until the context ends, and returns when everything has stopped.
func (c *Consumer) Run(ctx context.Context) {
	// Calls that settle messages continue for up to stopTimeout after the context has ended.
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

// release makes the messages that are not acknowledged visible to other readers.
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
