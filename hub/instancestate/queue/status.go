package queue

import (
	"time"
)

// Status of a Consumer.
type Status struct {
	// Ready reports whether the last receive succeeded.
	Ready bool
	// Class and Message of the error, when it is not Ready. Message stays the same while
	// the error lasts.
	Class   Class
	Message string
	// LastReceive is the time of the last successful receive, including empty ones.
	LastReceive time.Time
	// Pollers that run.
	Pollers int
	// Visible and NotVisible messages in the queue, and DeadLetters in its dead-letter
	// queue, as read once a minute. HasDeadLetters reports that there is such a queue and
	// that its attributes could be read.
	Visible, NotVisible, DeadLetters int
	HasDeadLetters                   bool
}

// Count is the key that an Observer counts messages by.
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

// Observer gets notifications of a Consumer. Several goroutines call its methods at the same
// time. They must not block.
type Observer interface {
	// Count messages.
	Count(what Count, n int)
	// Waited reports how long a message was in SQS.
	Waited(time.Duration)
	// Malformed reports a message that cannot be decoded, with a sample of its body. It is
	// called once for a message, not for each receive of it.
	Malformed(reason error, sample string)
	// StatusChanged reports a change of Ready, Class, Message or the presence of dead letters.
	// The observer calls Status for the current values.
	StatusChanged()
}

// Status returns the current status.
func (c *Consumer) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

// receiveSucceeded records a successful receive.
func (c *Consumer) receiveSucceeded(at time.Time) {
	c.change(func(s *Status) {
		c.failures = 0
		s.Ready, s.Class, s.Message, s.LastReceive = true, None, "", at
	})
}

// failed records an error of a call.
func (c *Consumer) failed(action string, err error) {
	class := ClassOf(err)
	c.Log.V(1).Info("Calling SQS failed", "action", action, "class", class, "error", err.Error())
	if action != "ReceiveMessage" && action != "GetQueueUrl" {
		return
	}
	c.change(func(s *Status) {
		if c.failures++; class.lasting() || c.failures >= failuresToReport {
			s.Ready, s.Class, s.Message = false, class, describe(action, err)
		}
	})
}

// change edits the status, and notifies the Observer of a transition.
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

// failuresToReport is how many receives in a row must fail with an error that is not lasting
// before the status shows it.
const failuresToReport = 3

// noObserver ignores all notifications.
type noObserver struct{}

// Count implements Observer.
func (noObserver) Count(Count, int) {}

// Waited implements Observer.
func (noObserver) Waited(time.Duration) {}

// Malformed implements Observer.
func (noObserver) Malformed(error, string) {}

// StatusChanged implements Observer.
func (noObserver) StatusChanged() {}
