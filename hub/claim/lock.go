package claim

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
)

const (
	// CheckEvery is how often a leader checks its claims.
	CheckEvery = 5 * time.Second
	// pollEvery and saidFor: while another hub serves a namespace, the election asks again at this interval, and
	// client-go logs a failed attempt once in this time.
	pollEvery, saidFor = time.Second, 30 * time.Second
	// releasedSeconds is the duration of a Lease that was given back; zero is not valid.
	releasedSeconds = 1
)

// Options of a Lock.
type Options struct {
	// Hub is the name of the hub.
	Hub string
	// LeaseOf returns the name of a hub's Lease. AllLease is that of a hub that serves all namespaces.
	LeaseOf  func(hub string) string
	AllLease string
	// Namespaces that the hub serves.
	Namespaces []string
	// DashboardURL is where browsers open the hub's dashboard; empty if it is not known.
	DashboardURL string
	// Tell is called with each change of what keeps the hub from acting; nil when that is over.
	Tell  func(*Conflict)
	Clock clock.WithTicker
}

// Lock is the lock of leader election of a hub that has claims. It implements resourcelock.Interface.
type Lock struct {
	*resourcelock.LeaseLock

	claims  claims
	tell    func(*Conflict)
	clock   clock.WithTicker
	held    bool
	checked time.Time
	told    Conflict
}

// New returns a Lock around the lock of the hub's Lease.
func New(lock *resourcelock.LeaseLock, o Options) *Lock {
	lock.Labels = map[string]string{HubLabel: o.Hub}
	return &Lock{
		LeaseLock: lock, tell: o.Tell, clock: o.Clock,
		claims: claims{
			leases: lock.Client.Leases(lock.LeaseMeta.Namespace), hub: o.Hub, namespaces: o.Namespaces, dashboard: o.DashboardURL,
			leaseOf: o.LeaseOf, allLease: o.AllLease, in: lock.LeaseMeta.Namespace, clock: o.Clock, seen: map[string]sighting{},
		},
	}
}

// Create implements resourcelock.Interface.
func (l *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.LeaseLock.Create)
}

// Update implements resourcelock.Interface.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.LeaseLock.Update)
}

// write writes the Lease, and the claims when this replica is elected by that. While it leads, only a conflict keeps it
// from the renewal: a check that fails says nothing.
func (l *Lock) write(ctx context.Context, record resourcelock.LeaderElectionRecord, write func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	switch {
	case record.HolderIdentity != l.Identity(): // It is given back.
		l.held = false
		return write(ctx, record)
	case l.held:
		if err := l.renewed(ctx); err != nil {
			return err
		}
		return write(ctx, record)
	}
	if err := l.await(ctx); err != nil {
		return err
	}
	if err := write(ctx, record); err != nil {
		return err
	}
	if err := l.claims.take(ctx); err != nil {
		l.note(err)
		released := resourcelock.LeaderElectionRecord{
			LeaderTransitions: record.LeaderTransitions, LeaseDurationSeconds: releasedSeconds,
			RenewTime: metav1.Time{Time: l.clock.Now()}, AcquireTime: metav1.Time{Time: l.clock.Now()},
		}
		return errors.Join(err, l.LeaseLock.Update(ctx, released))
	}
	l.held, l.checked = true, l.clock.Now()
	return nil
}

// await waits until no other hub serves a namespace of this one, and at most for saidFor.
func (l *Lock) await(ctx context.Context) error {
	for began := l.clock.Now(); ; {
		_, err := l.claims.check(ctx)
		l.note(err)
		var conflict *Conflict
		if !errors.As(err, &conflict) || l.clock.Since(began) >= saidFor {
			return err
		}
		timer := l.clock.NewTimer(pollEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C():
		}
	}
}

// renewed checks the claims of the leader, every CheckEvery. It writes those that are missing: a user has deleted them.
func (l *Lock) renewed(ctx context.Context) error {
	if l.clock.Since(l.checked) < CheckEvery {
		return nil
	}
	all, err := l.claims.check(ctx)
	var conflict *Conflict
	if errors.As(err, &conflict) {
		l.note(err)
		return err
	}
	if err != nil {
		return nil // It is tried again with the next renewal, which also shows whether the API server answers.
	}
	l.checked = l.clock.Now()
	for _, namespace := range l.claims.namespaces {
		if claim := all[namespace]; claim == nil || holder(claim) != l.claims.hub {
			_ = l.claims.write(ctx, namespace, claim) // A claim of a hub that does not lead. See above for an error.
		}
	}
	return nil
}

// note tells a change. An error that is no conflict changes nothing.
func (l *Lock) note(err error) {
	var conflict *Conflict
	switch {
	case errors.As(err, &conflict) && *conflict != l.told:
		l.told = *conflict
		l.tell(conflict)
	case err == nil && l.told != Conflict{}:
		l.told = Conflict{}
		l.tell(nil)
	}
}
