package backend

import (
	"context"
	"sync"
	"time"

	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/hub/eventing/sink"
	"github.com/capstan-hub/capstan/internal/allowedhosts"
	"github.com/capstan-hub/capstan/internal/backoff"
)

// desired is a configuration, the digest of its Secret, which is zero without one, and the hosts that the Secret allows.
type desired struct {
	config schema.Config
	secret [32]byte
	hosts  allowedhosts.Rule
}

func (w desired) equal(other desired) bool {
	return w.secret == other.secret && w.hosts == other.hosts && w.config.Equal(other.config)
}

// connection is an open sink with the result of its pings.
type connection struct {
	desired
	sink sink.Sink
	// wake triggers a ping.
	wake chan struct{}
	// stop the pings.
	stop context.CancelFunc

	// mu guards lockedHealth.
	mu           sync.Mutex
	lockedHealth health
}

// health of a connection.
type health struct {
	// checked: it was pinged at least once.
	checked bool
	// err of the last ping; nil when it succeeded.
	err *sink.Error
}

func (h health) healthy() bool { return h.checked && h.err == nil }

func (c *connection) health() health {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lockedHealth
}

func (c *connection) pingNow() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// setHealth stores the result of a ping; true when it differs from the previous one. The
// text of an error is kept while its code is the same: the text may contain ports or
// durations.
func (c *connection) setHealth(err *sink.Error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.lockedHealth
	if before.checked && (err == nil) == (before.err == nil) && (err == nil || err.Code == before.err.Code) {
		return false
	}
	c.lockedHealth = health{checked: true, err: err}
	return true
}

// pingLoop pings the broker until the context ends, and calls changed when the result
// changes.
func (c *connection) pingLoop(ctx context.Context, o Options, changed func()) {
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
		if err == nil || permanent(err) || failures >= failuresToReport || !c.health().checked {
			if c.setHealth(err) {
				changed()
			}
		}
		timer := o.Clock.NewTimer(pingDelay(o.Timings, failures))
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

// permanent reports whether an error is reported at once: it does not end by itself.
func permanent(err *sink.Error) bool {
	switch err.Class {
	case sink.Unavailable, sink.Gone, sink.Refused, sink.TooLarge:
		return true
	case sink.Transient:
	}
	return false
}

// pingDelay is the time before the next ping, after a number of failures in a row.
func pingDelay(t Timings, failures int) time.Duration {
	if failures == 0 {
		return t.Ping
	}
	return backoff.Policy{First: t.PingRetry, Max: t.Ping}.Doubled(int64(failures - 1))
}
