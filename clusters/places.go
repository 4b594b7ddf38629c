package clusters

import (
	"context"
	"runtime"
	"time"
)

const (
	// dialsForEachCPU is the default of Options.Dials for each CPU: a handshake takes about a
	// millisecond of one, and waits for the network for longer.
	dialsForEachCPU = 32
	// readsForEachCPU is how many clusters read their Secret for the first time at the same time, for each CPU: a read
	// takes about half a millisecond of one.
	readsForEachCPU = 16
	// longestTurn is how long a cluster waits for such a place at most. Then it reads without one: if the management
	// cluster does not respond, the state of each cluster shows that.
	longestTurn = time.Minute
	// retryShare of the places may be used by clusters that have failed before. Each unreachable
	// cluster uses its place for the whole timeout; the limit keeps places free for
	// clusters that are tried for the first time.
	retryShare = 4
)

// places limits how many do something at the same time.
type places chan struct{}

// acquire waits for a place. It returns the context's error when the context ends first.
func (p places) acquire(ctx context.Context) (release func(), err error) {
	select {
	case p <- struct{}{}:
		return func() { <-p }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// newReads returns the places of the clusters that read their Secret for the first time. So at the start of a hub over
// a large fleet, the first clusters connect while others still wait; without a limit, none would connect before all
// Secrets have been read.
func newReads() places { return make(places, readsForEachCPU*runtime.GOMAXPROCS(0)) }

// dials limits how many clusters dial at the same time.
type dials struct {
	all, retry places
}

// newDials returns dials with a number of places; the default if 0.
func newDials(n int) dials {
	if n == 0 {
		n = dialsForEachCPU * runtime.GOMAXPROCS(0)
	}
	return dials{all: make(places, n), retry: make(places, max(1, n/retryShare))}
}

// acquire waits for a place. It returns the context's error when the context ends first.
func (d dials) acquire(ctx context.Context, retry bool) (release func(), err error) {
	if !retry {
		return d.all.acquire(ctx)
	}
	first, err := d.retry.acquire(ctx)
	if err != nil {
		return nil, err
	}
	second, err := d.all.acquire(ctx)
	if err != nil {
		first()
		return nil, err
	}
	return func() { second(); first() }, nil
}
