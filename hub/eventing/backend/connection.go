package backend

import (
	"context"
	"sync"
	"time"

	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/hub/eventing/sink"
	"github.com/capstan-hub/capstan/internal/backoff"
)

// wanted configuration, with the digest of its Secret; that is zero without one.
type wanted struct {
	config schema.Config
	secret [32]byte
}

func (w wanted) equal(other wanted) bool {
	return w.secret == other.secret && w.config.Equal(other.config)
}

// connection is a sink that was opened, and what its pings say.
type connection struct {
	wanted
	sink sink.Sink
	// wake has it pinged now.
	wake chan struct{}
	// stop the pings.
	stop context.CancelFunc

	// mu guards lockedHealth.
	mu           sync.Mutex
	lockedHealth health
}

// health of a connection.
type health struct {
	// asked once at least.
	asked bool
	// err of the newest ping; nil when it went well.
	err *sink.Error
}

func (h health) good() bool { return h.asked && h.err == nil }

func (c *connection) health() health {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lockedHealth
}

func (c *connection) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// learn the outcome of a ping; true when it is news. The text of an error is kept while
// its code is the same: it may hold ports, or how long something took.
func (c *connection) learn(err *sink.Error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.lockedHealth
	if before.asked && (err == nil) == (before.err == nil) && (err == nil || err.Code == before.err.Code) {
		return false
	}
	c.lockedHealth = health{asked: true, err: err}
	return true
}

// pinging asks the broker until the context ends, and calls changed on news.
func (c *connection) pinging(ctx context.Context, o Options, changed func()) {
	failures := 0
	for {
		err := c.ping(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			failures = 0
		default:
			failures++
		}
		if err == nil || lasting(err) || failures >= failuresToTell || !c.health().asked {
			if c.learn(err) {
				changed()
			}
		}
		timer := o.Clock.NewTimer(pause(o.Timings, failures))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-c.wake:
			timer.Stop()
		case <-timer.C():
		}
	}
}

func (c *connection) ping(ctx context.Context) *sink.Error {
	ctx, cancel := context.WithTimeout(ctx, c.config.Duration(keyTimeout))
	defer cancel()
	if err := c.sink.Ping(ctx); err != nil {
		return sink.Of(err)
	}
	return nil
}

// lasting errors do not go by themselves.
func lasting(err *sink.Error) bool {
	switch err.Class {
	case sink.Unavailable, sink.Gone, sink.Refused, sink.TooLarge:
		return true
	case sink.Transient:
	}
	return false
}

// pause before the next ping, after a number of failures in a row.
func pause(t Timings, failures int) time.Duration {
	if failures == 0 {
		return t.Ping
	}
	return backoff.Policy{First: t.PingRetry, Max: t.Ping}.Doubled(int64(failures - 1))
}
