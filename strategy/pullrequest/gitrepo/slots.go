package gitrepo

import (
	"context"
	"slices"
	"sync"
)

// slots bound the number of clones. When more than one server is known, no server gets all
// slots, so that a server that hangs does not block the others. A tenant never gets more than
// half of them, also while it is alone: a slow clone may last as long as its caller allows, and
// another tenant that arrives meanwhile must not wait for it. The share of a tenant is smaller
// than that of a server, so that a tenant does not use up the share of a server that others use.
type slots struct {
	all int

	// mu guards the fields that follow.
	mu sync.Mutex
	// lockedHeld and lockedOwned count the slots in use, by server and by tenant; no count
	// is 0.
	lockedHeld  map[string]int
	lockedOwned map[string]int
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
	server, tenant string
	ready          chan struct{}
}

func newSlots(n int) *slots {
	return &slots{all: n, lockedHeld: map[string]int{}, lockedOwned: map[string]int{}}
}

// take waits for a slot for a tenant's clone from a server, until the context ends. done
// returns the slot.
func (s *slots) take(ctx context.Context, server, tenant string) (done func(), err error) {
	w := &waiter{server: server, tenant: tenant, ready: make(chan struct{})}
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
	release(s.lockedHeld, w.server)
	release(s.lockedOwned, w.tenant)
	s.grantLocked()
}

func release(count map[string]int, of string) {
	if count[of]--; count[of] == 0 {
		delete(count, of)
	}
}

// grantLocked gives free slots to the first waiters, except those whose server or tenant has
// its share.
func (s *slots) grantLocked() {
	server, tenant := s.all, (s.all+1)/2 // half, rounded up
	if s.lockedSeveral {
		server = max(1, s.all-1)
	}
	s.lockedQueue = slices.DeleteFunc(s.lockedQueue, func(w *waiter) bool {
		if s.lockedTaken == s.all || s.lockedHeld[w.server] >= server || w.tenant != "" && s.lockedOwned[w.tenant] >= tenant {
			return false
		}
		s.lockedTaken++
		s.lockedHeld[w.server]++
		s.lockedOwned[w.tenant]++
		close(w.ready)
		return true
	})
}
