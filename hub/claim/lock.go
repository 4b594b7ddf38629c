package claim

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
)

const (
	// CheckEvery is how often claims are checked, or every sixth of a lease if that is shorter.
	CheckEvery = 5 * time.Second
	// shareOfLease is the part of a lease, as a divisor, that is at most between two checks.
	shareOfLease = 6
	// writeShare is the part of a lease, as a divisor, in which all claims must be written: 3 s of 30 s. The deadline of
	// the next renewal begins only after that, and package hub says what else a leader needs to end in time.
	writeShare = 10
	// trusted is the part of a lease, as a divisor, for which a leader goes on whose checks fail without a conflict.
	trusted = 2
	// pollEvery and saidFor: while another hub serves a namespace, the election asks again at this interval, and
	// client-go logs a failed attempt once in this time. While a right is missing, it asks again every CheckEvery.
	pollEvery, saidFor = time.Second, 30 * time.Second
	// releasedSeconds is the duration of a Lease that was given back; zero is not valid.
	releasedSeconds = 1
)

// Options of a Lock.
type Options struct {
	// Hub is the name of the hub.
	Hub string
	// AllLease is the name of the Lease of a hub without a name; that of another hub follows from it.
	AllLease string
	// Lease is how long the hub's Lease is valid.
	Lease time.Duration
	// Namespaces that the hub serves.
	Namespaces []string
	// DashboardURL is where browsers open the hub's dashboard; empty if it is not known.
	DashboardURL string
	// Report is called with each change of what keeps the hub from acting, a *Conflict or a *Denied; nil when that is over.
	Report func(error)
	// Lost is called on the leader when another hub serves one of its namespaces: it must end at once.
	Lost  func(*Conflict)
	Clock clock.WithTicker
}

// Lock is the lock of leader election of a hub that has claims. It implements resourcelock.Interface.
type Lock struct {
	// Interface is the lock of the hub's Lease.
	resourcelock.Interface

	options Options
	claims  claims
	// held: this replica leads. checked is when its claims, or those in its way, were last read.
	held    bool
	checked time.Time
	// reported is what was last reported; nil if it is over.
	reported error
	// refused: this hub was elected and might not write a claim. An election changes its Lease, so another hub that waits for a
	// claim of it would wait for as long as it is elected again and again.
	refused bool
}

// New returns a Lock around the lock of the hub's Lease, which is lease, or around that.
func New(lease *resourcelock.LeaseLock, lock resourcelock.Interface, o Options) *Lock {
	lease.Labels = map[string]string{HubLabel: o.Hub}
	return &Lock{
		Interface: lock, options: o,
		claims: claims{
			leases: lease.Client.Leases(lease.LeaseMeta.Namespace), hub: o.Hub, namespaces: o.Namespaces, dashboard: o.DashboardURL,
			allLease: o.AllLease, in: lease.LeaseMeta.Namespace, lease: o.Lease, clock: o.Clock, seen: map[string]sighting{},
		},
	}
}

// Get implements resourcelock.Interface. A standby observes meanwhile what is in its hub's way, so that it need not wait
// once it may lead, and so that it reports the end of a conflict, too.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if !l.held && l.due() {
		_, err := l.check(ctx)
		l.note(err)
	}
	return l.Interface.Get(ctx)
}

// Create implements resourcelock.Interface.
func (l *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, true)
}

// Update implements resourcelock.Interface.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, false)
}

// write writes the Lease, and the claims when this replica is elected by that.
func (l *Lock) write(ctx context.Context, record resourcelock.LeaderElectionRecord, create bool) error {
	write := l.Interface.Update
	if create {
		write = l.Interface.Create
	}
	switch {
	case record.HolderIdentity != l.Identity(): // It is given back.
		l.held = false
		return write(ctx, record)
	case l.held:
		if err := l.renew(ctx, create); err != nil {
			return err
		}
		if err := write(ctx, record); err != nil || l.options.Clock.Since(l.checked) < l.options.Lease/trusted {
			return err
		}
		return l.renew(ctx, true) // The process was paused after the check.
	}
	if err := l.await(ctx); err != nil {
		return err
	}
	if err := write(ctx, record); err != nil {
		return err
	}
	if err := l.take(ctx); err != nil {
		var denied *Denied
		l.refused = errors.As(err, &denied)
		l.note(err)
		return errors.Join(err, l.Interface.Update(context.WithoutCancel(ctx), Released(record, l.options.Clock.Now())))
	}
	l.held = true
	return nil
}

