package clusters

import (
	"cmp"
	"context"
	"time"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/internal/backoff"
)

// probeJitter is the largest share by which the time between probes is shortened, so that
// the hub does not probe all clusters at the same time. It is never lengthened: with one lost
// probe, a silent cluster must still answer before its observations are stale.
const probeJitter = 0.2

// lostJitter is that of the wait for an unreachable cluster.
const lostJitter = 0.5

// identityTimeout bounds how long the end of an outage waits for the identity of the cluster.
const identityTimeout = time.Second

// probeIfDue probes when a probe is due, and applies the event that follows.
func (k *keeper) probeIfDue(ctx context.Context) {
	connection := k.connection()
	if connection == nil || !k.creds.usable {
		return
	}
	now := k.m.clock.Now()
	was := k.outcome()
	if passes(was.State) && k.health.bad == 0 && was != probeFailing {
		// A recent contact has the same value as a probe.
		if contact := connection.LastContact(); !contact.IsZero() {
			if due := contact.Add(k.m.timings.ProbeInterval); due.After(k.nextProbe) {
				k.nextProbe = due
			}
		}
	}
	// After a 401, requests that were under way may get 401, too. They wait for the planned probe.
	if (!k.requested.any() || k.health.rejected > 0) && now.Before(k.nextProbe) {
		k.judgeKinds()
		return
	}
	result, problem := k.probe(ctx, connection)
	if ctx.Err() != nil || k.connection() != connection || !k.creds.usable {
		return // The context ended, or a 401 led to another connection or a missing Secret.
	}
	now = k.m.clock.Now()
	// While requests wait, the responses to these probes are the only contact.
	silent := !passes(was.State) || now.Sub(connection.LastContact()) >= k.m.timings.Silence
	failing := k.kindsProblem()
	e := k.moving(k.health.judge(result, was, silent, failing == nil))
	// While a server does not respond, or rejects credentials that worked, only probes are
	// sent to it: see transport.Options.CheckServer and Reauthenticate.
	k.waits = result == probeUnanswered || e == eventRejected
	if !passes(was.State) && passes(next(was, e).State) && k.snapshot().ClusterUID != "" {
		// Another cluster may answer at the address after the outage. The observations of
		// the old one must not become fresh.
		k.identify(ctx, connection, identityTimeout)
	}
	k.apply(e, k.describe(e, problem, failing))
	k.nextProbe = now.Add(k.untilProbe(e))
	if passes(k.outcome().State) && result == probeGood && now.Sub(k.versionAt) >= versionAge {
		k.identify(ctx, connection, k.m.timings.ProbeTimeout)
		k.versionAt = k.m.clock.Now()
	}
}

// probe probes the server. If the credentials are rejected, it reads the Secret again and
// repeats the probe. While the connection does not work, it first waits for a place to
// dial. The management cluster does not wait: unreachable workload clusters may hold all
// places.
func (k *keeper) probe(ctx context.Context, connection *Connection) (probeResult, error) {
	if !k.ref.IsLocal() && !passes(k.outcome().State) {
		release, err := k.m.dials.acquire(ctx, k.failed)
		if err != nil {
			return probeUnanswered, err
		}
		defer release()
	}
	result, problem := k.probeOnce(ctx, connection)
	if result == probe401 && !k.ref.IsLocal() && k.readSecret(ctx) && k.connection() == connection {
		result, problem = k.probeOnce(ctx, connection)
	}
	k.failed = k.failed || result != probeGood
	return result, problem
}

func (k *keeper) probeOnce(ctx context.Context, connection *Connection) (probeResult, error) {
	ctx, cancel := context.WithTimeout(ctx, k.m.timings.ProbeTimeout)
	defer cancel()
	start := k.m.clock.Now()
	result, problem := connection.probe(ctx)
	k.m.metrics.probed(result, k.m.clock.Since(start))
	if result == probeUnanswered && !passes(k.outcome().State) {
		connection.transport.CloseConnections() // The next probe dials: this TCP connection may be broken.
	}
	return result, problem
}

// identify reads the version and the identity of the cluster and publishes them.
func (k *keeper) identify(ctx context.Context, connection *Connection, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	version, uid := connection.identify(ctx)
	if version != "" || uid != "" {
		k.versionAt = k.m.clock.Now()
	}
	k.identified(version, uid)
	k.publish()
}

// identified stores what was read of the cluster; "" is not known. The listeners learn that it is
// another cluster than before.
func (k *keeper) identified(version, uid string) {
	k.mu.Lock()
	from := k.snapshotLocked()
	s := &k.lockedState.snapshot
	s.KubernetesVersion, s.ClusterUID = cmp.Or(version, s.KubernetesVersion), cmp.Or(uid, s.ClusterUID)
	to := k.snapshotLocked()
	k.mu.Unlock()
	last := k.lastUID
	k.lastUID = cmp.Or(uid, last)
	if last != "" && last != k.lastUID {
		k.notify(from, to)
	}
}

// probeInterval returns the time between two probes of a cluster that is well.
func (k *keeper) probeInterval() time.Duration {
	return backoff.Policy{First: k.m.timings.ProbeInterval, Max: k.m.timings.ProbeInterval, Jitter: probeJitter}.Wait(0)
}

// untilProbe returns the time until the next probe.
func (k *keeper) untilProbe(e event) time.Duration {
	state := k.outcome().State
	switch state {
	case capstanv1.ConnectionReady, capstanv1.ConnectionDegraded:
		if e == eventRejected {
			return k.m.timings.AuthRecheck << (k.health.rejected - 1)
		}
		if k.health.bad > 0 {
			return k.m.timings.ProbeRetry
		}
		if e == eventAnswered {
			return k.confirmation()
		}
		k.lostWait.Reset()
		k.authWait.Reset()
		k.failed = false
		return k.probeInterval()
	case capstanv1.ConnectionUnreachable:
		if k.health.good > 0 {
			return k.confirmation()
		}
		// A quarter of the outage at most: the first answer is found soon after it.
		most := max(k.m.timings.UnreachableRetry, k.m.clock.Since(k.snapshot().Since)/4)
		return min(k.lostWait.Wait(), backoff.Policy{First: most, Max: most, Jitter: lostJitter}.Wait(0))
	case capstanv1.ConnectionAuthFailed:
		return k.authWait.Wait()
	case capstanv1.ConnectionUnused, capstanv1.ConnectionConnecting, capstanv1.ConnectionRemoved:
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lockedState.worked {
		return k.m.timings.ProbeRetry // The network of a hub that has just started may not be there yet.
	}
	return k.m.timings.ConnectRetry
}

// steadyFor is how long a cluster must have worked so that its next outage ends after
// Timings.ProbeConfirm.
const steadyFor = time.Minute

// confirmation returns the time until the probe that confirms the end of an outage.
func (k *keeper) confirmation() time.Duration {
	if !k.returned.IsZero() && k.failedAt.Sub(k.returned) < steadyFor {
		return k.m.timings.ProbeRetry // It flaps.
	}
	return k.m.timings.ProbeConfirm
}
