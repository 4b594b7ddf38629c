package hub

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

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
	// With warm standbys it does every fiftieth of it, 0.6 s of 30 s. A standby reads the lease as
	// often, up to 2.2 times less: it takes over at once when the leader ends in order.
	warmRetries = 50
	// One request takes a fifteenth of the duration at most, 2 s of 30 s. A leader must end before
	// another may take over. From the last renewal that the others see, the contexts of all that acts end after the rest of
	// that request, the time to the next one, and the 20 s: 2 + 4 + 20 = 26 s at most, with warm standbys 22.6 s.
	// controller-runtime's own lock gives each request half of the deadline, which is too long for that. Of a lease of less
	// than 15 s, where a request may take leastRequest, a leader may end up to 2 s late.
	requestShare = 15
	leastRequest = time.Second
	// A process whose manager has ended tries to give the lease back for an eighth of the duration, 3.75 s of 30 s, so
	// that it ends within 30 s, too. What was under way may record meanwhile what it did.
	giveBackShare = 8
)

// retryPeriod is how often the lease is renewed by its holder, and read by the others.
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

// leaderLock is the lock of leader election. Leader election uses it from one goroutine, and giveBack after that has ended.
type leaderLock struct {
	resourcelock.Interface

	// lost receives why this process must not act any more. Otherwise client-go tries for two thirds of a lease to get it back.
	lost chan error
	// requested: the lease may be this process's. leads: it was when it was last written.
	requested, leads bool
}

// end ends the process, which leads.
func (l *leaderLock) end(why error) {
	select {
	case l.lost <- why:
	default: // It ends already.
	}
}

// Get implements resourcelock.Interface. If another process leads, this one was paused for longer than its lease, or a user
// has changed or deleted the Lease.
func (l *leaderLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil && l.leads && record.HolderIdentity != "" && record.HolderIdentity != l.Identity() {
		l.end(fmt.Errorf("leader election lost: %s has the lease %s", record.HolderIdentity, l.Describe()))
	}
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (l *leaderLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Create)
}

// Update implements resourcelock.Interface.
func (l *leaderLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Update)
}

func (l *leaderLock) write(ctx context.Context, record resourcelock.LeaderElectionRecord, write func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	mine := record.HolderIdentity == l.Identity()
	l.requested = l.requested || mine
	err := write(ctx, record)
	if err == nil {
		l.requested, l.leads = mine, mine
	}
	return err
}

// leased is a manager that leads by a lease.
type leased struct {
	manager.Manager

	lock  *leaderLock
	lease time.Duration
	clock clock.Clock
}

// Start implements manager.Manager. When the manager has ended, it gives the lease back: the contexts of all that acts have ended
// then. If another process leads, Start returns at once and nothing is awaited: the process must end.
//
// client-go would give it back earlier, while all that acts still does, and without a look at who has it. It would also not repeat
// that: an API server that answered nothing for a time carries out then what was sent to it meanwhile. It may renew
// the lease for a leader that has given up, and the next one would wait for the whole lease.
func (m *leased) Start(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	ended := make(chan error, 1)
	go func() { ended <- m.Manager.Start(ctx) }()
	select {
	case why := <-m.lock.lost:
		return why
	case err := <-ended:
		if m.lock.requested {
			m.giveBack(context.WithoutCancel(ctx))
		}
		return err
	}
}

// giveBack releases the lease if this process still holds it.
func (m *leased) giveBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, m.lease/giveBackShare)
	defer cancel()
	for {
		held, err := m.release(ctx)
		switch {
		case err == nil && held:
			m.GetLogger().Info("the lease was given back", "lease", m.lock.Describe())
			return
		case err == nil:
			return
		}
		select {
		case <-ctx.Done():
			m.GetLogger().Info("the lease was not given back: another process may lead when it has expired", "lease", m.lock.Describe(), "error", err.Error())
			return
		case <-m.clock.After(m.lease / warmRetries):
		}
	}
}

// release releases the lease and returns true if this process holds it.
func (m *leased) release(ctx context.Context) (held bool, err error) {
	record, _, err := m.lock.Get(ctx)
	if err != nil || record.HolderIdentity != m.lock.Identity() {
		return false, err
	}
	return true, m.lock.Update(ctx, claim.Released(*record, m.clock.Now()))
}
