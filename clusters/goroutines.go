package clusters

import (
	"context"
	"sync"
)

// goroutines runs the goroutines of a Manager. They end with the context of its Start,
// which waits for them.
type goroutines struct {
	running sync.WaitGroup

	mu          sync.Mutex
	lockedState goroutinesState
}

type goroutinesState struct {
	// ctx is that of Start; nil before it and after its end.
	ctx context.Context //nolint:containedctx // It ends when the Manager stops.
}

// start allows spawn, until stop.
func (g *goroutines) start(ctx context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lockedState.ctx = ctx
}

// stop prevents new goroutines and waits for the running ones.
func (g *goroutines) stop() {
	g.refuse()
	g.running.Wait()
}

func (g *goroutines) refuse() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lockedState.ctx = nil
}

// spawn runs a goroutine that ends with the context. It returns false when the Manager
// does not run.
func (g *goroutines) spawn(run func(context.Context)) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	ctx := g.lockedState.ctx
	if ctx == nil {
		return false
	}
	g.running.Go(func() { run(ctx) })
	return true
}
