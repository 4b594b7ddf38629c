package clusters

import "context"

const (
	// dialPlaces bounds the connections that are being made at once.
	dialPlaces = 64
	// retryPlaces of them may be used by clusters that have failed before. Each unreachable
	// cluster uses its place for the whole timeout; the limit keeps places free for
	// clusters that are tried for the first time.
	retryPlaces = 16
)

// dials limits how many clusters dial at the same time.
type dials struct {
	all, retry chan struct{}
}

func newDials() dials {
	return dials{all: make(chan struct{}, dialPlaces), retry: make(chan struct{}, retryPlaces)}
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
