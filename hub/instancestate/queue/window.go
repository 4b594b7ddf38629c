package queue

import (
	"context"
	"maps"
	"time"
)

const (
	// A reader that crashes repeatedly receives all messages each time and processes only a
	// few. Messages that it never processes would reach maxReceiveCount and be dead-lettered.
	// So during startup, while the window has a message that was received manyReceives times
	// or more, the window is limited to maxManyReceives: about as many as can be patched at
	// the same time.
	startup         = 30 * time.Second
	manyReceives    = 5
	maxManyReceives = 20
)

// enter puts a received message into the window.
func (c *Consumer) enter(d *Delivery) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.window[d] = struct{}{}
	delete(c.returned, d.MessageID)
	c.bytes += d.size
	if d.Receives >= manyReceives {
		c.manyReceives++
	}
}

// settled removes messages from the window.
func (c *Consumer) settled(jobs []job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, j := range jobs {
		if _, there := c.window[j.d]; there && j.last {
			delete(c.window, j.d)
			c.bytes -= j.d.size
			if j.d.Receives >= manyReceives {
				c.manyReceives--
			}
		}
	}
	c.makeRoomLocked()
}

// returned is a message that was made visible to other readers.
type returned struct {
	sent time.Time
	// until it is expected again.
	until time.Time
}

// returns remembers a message that becomes visible after a delay, for Oldest. If it is not
// received here some time after that, another reader has it.
func (c *Consumer) returns(d *Delivery, after time.Duration) {
	now := c.Clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.returned) >= c.Window && now.Sub(c.purged) >= c.VisibilityTimeout {
		c.purged = now
		maps.DeleteFunc(c.returned, func(_ string, r returned) bool { return r.until.Before(now) })
	}
	if len(c.returned) < c.Window {
		c.returned[d.MessageID] = returned{d.Sent, now.Add(after + c.VisibilityTimeout)}
	}
}

// Oldest returns when SQS received the oldest message that this Consumer has received and that is
// not deleted, as far as it knows; zero without one. A message that another reader deletes counts
// until it was expected here again. It looks at each of them.
func (c *Consumer) Oldest() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	var oldest time.Time
	earlier := func(sent time.Time) {
		if oldest.IsZero() || sent.Before(oldest) {
			oldest = sent
		}
	}
	for d := range c.window {
		earlier(d.Sent)
	}
	now := c.Clock.Now()
	for _, r := range c.returned {
		if !r.until.Before(now) {
			earlier(r.sent)
		}
	}
	return oldest
}

// makeRoomLocked wakes pollers that wait for room.
func (c *Consumer) makeRoomLocked() {
	close(c.room)
	c.room = make(chan struct{})
}

// received is called when the messages of a receive have entered the window.
func (c *Consumer) received() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reserved -= batchSize
	c.makeRoomLocked()
}

// waitForRoom waits until the window has room for a whole batch, and reserves it. It returns
// false when the context has ended.
func (c *Consumer) waitForRoom(ctx context.Context) bool {
	for ctx.Err() == nil {
		c.mu.Lock()
		has, room := c.hasRoomLocked(), c.room
		if has {
			c.reserved += batchSize
		}
		c.mu.Unlock()
		if has {
			return true
		}
		select {
		case <-room:
		case <-ctx.Done():
		}
	}
	return false
}

// hasRoomLocked reports whether there is room for one more batch.
func (c *Consumer) hasRoomLocked() bool {
	most := c.Window
	if c.manyReceives > 0 && !c.startupOver {
		most = min(most, maxManyReceives)
	}
	return len(c.window)+c.reserved+batchSize <= most && c.bytes < c.WindowBytes
}

// endStartup ends the startup phase after its time, or when the context ends.
func (c *Consumer) endStartup(ctx context.Context) {
	timer := c.Clock.NewTimer(startup)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.startupOver = true
	c.makeRoomLocked()
}

// InFlight returns how many messages were received and are not settled.
func (c *Consumer) InFlight() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.window)
}
