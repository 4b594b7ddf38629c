package clusters

import (
	"context"
	"sync"
)

// goroutines are those of a Manager: they end with the context of its Start, which waits
// for them.
type goroutines struct {
	running sync.WaitGroup

	mu          sync.Mutex
	lockedState goroutinesState
}

type goroutinesState struct {
	// ctx is that of Start; nil before it and after its end.
	ctx context.Context //nolint:containedctx // It is the Manager's life.
}

// start lets goroutines be started, until stop.
func (g *goroutines) start(ctx context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lockedState.ctx = ctx
}

// stop refuses more goroutines and waits for those that run.
func (g *goroutines) stop() {
	g.refuse()
	g.running.Wait()
}

func (g *goroutines) refuse() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lockedState.ctx = nil
}

// spawn runs a goroutine that ends with the context; false when the Manager does not
// run.
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
