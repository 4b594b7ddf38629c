package queue

import "context"

// enter a received message into the window.
func (c *Consumer) enter(d *Delivery) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.window[d] = struct{}{}
	c.bytes += d.size
}

// settled messages leave the window.
func (c *Consumer) settled(jobs []job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, j := range jobs {
		if _, there := c.window[j.d]; there && j.last {
			delete(c.window, j.d)
			c.bytes -= j.d.size
		}
	}
	c.makeRoom()
}

// makeRoom wakes those who wait for it; c.mu is held.
func (c *Consumer) makeRoom() {
	close(c.room)
	c.room = make(chan struct{})
}

// received is called when what a receive brought has entered the window.
func (c *Consumer) received() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reserved -= batchSize
	c.makeRoom()
}

// waitForRoom until a receive may bring a whole batch, and reserve it. It returns false
// when the context has ended.
func (c *Consumer) waitForRoom(ctx context.Context) bool {
	for ctx.Err() == nil {
		c.mu.Lock()
		has, room := c.hasRoom(), c.room
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

// hasRoom for one batch more; c.mu is held.
func (c *Consumer) hasRoom() bool {
	return len(c.window)+c.reserved+batchSize <= c.Window && c.bytes < c.WindowBytes
}

// InFlight is how many messages were received and are not settled.
func (c *Consumer) InFlight() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.window)
}
