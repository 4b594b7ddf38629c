package clusters

import (
	"context"
	"time"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/internal/backoff"
)

// probeJitter is the share by which the times between probes are spread, so that the
// hub does not probe all clusters at once.
const probeJitter = 0.2

// probeIfDue probes if it is time, and draws the conclusions.
func (k *keeper) probeIfDue(ctx context.Context) {
	connection := k.connection()
	if connection == nil || !k.creds.usable {
		return
	}
	now := k.m.clock.Now()
	was := k.outcome()
	if passes(was.State) && k.health.bad == 0 && was != probeFailing {
		// Heard of lately is as good as probed.
		if heard := connection.LastContact(); !heard.IsZero() {
			if due := heard.Add(k.m.timings.ProbeInterval); due.After(k.nextProbe) {
				k.nextProbe = due
			}
		}
	}
	if !k.requested.any() && now.Before(k.nextProbe) {
		k.judgeKinds()
		return
	}
	result, problem := k.probe(ctx, connection)
	if ctx.Err() != nil || k.connection() != connection || !k.creds.usable {
		return // ended; or a 401 led to another connection, or to a Secret that is gone
	}
	now = k.m.clock.Now()
	// A server that did not answer is asked by nobody else until it does: see
	// transport.Options.Doubt.
	k.unanswered = result == probeUnanswered
	// Where requests park, all that was heard are the answers to these probes.
	silent := !passes(was.State) || now.Sub(connection.LastContact()) >= k.m.timings.Silence
	failing := k.kindsProblem(now)
	e := k.moving(k.health.judge(result, was, silent, failing == nil))
	if result == probeGood && now.Sub(k.versionAt) >= versionAge {
		k.identify(ctx, connection)
	}
	k.apply(e, k.describe(e, problem, failing))
	k.nextProbe = now.Add(k.untilProbe(e))
}

// probe probes, with the Secret read again if the credentials are rejected. While
// the connection is not up it takes a place among those that may dial.
func (k *keeper) probe(ctx context.Context, connection *Connection) (probeResult, error) {
	if !passes(k.outcome().State) {
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
		connection.transport.CloseConnections() // the next probe dials: this TCP connection may be dead
	}
	return result, problem
}

// identify reads what tells the cluster.
func (k *keeper) identify(ctx context.Context, connection *Connection) {
	ctx, cancel := context.WithTimeout(ctx, k.m.timings.ProbeTimeout)
	defer cancel()
	version, uid := connection.identify(ctx)
	k.versionAt = k.m.clock.Now()
	k.mu.Lock()
	if version != "" {
		k.lockedState.snapshot.KubernetesVersion = version
	}
	if uid != "" {
		k.lockedState.snapshot.ClusterUID = uid
	}
	k.mu.Unlock()
	k.publish()
}

// untilProbe is the wait after a probe.
func (k *keeper) untilProbe(e event) time.Duration {
	state := k.outcome().State
	switch state {
	case capstanv1.ConnectionReady, capstanv1.ConnectionDegraded:
		if k.health.bad > 0 || e == eventAnswered {
			return k.m.timings.ProbeRetry
		}
		k.lostWait.Reset()
		k.authWait.Reset()
		k.failed = false
		return backoff.Spread(k.m.timings.ProbeInterval, probeJitter, nil)
	case capstanv1.ConnectionUnreachable:
		if k.health.good > 0 {
			return k.m.timings.ProbeRetry
		}
		return k.lostWait.Wait()
	case capstanv1.ConnectionAuthFailed:
		return k.authWait.Wait()
	case capstanv1.ConnectionUnused, capstanv1.ConnectionConnecting, capstanv1.ConnectionRemoved:
	}
	return k.m.timings.ProbeRetry
}