// Released returns the record of a Lease that its holder gives back.
func Released(record resourcelock.LeaderElectionRecord, at time.Time) resourcelock.LeaderElectionRecord {
	now := metav1.Time{Time: at}
	return resourcelock.LeaderElectionRecord{LeaderTransitions: record.LeaderTransitions, LeaseDurationSeconds: releasedSeconds, RenewTime: now, AcquireTime: now}
}

func (l *Lock) take(ctx context.Context) error {
	began, most := l.options.Clock.Now(), l.options.Lease/writeShare
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	if err := l.claims.take(ctx); err != nil {
		return err
	}
	if took := l.options.Clock.Since(began); took > most { // The process was paused.
		return fmt.Errorf("writing the claims took %s, longer than a tenth of the lease", took)
	}
	l.checked = l.options.Clock.Now()
	return nil
}

// await waits until nothing keeps this replica from leading that a user must change, and at most for saidFor.
func (l *Lock) await(ctx context.Context) error {
	for began := l.options.Clock.Now(); ; {
		_, err := l.check(ctx)
		l.note(err)
		var conflict *Conflict
		var denied *Denied
		every := pollEvery
		if errors.As(err, &denied) {
			every = CheckEvery
		} else if !errors.As(err, &conflict) {
			return err
		}
		if l.options.Clock.Since(began) >= saidFor {
			return err
		}
		timer := l.options.Clock.NewTimer(min(every, l.options.Lease/shareOfLease))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C():
		}
	}
}

// due returns whether it is time for a check.
func (l *Lock) due() bool {
	return l.checked.IsZero() || l.options.Clock.Since(l.checked) >= min(CheckEvery, l.options.Lease/shareOfLease)
}

// check returns the claims that exist, and what keeps this replica from leading. After a claim was refused, that ends when all
// may be written.
func (l *Lock) check(ctx context.Context) (existingClaims, error) {
	all, err := l.claims.check(ctx)
	var conflict *Conflict
	if err == nil || errors.As(err, &conflict) {
		l.checked = l.options.Clock.Now()
	}
	if err == nil && l.refused {
		err = l.claims.writeAll(ctx, all, metav1.DryRunAll)
		l.refused = err != nil
	}
	return all, err
}

// renew checks the claims of the leader before a renewal of its Lease, if it is time for that. It writes claims that are
// missing: a user has deleted or emptied them. A check that fails without a conflict says nothing for a while: whether the API server
// answers is for the renewal to show. But a process that was paused may have lost its claims, and a Lease that a user has
// deleted has kept no other hub away. A hub that may not write a missing claim does not lead any more.
func (l *Lock) renew(ctx context.Context, deleted bool) error {
	if !l.due() && !deleted && l.reported == nil {
		return nil
	}
	trust := !deleted && l.options.Clock.Since(l.checked) < l.options.Lease/trusted
	all, err := l.check(ctx)
	var conflict *Conflict
	switch {
	case errors.As(err, &conflict):
		l.note(err)
		l.options.Lost(conflict)
		return err
	case err != nil && trust:
		return nil
	case err != nil:
		l.note(err)
		return err
	}
	for _, namespace := range l.claims.namespaces {
		if claim := all[namespace]; claim == nil || holder(claim) != l.claims.hub {
			err := l.claims.write(ctx, namespace, claim)
			var denied *Denied
			if errors.As(err, &denied) {
				l.note(err)
				return err
			} // The next check tries again after another error.
		}
	}
	l.note(nil)
	return nil
}

// note reports a change of what keeps the hub from acting. Another error changes nothing: it passes, or client-go logs it.
func (l *Lock) note(err error) {
	var conflict *Conflict
	var denied *Denied
	if err != nil && !errors.As(err, &conflict) && !errors.As(err, &denied) {
		return
	}
	if text(err) != text(l.reported) {
		l.reported = err
		l.options.Report(err)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
