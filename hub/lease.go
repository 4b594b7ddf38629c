package hub

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/capstan-hub/capstan/hub/claim"
)

const (
	// podNamespace is the file with the namespace of the pod, in which its lease is by default.
	podNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

	// The hub tries to renew a lease every two fifteenths of its duration, until two thirds
	// have passed: every 4 s until 20 s, of 30 s.
	renewNumerator, renewDenominator = 2, 3
	retryNumerator, retryDenominator = 2, 15
	// A warm standby reads the lease every hundredth of it, or up to 2.2 times less, every 0.3 to 0.66 s of 30 s: it takes over at
	// once when the leader ends in order. client-go would renew it as often; a renewal waits until a twentieth of the lease, 1.5 s of
	// 30 s, has passed since the one before (leaderLock). So after a pause of the API server of 25 s, the leader has time to give the lease back.
	// A standby notices a renewal by its time, of which client-go compares whole seconds: two renewals are a second apart at least.
	warmRetries, warmRenewals = 100, 20
	leastBetween              = time.Second
	// One request takes a fifteenth of the duration at most, 2 s of 30 s. controller-runtime's own lock gives each request half of
	// the deadline. From the beginning of the last renewal that succeeded, client-go gives up after that request, the time
	// to the next one, and the 20 s: 2 + 4 + 20 = 26 s at most, with warm standbys 22.3 s.
	requestShare = 15
	leastRequest = time.Second
	// When a fifteenth of the duration is left, 28 s after the beginning of the last renewal of 30 s, a process ends that has not given
	// the lease back. That is also so where client-go does not notice it: when the process was paused, or its orderly end takes longer.
	spareShare = 15
	// A process that ends in order tries to give the lease back for this time: it has 30 s in all.
	orderlyGiveBack = 4 * time.Second
)

// retryPeriod is the time between two attempts of client-go to renew the lease, or to get it.
func (o *Options) retryPeriod() time.Duration {
	if o.WarmStandby {
		return o.LeaderElectionLease / warmRetries
	}
	return o.LeaderElectionLease * retryNumerator / retryDenominator
}

// leaseNamespace returns the namespace of the lease.
func (o *Options) leaseNamespace() (string, error) {
	if o.LeaderElectionNamespace != "" {
		return o.LeaderElectionNamespace, nil
	}
	own, err := os.ReadFile(podNamespace)
	if err != nil {
		return "", fmt.Errorf("the namespace of the lease is not known outside of a pod: %w", err)
	}
	return strings.TrimSpace(string(own)), nil
}

// newLock makes the lock of the lease of a name; nil without leader election.
func newLock(o Options, name string) (*resourcelock.LeaseLock, error) {
	if !o.LeaderElect {
		return nil, nil
	}
	namespace, err := o.leaseNamespace()
	if err != nil {
		return nil, err
	}
	config := rest.AddUserAgent(rest.CopyConfig(o.Config), "leader-election")
	config.Timeout = max(o.LeaderElectionLease/requestShare, leastRequest)
	config.QPS, config.RateLimiter = -1, nil // It makes one request after the other.
	leases, err := coordinationclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making the client of the lease: %w", err)
	}
	return &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Client: leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: holder()},
	}, nil
}

// leaderLock is the lock of a lease. It knows until when this process may act. A renewal that follows the one before too
// soon waits.
type leaderLock struct {
	resourcelock.Interface

	lease time.Duration
	clock clock.WithTicker
	// lost receives why this process must not act any more. Otherwise client-go tries for two thirds of a lease to get it back.
	lost chan error

	// mu guards lockedLeads and lockedSince.
	mu sync.Mutex
	// lockedLeads: this process had the lease when it was last written.
	lockedLeads bool
	// lockedSince is when the last request began by which this process has the lease, or may have; zero if it has not.
	lockedSince time.Time
}

func newLeaderLock(of resourcelock.Interface, lease time.Duration) *leaderLock {
	return &leaderLock{Interface: of, lease: lease, clock: clock.RealClock{}, lost: make(chan error, 1)}
}

// end ends the process, which leads.
func (l *leaderLock) end(why error) {
	select {
	case l.lost <- why:
	default: // It ends already.
	}
}

// held returns whether this process leads, and how long it may act; 0 if it has not requested the lease, or not for so long.
func (l *leaderLock) held() (leads bool, left time.Duration) {
	leads, since := l.renewed()
	return leads, max(0, l.longest()-since)
}

// check returns whether this process must end because its lease does, and else the time to the next check.
func (l *leaderLock) check() (over bool, next time.Duration) {
	leads, left := l.held()
	if left == 0 && !leads {
		left = l.longest() // It has as long from its election.
	}
	return left == 0, left
}

// longest is how long a process may act after the beginning of a renewal.
func (l *leaderLock) longest() time.Duration { return l.lease - l.lease/spareShare }

// between is the least time between the beginnings of two renewals.
func (l *leaderLock) between() time.Duration { return max(l.lease/warmRenewals, leastBetween) }

