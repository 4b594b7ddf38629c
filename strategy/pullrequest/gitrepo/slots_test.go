package gitrepo

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
)

// A tenant whose clones last long leaves slots to other tenants: of its own server, and of
// another server.
func TestNoTenantHasAllSlots(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	s := newSlots(DefaultClones)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	// taken takes slots until none is free at once.
	taken := func(server, tenant string) int {
		for n := 0; ; n++ {
			w := &waiter{server: server, tenant: tenant, ready: make(chan struct{})}
			s.mu.Lock()
			s.lockedSeveral = true
			s.lockedQueue = append(s.lockedQueue, w)
			s.grantLocked()
			s.mu.Unlock()
			select {
			case <-w.ready:
			default:
				s.leave(w)
				return n
			}
		}
	}
	g.Expect(taken("slow.example.com", "team-a")).To(Equal(3), "also while it is alone")
	g.Expect(taken("other.example.com", "team-a")).To(BeZero(), "whatever the server")
	g.Expect(taken("slow.example.com", "team-b")).To(Equal(1), "the server has its share then")
	g.Expect(taken("other.example.com", "team-c")).To(Equal(1))
	_, err := s.take(ended, "other.example.com", "team-d")
	g.Expect(err).To(MatchError(context.Canceled))
}

// A slot that a tenant returns goes to the first waiter that may have it.
func TestReturnedSlotsAreUsed(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	s := newSlots(2)
	first, err := s.take(t.Context(), "git.example.com", "team-a")
	g.Expect(err).NotTo(HaveOccurred())
	got := make(chan func())
	for _, tenant := range []string{"team-a", "team-b"} {
		go func() {
			done, err := s.take(t.Context(), "git.example.com", tenant)
			if err != nil {
				t.Error(err)
			}
			got <- done
		}()
	}
	b := <-got // team-b's: team-a has its share.
	select {
	case <-got:
		t.Fatal("team-a has two of two slots")
	default:
	}
	first()
	a := <-got
	a()
	b()
	g.Expect(s.lockedHeld).To(BeEmpty())
	g.Expect(s.lockedOwned).To(BeEmpty())
	g.Expect(s.lockedTaken).To(BeZero())
}
