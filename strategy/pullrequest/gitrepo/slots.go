package gitrepo

import (
	"context"
	"slices"
	"sync"
)

// slots bound the number of clones. When more than one server is known, no server gets all
// slots, so that a server that hangs does not block the others.
type slots struct {
	all int

	// mu guards the fields that follow.
	mu sync.Mutex
	// lockedHeld counts the slots in use, by server; no count is 0.
	lockedHeld  map[string]int
	lockedTaken int
	// lockedFirst is the first requested server; lockedSeveral is true if
	// there was another since.
	lockedFirst   string
	lockedSeveral bool
	// lockedQueue has the waiters in the order of their requests.
	lockedQueue []*waiter
}

// waiter waits for a slot. ready is closed when it has one.
type waiter struct {
	server string
	ready  chan struct{}
}

func newSlots(n int) *slots { return &slots{all: n, lockedHeld: map[string]int{}} }

// take waits for a slot for a clone from a server, until the context ends. done returns
// the slot.
func (s *slots) take(ctx context.Context, server string) (done func(), err error) {
	w := &waiter{server: server, ready: make(chan struct{})}
	s.mu.Lock()
	if s.lockedFirst == "" {
		s.lockedFirst = server
	}
	s.lockedSeveral = s.lockedSeveral || server != s.lockedFirst
	s.lockedQueue = append(s.lockedQueue, w)
	s.grantLocked()
	s.mu.Unlock()
	select {
	case <-w.ready:
		return func() { s.leave(w) }, nil
	case <-ctx.Done():
		s.leave(w)
		return nil, ctx.Err()
	}
}

// leave removes a waiter from the queue, or returns the slot that it got meanwhile.
func (s *slots) leave(w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := slices.Index(s.lockedQueue, w); at >= 0 {
		s.lockedQueue = slices.Delete(s.lockedQueue, at, at+1)
		return
	}
	s.lockedTaken--
	if s.lockedHeld[w.server]--; s.lockedHeld[w.server] == 0 {
		delete(s.lockedHeld, w.server)
	}
	s.grantLocked()
}

// grantLocked gives free slots to the first waiters, except those whose server has its
// share.
func (s *slots) grantLocked() {
	share := s.all
	if s.lockedSeveral {
		share = max(1, s.all-1)
	}
	s.lockedQueue = slices.DeleteFunc(s.lockedQueue, func(w *waiter) bool {
		if s.lockedTaken == s.all || s.lockedHeld[w.server] >= share {
			return false
		}
		s.lockedTaken++
		s.lockedHeld[w.server]++
		close(w.ready)
		return true
	})
}
