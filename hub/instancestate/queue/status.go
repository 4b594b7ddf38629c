package queue

import (
	"time"
)

// Status of a Consumer.
type Status struct {
	// Ready when the last receive went well.
	Ready bool
	// Class and Message of the error, when it is not Ready. Message stays the same while
	// the error lasts.
	Class   Class
	Message string
	// LastReceive that went well; also one that brought nothing.
	LastReceive time.Time
	// Pollers that run.
	Pollers int
	// Visible and NotVisible messages in the queue, and DeadLetters in its dead-letter
	// queue, as of the last look, once a minute. HasDeadLetters says that there is such a
	// queue and that it could be looked at.
	Visible, NotVisible, DeadLetters int
	HasDeadLetters                   bool
}

// Count is what an Observer counts messages by.
type Count string

// Counts.
const (
	Received     Count = "received"
	Deleted      Count = "deleted"
	DeleteFailed Count = "delete_failed"
	Retried      Count = "retried"
	Released     Count = "released"
	Extended     Count = "extended"
	ChangeFailed Count = "change_failed"
	DeadLettered Count = "dead_lettered"
	Discarded    Count = "discarded"
	Panicked     Count = "panicked"
)

// Observer is told what happens. Its methods are called by several goroutines at a time
// and must not block.
type Observer interface {
	// Count messages.
	Count(what Count, n int)
	// Waited is how long a message was in SQS.
	Waited(time.Duration)
	// Malformed message: why it cannot be decoded, and how its body begins. Told once for
	// a message, not for each receive of it.
	Malformed(reason error, sample string)
	// StatusChanged: Ready, Class, Message or the presence of dead letters did. Whoever
	// wants to know asks for the Status: another change may have come since.
	StatusChanged()
}

// Status now.
func (c *Consumer) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

// works notes a receive that went well.
func (c *Consumer) receiveSucceeded(at time.Time) {
	c.change(func(s *Status) {
		c.failures = 0
		s.Ready, s.Class, s.Message, s.LastReceive = true, None, "", at
	})
}

// failed notes an error of a call.
func (c *Consumer) failed(action string, err error) {
	class := ClassOf(err)
	c.Log.V(1).Info("A call of SQS failed", "action", action, "class", class, "error", err.Error())
	if action != "ReceiveMessage" && action != "GetQueueUrl" {
		return
	}
	c.change(func(s *Status) {
		if c.failures++; class.lasting() || c.failures >= failuresToReport {
			s.Ready, s.Class, s.Message = false, class, describe(action, err)
		}
	})
}

// change the status, and tell of it when it is a transition.
func (c *Consumer) change(edit func(*Status)) {
	c.mu.Lock()
	before := c.status
	edit(&c.status)
	after := c.status
	c.mu.Unlock()
	if before.Ready != after.Ready || before.Class != after.Class || before.Message != after.Message ||
		(before.DeadLetters > 0) != (after.DeadLetters > 0) {
		c.Observer.StatusChanged()
	}
}

// failuresToReport is how many receives must fail in a row, of errors that come and go.
const failuresToReport = 3

// nobody observes.
type noObserver struct{}

// Count implements Observer.
func (noObserver) Count(Count, int) {}

// Waited implements Observer.
func (noObserver) Waited(time.Duration) {}

// Malformed implements Observer.
func (noObserver) Malformed(error, string) {}

// StatusChanged implements Observer.
func (noObserver) StatusChanged() {}
