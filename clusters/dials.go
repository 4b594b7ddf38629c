package clusters

import (
	"context"
	"runtime"
)

const (
	// dialsForEachCPU is the default of Options.Dials for each CPU: a handshake takes about a
	// millisecond of one, and waits for the network for longer.
	dialsForEachCPU = 32
	// retryShare of the places may be used by clusters that have failed before. Each unreachable
	// cluster uses its place for the whole timeout; the limit keeps places free for
	// clusters that are tried for the first time.
	retryShare = 4
)

// dials limits how many clusters dial at the same time.
type dials struct {
	all, retry chan struct{}
}

// newDials returns dials with a number of places; the default if 0.
func newDials(places int) dials {
	if places == 0 {
		places = dialsForEachCPU * runtime.GOMAXPROCS(0)
	}
	return dials{all: make(chan struct{}, places), retry: make(chan struct{}, max(1, places/retryShare))}
}

// acquire waits for a place. It returns the context's error when the context ends first.
func (d dials) acquire(ctx context.Context, retry bool) (release func(), err error) {
	taken := make([]chan struct{}, 0, 2)
	release = func() {
		for _, lane := range taken {
			<-lane
		}
	}
	lanes := []chan struct{}{d.all}
	if retry {
		lanes = []chan struct{}{d.retry, d.all}
	}
	for _, lane := range lanes {
		select {
		case lane <- struct{}{}:
			taken = append(taken, lane)
		case <-ctx.Done():
			release()
			return nil, ctx.Err()
		}
	}
	return release, nil
}
