package queue

import (
	"time"
)

// Status of a Consumer.
type Status struct {
	// Ready reports whether messages are received and settled: the last receive succeeded, and
	// no call of another kind fails.
	Ready bool
	// Class and Message of the error, when it is not Ready; empty before the first receive.
	// Message stays the same while the error lasts.
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

// The actions whose errors are reported: Options.Claim, and calls of SQS.
const (
	actionClaim      = "Claim"
	actionURL        = "GetQueueUrl"
	actionReceive    = "ReceiveMessage"
	actionDelete     = "DeleteMessageBatch"
	actionChange     = "ChangeMessageVisibilityBatch"
	actionSend       = "SendMessage"
	actionAttributes = "GetQueueAttributes"
)

// actions in the order in which they are reported. A receive that succeeds ends the faults of the
// first three, which precede it; the others end by themselves.
var actions = []struct {
	name  string
	reads bool
}{
	{actionURL, true},
	{actionClaim, true},
	{actionReceive, true},
	{actionDelete, false},
	{actionChange, false},
	{actionSend, false},
	{actionAttributes, false},
}

// fault is a sequence of failures of an action.
type fault struct {
	failures int
	// first and last failure.
	first, last time.Time
	class       Class
	message     string
	// reported is set when it makes the Consumer not Ready.
	reported bool
}

// A fault is reported for a time after its last failure. An action that is not needed again, for
// example because the messages expired, has no success that would end it. One that a user has to
// fix fails again when a message is retried, within lastRetry.
const (
	faultLasts      = 2 * lastRetry
	faultLastsShort = time.Minute
)

// over reports whether a fault is not reported any more.
func (f fault) over(now time.Time) bool {
	if f.class.lasting() {
		return now.Sub(f.last) > faultLasts
	}
	return now.Sub(f.last) > faultLastsShort
}

// receiveSucceeded records a successful receive.
func (c *Consumer) receiveSucceeded(at time.Time) {
	c.change(func(s *Status) {
		for _, action := range actions {
			if action.reads {
				delete(c.faults, action.name)
			}
		}
		s.LastReceive = at
	})
}

// succeeded ends the fault of an action.
func (c *Consumer) succeeded(action string) {
	c.mu.Lock()
	_, failed := c.faults[action]
	c.mu.Unlock()
	if failed {
		c.change(func(*Status) { delete(c.faults, action) })
	}
}

// failed records an error of a call.
func (c *Consumer) failed(action string, err error) {
	class := ClassOf(err)
	c.Log.V(1).Info("Calling SQS failed", "action", action, "class", class, "error", err.Error())
	c.change(func(*Status) {
		now := c.Clock.Now()
		f := c.faults[action]
		if f.failures++; f.failures == 1 {
			f.first = now
		}
		f.last, f.class = now, class
		if f.reported || class.lasting() || f.failures >= failuresToReport && now.Sub(f.first) >= failingToReport {
			f.reported, f.message = true, describe(action, err)
		}
		c.faults[action] = f
	})
}

// judgeLocked sets what follows from the faults.
func (c *Consumer) judgeLocked() {
	s := &c.status
	s.Ready, s.Class, s.Message = !s.LastReceive.IsZero(), None, ""
	for _, action := range actions {
		f, failed := c.faults[action.name]
		switch {
		case failed && !action.reads && f.over(c.Clock.Now()):
			delete(c.faults, action.name)
		case f.reported && s.Message == "":
			s.Ready, s.Class, s.Message = false, f.class, f.message
		}
	}
}

// change edits the status, and notifies the Observer of a transition.
func (c *Consumer) change(edit func(*Status)) {
	c.mu.Lock()
	before := c.status
	edit(&c.status)
	c.judgeLocked()
	after := c.status
	c.mu.Unlock()
	if before.Ready != after.Ready || before.Class != after.Class || before.Message != after.Message ||
		(before.DeadLetters > 0) != (after.DeadLetters > 0) {
		c.Observer.StatusChanged()
	}
}

// failuresToReport is how many calls of an action in a row must fail with an error that is not
// lasting, and failingToReport for how long, before the status shows it: several calls may be under
// way at once.
const (
	failuresToReport = 3
	failingToReport  = 2 * time.Second
)

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
