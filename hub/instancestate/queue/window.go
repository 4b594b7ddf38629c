package queue

import (
	"context"
	"time"
)

const (
	// A reader that dies again and again reads all that waits each time, and does little
	// of it: the receives of what it never comes to are used up, and it is dead-lettered.
	// So while a reader is young, it reads no more when it holds messages that were
	// received often times or more, but for maxManyReceives in all: about as many as can be
	// patched at once.
	startup         = 30 * time.Second
	manyReceives    = 5
	maxManyReceives = 20
)

// enter a received message into the window.
func (c *Consumer) enter(d *Delivery) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.window[d] = struct{}{}
	c.bytes += d.size
	if d.Receives >= manyReceives {
		c.manyReceives++
	}
}

// settled messages leave the window.
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

// makeRoomLocked wakes the pollers that wait for room.
func (c *Consumer) makeRoomLocked() {
	close(c.room)
	c.room = make(chan struct{})
}

// received is called when what a receive brought has entered the window.
func (c *Consumer) received() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reserved -= batchSize
	c.makeRoomLocked()
}

// waitForRoom until a receive may bring a whole batch, and reserve it. It returns false
// when the context has ended.
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

// hasRoomLocked is whether there is room for one batch more.
func (c *Consumer) hasRoomLocked() bool {
	most := c.Window
	if c.manyReceives > 0 && !c.startupOver {
		most = min(most, maxManyReceives)
	}
	return len(c.window)+c.reserved+batchSize <= most && c.bytes < c.WindowBytes
}

// grow up, unless the context ends before.
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

// InFlight is how many messages were received and are not settled.
func (c *Consumer) InFlight() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.window)
}
