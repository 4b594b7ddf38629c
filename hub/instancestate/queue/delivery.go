package queue

import (
	"time"

	"github.com/capstan-hub/capstan/hub/instancestate/message"
	"github.com/capstan-hub/capstan/internal/backoff"
)

// Delivery of a message that could be decoded.
type Delivery struct {
	message.Message
	// MessageID of SQS.
	MessageID string
	// Sent is when SQS got the message, and Received when it was received here.
	Sent, Received time.Time
	// Receives is how often it was received so far, this time included.
	Receives int
	// More says that the receive that brought it was full: there is more to be read.
	More bool

	consumer *Consumer
	receipt  string
	size     int64
	// The rest is guarded by Consumer.mu.
	state settlement
	// until is when it becomes visible to others.
	until time.Time
	// fixed says that its visibility can be extended no more.
	fixed bool
}

// settlement is how far a Delivery has come.
type settlement int

const (
	// handed: the Handler has it.
	handed settlement = iota
	// settling: it was acknowledged, or is to come again.
	settling
)

// Ack has the message deleted: all that it says is done. Only the first Ack, Retry or
// Release of a Delivery counts.
func (d *Delivery) Ack() {
	if d.settle() {
		d.consumer.deletes.put(job{d: d, last: true})
	}
}

// Retry has the message come again, after a time that grows with Receives.
func (d *Delivery) Retry() {
	if d.settle() {
		d.consumer.Observer.Count(Retried, 1)
		d.consumer.changes.put(job{d: d, visibility: retryAfter(d.Receives), last: true})
	}
}

// Release has the message come again for whoever reads it next: it is not this reader's
// to handle. It comes at once at first, and then later from time to time, should nobody
// be there to handle it.
func (d *Delivery) Release() {
	if d.settle() {
		d.consumer.Observer.Count(Released, 1)
		d.consumer.changes.put(job{d: d, visibility: releaseAfter(d.Receives), last: true})
	}
}

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
	// firstRetry doubles with every receive, up to lastRetry: an outage of the API server
	// is mostly over in minutes, and a notice of two minutes should not sleep through it.
	// With both, twenty receives, after which a queue as it is advised dead-letters a
	// message, take more than three hours.
	firstRetry = 5 * time.Second
	lastRetry  = 15 * time.Minute
	// releasedAtOnce is how many receives a released message is visible at once after:
	// where two readers take turns at random, the other has it by then seven times of
	// eight. Then firstRelease doubles with every receive up to lastRetry, so that the
	// quarter of an hour that a message is released for takes 13 receives.
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
