package queue

import (
	"time"

	"github.com/capstan-hub/capstan/hub/instancestate/message"
	"github.com/capstan-hub/capstan/internal/backoff"
)

// Delivery is a received message that could be decoded.
type Delivery struct {
	message.Message
	// MessageID of SQS.
	MessageID string
	// Sent is when SQS received the message, and Received when the Consumer received it.
	Sent, Received time.Time
	// Receives is how often the message was received so far, including this time.
	Receives int
	// More is set when its receive was full: the queue has more messages.
	More bool

	consumer *Consumer
	receipt  string
	size     int64
	// Consumer.mu protects the fields that follow.
	state settlement
	// until is when it becomes visible to other readers.
	until time.Time
	// fixed is set when its visibility can no longer be extended.
	fixed bool
}

// settlement is the state of a Delivery.
type settlement int

const (
	// handed: the Handler has it.
	handed settlement = iota
	// settling: Ack, Retry or Release was called.
	settling
)

// Ack deletes the message: all of its facts are processed. Only the first call of Ack,
// Retry or Release has an effect.
func (d *Delivery) Ack() {
	if d.settle() {
		d.consumer.deletes.put(job{d: d, last: true})
	}
}

// Retry makes SQS deliver the message again, after a delay that grows with Receives.
func (d *Delivery) Retry() { d.giveBack(Retried, retryAfter(d.Receives)) }

// Release makes SQS deliver the message again to any reader, as this reader cannot handle
// it. The first deliveries have no delay but atLeast, in whole seconds, during which no reader
// can handle it. Then the delay grows with Receives, in case no reader can handle it at all.
func (d *Delivery) Release(atLeast time.Duration) {
	d.giveBack(Released, max(atLeast, releaseAfter(d.Receives)))
}

// giveBack makes the message visible to all readers after a delay.
func (d *Delivery) giveBack(as Count, after time.Duration) {
	if d.settle() {
		d.consumer.Observer.Count(as, 1)
		d.consumer.returns(d, after)
		d.consumer.changes.put(job{d: d, visibility: after, last: true})
	}
}

// settle begins to settle the message. It returns false if that has begun before.
func (d *Delivery) settle() bool {
	d.consumer.mu.Lock()
	defer d.consumer.mu.Unlock()
	if d.state != handed || d.consumer.stopped {
		return false
	}
	d.state = settling
	return true
}

const (
	// firstRetry doubles with every receive, up to lastRetry. Most outages of the API server
	// end within minutes, and a notice of two minutes must not be delayed longer than that.
	// With both, twenty receives take more than three hours. A queue with the recommended
	// settings dead-letters a message after that number.
	firstRetry = 5 * time.Second
	lastRetry  = 15 * time.Minute
	// releasedAtOnce is the number of receives after which a released message is visible
	// without a delay. With two readers that receive at random, the other one has it by then
	// in seven of eight cases. Then firstRelease doubles with every receive up to lastRetry,
	// so that a message that is released for a quarter of an hour takes 13 receives.
	releasedAtOnce = 3
	firstRelease   = time.Second
)

// retryAfter is how long a message that was received n times stays hidden after a failure.
func retryAfter(n int) time.Duration {
	return backoff.Policy{First: firstRetry, Max: lastRetry}.Doubled(int64(n - 1))
}

// releaseAfter is how long a message that was received n times stays hidden from all
// readers after its reader returns it.
func releaseAfter(n int) time.Duration {
	if n <= releasedAtOnce {
		return 0
	}
	return backoff.Policy{First: firstRelease, Max: lastRetry}.Doubled(int64(n - releasedAtOnce - 1))
}
