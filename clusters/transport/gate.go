package transport

import (
	"context"
	"errors"
	"sync"
)

// ErrClosed is returned for requests after the connection has ended.
var ErrClosed = errors.New("the connection to the cluster has ended")

// gate delays requests while a cluster cannot serve them.
type gate struct {
	mu          sync.Mutex
	lockedState struct {
		// opened is closed while the gate is open.
		opened chan struct{}
		open   bool
		closed bool
	}
	// ended is closed by end and stays closed.
	ended chan struct{}
}

func newGate() *gate {
	g := &gate{ended: make(chan struct{})}
	g.lockedState.opened = make(chan struct{})
	return g
}

// set opens or closes the gate.
func (g *gate) set(open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lockedState.open == open {
		return
	}
	g.lockedState.open = open
	if open {
		close(g.lockedState.opened)
	} else {
		g.lockedState.opened = make(chan struct{})
	}
}

func (g *gate) isOpen() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lockedState.open
}

// end makes all waiting and all later requests fail with ErrClosed.
func (g *gate) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.lockedState.closed {
		g.lockedState.closed = true
		close(g.ended)
	}
}

func (g *gate) hasEnded() bool {
	select {
	case <-g.ended:
		return true
	default:
		return false
	}
}

// wait waits until the gate is open. Errors: ErrClosed after end, and that of the context.
func (g *gate) wait(ctx context.Context) error {
	g.mu.Lock()
	opened := g.lockedState.opened
	g.mu.Unlock()
	select {
	case <-g.ended:
		return ErrClosed
	default:
	}
	select {
	case <-opened:
		return nil
	case <-g.ended:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}
