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
	// another may take over. From the last renewal that the others see, it ends after the rest of that
	// request, the time to the next one, the 20 s, and the two requests with which client-go releases a
	// lease: 2 + 4 + 20 + 2 × 2 s = 30 s at most, with warm standbys 26.6 s. controller-runtime's own
	// lock gives each request half of the deadline, which is too long for that. Of a lease of less than
	// 15 s, where a request may take leastRequest, a leader may end up to 2 s late.
	requestShare = 15
	leastRequest = time.Second
	// A process that lost its lease tries to give it back for an eighth of the duration, 3.75 s of 30 s, before it ends: it ends
	// before another one may lead, as a rule, although it starts nothing any more.
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

// leased is a manager that leads by a lease.
type leased struct {
	manager.Manager

	lock  resourcelock.Interface
	lease time.Duration
	clock clock.Clock
}

// Start implements manager.Manager. If the lease was lost, it gives it back when the contexts of all that acts have ended; that it has returned is
// not awaited, as if the process had ended. An API server that
// answered nothing for a time carries out then what was sent to it meanwhile. It may renew the lease for a leader that has
// given up, and the next one would wait for the whole lease.
func (m *leased) Start(ctx context.Context) error {
	err := m.Manager.Start(ctx)
	if err != nil && ctx.Err() == nil {
		m.giveBack(ctx)
	}
	return err
}

// giveBack releases the lease if this process still holds it.
func (m *leased) giveBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, m.lease/giveBackShare)
	defer cancel()
	for ctx.Err() == nil {
		switch held, err := m.release(ctx); {
		case err == nil && held:
			m.GetLogger().Info("the lease was given back", "lease", m.lock.Describe())
			return
		case err == nil:
			return
		}
		select {
		case <-ctx.Done():
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