// renewed returns whether this process leads, and the time since the beginning of its last renewal.
func (l *leaderLock) renewed() (leads bool, since time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lockedLeads, l.clock.Since(l.lockedSince)
}

// Get implements resourcelock.Interface. If another process leads, this one was paused for longer than its lease, or a user
// has changed or deleted the Lease.
func (l *leaderLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if leads, _ := l.held(); leads && err == nil && record.HolderIdentity != "" && record.HolderIdentity != l.Identity() {
		l.end(fmt.Errorf("leader election lost: %s has the lease %s", record.HolderIdentity, l.Describe()))
	}
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (l *leaderLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Create)
}

// Update implements resourcelock.Interface. A renewal that waits when the process ends is not sent.
func (l *leaderLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	leads, since := l.renewed()
	if wait := l.between() - since; leads && record.HolderIdentity == l.Identity() && wait > 0 {
		timer := l.clock.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C():
		}
	}
	return l.write(ctx, record, l.Interface.Update)
}

func (l *leaderLock) write(ctx context.Context, record resourcelock.LeaderElectionRecord, write func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	mine, began := record.HolderIdentity == l.Identity(), l.clock.Now()
	if mine {
		record.RenewTime = metav1.NewTime(began) // client-go has set it before the wait.
	}
	l.mu.Lock()
	switch {
	case !mine:
		l.lockedLeads = false // Whatever the answer is.
	case !l.lockedLeads:
		l.lockedSince = began // The answer may be lost.
	}
	l.mu.Unlock()
	err := write(ctx, record)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil:
	case mine:
		l.lockedLeads, l.lockedSince = true, began
	default:
		l.lockedSince = time.Time{}
	}
	return err
}

// leased is a manager that leads by a lease.
type leased struct {
	manager.Manager

	lock *leaderLock
	// cut ends the contexts of all that the manager runs.
	cut func()
}

// newLeased returns a leased without its manager, and sets what that needs in its options.
func newLeased(lock *resourcelock.LeaseLock, lease time.Duration, sharing *sharing, options *manager.Options) *leased {
	acting, cut := context.WithCancel(context.Background()) //nolint:forbidigo // It ends with Start, and not with the context of Start.
	m := &leased{cut: cut, lock: newLeaderLock(lock, lease)}
	options.BaseContext = func() context.Context { return acting }
	options.LeaderElectionResourceLockInterface = m.lock
	if sharing != nil {
		options.LeaderElectionResourceLockInterface = sharing.claiming(lock, m.lock)
	}
	return m
}

// Start implements manager.Manager. When the manager has ended, it gives the lease back. If another process leads, or may lead soon,
// Start returns at once and nothing is awaited: the process must end.
//
// client-go does not end a leader that was paused for longer than its lease, but tries to get it back; nor one whose orderly end
// takes longer. When it gives a lease back, it judges whose that is by what it read before. And it does not repeat that: an API server
// that answered nothing for a time carries out then what was sent to it meanwhile. It may renew the lease for a leader that has
// given up, and the next one would wait for the whole lease.
func (m *leased) Start(ctx context.Context) error {
	defer m.cut()
	ctx, end := context.WithCancel(ctx)
	defer end()
	ended := make(chan error, 1)
	go func() { ended <- m.Manager.Start(ctx) }()
	check := m.lock.clock.NewTimer(m.lock.longest())
	defer check.Stop()
	for {
		select {
		case why := <-m.lock.lost:
			return why
		case err := <-ended:
			m.cut()
			m.giveBack(ctx)
			return err
		case <-check.C():
			over, next := m.lock.check()
			if over {
				return fmt.Errorf("leader election lost: the lease %s was not renewed in time", m.lock.Describe())
			}
			check.Reset(next)
		}
	}
}

// giveBack releases the lease if this process still holds it. ctx has ended if the process ends in order.
func (m *leased) giveBack(ctx context.Context) {
	_, left := m.lock.held()
	if left == 0 {
		return
	}
	if ctx.Err() != nil {
		left = min(left, orderlyGiveBack)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), left)
	defer cancel()
	for {
		held, err := m.release(ctx)
		switch {
		case apierrors.IsNotFound(err), err == nil && !held:
			return
		case err == nil:
			m.GetLogger().Info("the lease was given back", "lease", m.lock.Describe())
			return
		case apierrors.IsForbidden(err):
			cancel()
		}
		select {
		case <-ctx.Done():
			m.GetLogger().Info("the lease was not given back: another process may lead when it has expired", "lease", m.lock.Describe(), "error", err.Error())
			return
		case <-m.lock.clock.After(m.lock.lease / warmRetries):
		}
	}
}

// release releases the lease and returns true if this process holds it.
func (m *leased) release(ctx context.Context) (held bool, err error) {
	record, _, err := m.lock.Get(ctx)
	if err != nil || record.HolderIdentity != m.lock.Identity() {
		return false, err
	}
	return true, m.lock.Update(ctx, claim.Released(*record, m.lock.clock.Now()))
}
