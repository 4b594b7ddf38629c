package dashboard

import (
	"context"
	"time"
)

const (
	// leaseEvery is how often a standby reads the lease. A leader renews it more often than it
	// expires, so this is the delay of the display.
	leaseEvery = 5 * time.Second
	// leaseTimeout of one read.
	leaseTimeout = 4 * time.Second
)

// Lease is the lease of the leader, as it is written.
type Lease struct {
	// Renewed is when the leader last renewed it, by the leader's clock.
	Renewed time.Time
	// Duration after which it expires.
	Duration time.Duration
}

// leaseReading is the lease as a standby last read it.
type leaseReading struct {
	lease Lease
	// at is when the lease was last observed to be renewed, by the clock of this replica.
	at time.Time
}

// next returns the reading after a read of the lease. Clocks of replicas may differ: only the
// first read uses the time in the lease.
func (s leaseReading) next(read Lease, now time.Time) leaseReading {
	at := now
	switch {
	case read == s.lease:
		at = s.at
	case s.at.IsZero() && read.Renewed.Before(now):
		at = read.Renewed
	}
	return leaseReading{lease: read, at: at}
}

// expired returns whether no replica leads.
func (s leaseReading) expired(now time.Time) bool {
	return !s.at.IsZero() && now.Sub(s.at) >= max(s.lease.Duration, leaseEvery+leaseTimeout)
}

// followLease reads the lease at intervals while this replica is a standby.
func (s *source) followLease(ctx context.Context) error {
	if s.lease == nil {
		return nil
	}
	for {
		if !s.leads() {
			s.readLease(ctx)
		}
		timer := s.clock.NewTimer(leaseEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		}
	}
}

// readLease reads the lease once. If that fails, the last reading stays.
func (s *source) readLease(ctx context.Context) {
	call, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	read, err := s.lease(call)
	if err != nil {
		return
	}
	now := s.clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lockedLeader = s.lockedLeader.next(read, now)
}
