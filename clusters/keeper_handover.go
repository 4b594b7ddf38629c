package clusters

import (
	"context"
	"fmt"
	"time"

	"github.com/capstan-hub/capstan/clusters/kubeconfig"
	"github.com/capstan-hub/capstan/internal/backoff"
)

// handover holds the connections that a keeper has in addition to the one in use.
type handover struct {
	// candidate is a connection to the server that the Secret names now; nil if there is
	// none. It replaces the connection in use when the server responds and belongs to the
	// same cluster.
	candidate *Connection
	validity  kubeconfig.Validity // of its credentials
	source    string              // of its kubeconfig, for users
	retryAt   time.Time
	wait      backoff.Sequence
	problem   string // why it is not in use yet, for users; "" until an attempt failed
	// draining is the previous connection. Informers leave it when they are synced over
	// the present one. It is closed at drained at the latest.
	draining *Connection
	drained  time.Time
}

// addCandidate makes a connection to another server, or with another CA. The connection
// in use stays.
func (k *keeper) addCandidate(ctx context.Context, config *kubeconfig.Config, source string) error {
	if c := k.handover.candidate; c != nil {
		if change := kubeconfig.Classify(c.fingerprint, config.Fingerprint()); change != kubeconfig.Endpoint {
			k.handover.retryAt, k.handover.validity = time.Time{}, config.Validity()
			return c.rotate(config, change)
		}
	}
	k.dropCandidate()
	candidate, err := k.m.newConnection(ctx, k.snapshot().Epoch+1, config, k.hooks())
	if err != nil {
		return err
	}
	k.handover.candidate, k.handover.validity, k.handover.source = candidate, config.Validity(), source
	k.handover.wait = backoff.NewSequence(k.m.timings.UnreachableRetry, k.m.timings.UnreachableRetryMax)
	k.log.Info("the kubeconfig names another server: connecting to it, the previous connection stays in use", "server", config.Server.Host)
	return nil
}

// dropCandidate closes and removes the candidate.
func (k *keeper) dropCandidate() {
	if c := k.handover.candidate; c != nil {
		c.close()
	}
	k.handover.candidate, k.handover.problem, k.handover.retryAt = nil, "", time.Time{}
}

// endDraining closes the previous connection.
func (k *keeper) endDraining() {
	if c := k.handover.draining; c != nil {
		c.close()
	}
	k.handover.draining, k.handover.drained = nil, time.Time{}
}

// reconcileHandover tries the candidate and closes the previous connection, each when it
// is due.
func (k *keeper) reconcileHandover(ctx context.Context) {
	passing := passes(k.outcome().State)
	if !passing || !k.m.clock.Now().Before(k.handover.drained) {
		k.endDraining()
	}
	candidate := k.handover.candidate
	switch {
	case candidate == nil:
	case !passing:
		k.replace("dialling " + candidate.server.Host) // The connection in use does not work.
	case !k.m.clock.Now().Before(k.handover.retryAt):
		k.tryCandidate(ctx, candidate)
	}
}

// tryCandidate probes the new server once. The candidate becomes the connection in use if
// the server responds.
func (k *keeper) tryCandidate(ctx context.Context, candidate *Connection) {
	ctx, cancel := context.WithTimeout(ctx, 2*k.m.timings.ProbeTimeout) // For the wait for a place, and the calls.
	defer cancel()
	release, err := k.m.dials.acquire(ctx, k.handover.problem != "")
	if err == nil {
		defer release()
		start := k.m.clock.Now()
		result, problem := candidate.probe(ctx)
		k.m.metrics.probed(result, k.m.clock.Since(start))
		if err = problem; result == probeGood {
			version, uid := candidate.identify(ctx)
			if !k.sameCluster(candidate, uid) {
				// It is, or may be, another cluster: no earlier observation applies to it.
				k.replace("dialling " + candidate.server.Host + ", which is another cluster or does not show its identity")
				return
			}
			k.takeOver(version)
			return
		}
	}
	candidate.transport.CloseConnections() // The next attempt dials.
	k.handover.retryAt = k.m.clock.Now().Add(k.handover.wait.Wait())
	if err != nil {
		k.handover.problem = fmt.Sprintf("%s names the server %s, which cannot be used: %s; the previous server is used while it answers",
			k.handover.source, candidate.server.Host, err)
	}
	k.judgeKinds()
}

// sameCluster reports whether the candidate leads to the cluster of the connection in use.
// Its UID shows that. The credentials may be allowed to read the UID of neither: then it is
// the same cluster if only the CA is new, and the address is the same.
func (k *keeper) sameCluster(candidate *Connection, uid string) bool {
	known := k.snapshot().ClusterUID
	if uid == "" && known == "" {
		return candidate.server.String() == k.connection().server.String()
	}
	return uid == known
}

// takeOver makes the candidate the connection in use. The state does not change.
func (k *keeper) takeOver(version string) {
	k.endDraining()
	k.handover.draining, k.handover.drained = k.connection(), k.m.clock.Now().Add(k.m.timings.Handover)
	k.health, k.waits = health{good: steadyThreshold, probed: true}, false
	k.versionAt = k.m.clock.Now()
	k.nextProbe = k.versionAt.Add(k.probeInterval())
	k.use(eventAnswered, "", func(s *keeperState) { s.snapshot.KubernetesVersion = version })
	k.judgeKinds()
}

// replace makes the candidate the connection in use and resets all observations: none of
// them applies to the new server.
func (k *keeper) replace(message string) {
	old := k.connection()
	k.endDraining()
	k.health, k.waits, k.versionAt, k.nextProbe = health{}, false, time.Time{}, k.m.clock.Now()
	k.use(eventReplaced, message, func(s *keeperState) { s.snapshot.ClusterUID, s.snapshot.KubernetesVersion = "", "" })
	old.close() // Listeners were notified of the new one before.
}

// use makes the candidate the connection in use and applies an event.
func (k *keeper) use(e event, message string, edit func(*keeperState)) {
	candidate, validity := k.handover.candidate, k.handover.validity
	k.handover.candidate, k.handover.problem, k.handover.retryAt = nil, "", time.Time{}
	k.m.metrics.rotated(kubeconfig.Endpoint)
	k.change(e, message, func(s *keeperState) {
		s.connection, s.snapshot.Epoch = candidate, candidate.epoch
		s.snapshot.Server, s.snapshot.Credential = candidate.server.String(), validity
		edit(s)
	})
}
