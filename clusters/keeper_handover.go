package clusters

import (
	"context"
	"fmt"
	"time"

	"github.com/capstan-hub/capstan/clusters/kubeconfig"
	"github.com/capstan-hub/capstan/internal/backoff"
)

// handover is what a keeper has beside the connection in use.
type handover struct {
	// candidate is a connection to the server that the Secret names now; nil for none.
	// It takes over when the server answers and is the same cluster.
	candidate *Connection
	expiry    time.Time // of its credentials
	source    string    // of its kubeconfig, for people
	retryAt   time.Time
	wait      backoff.Sequence
	problem   string // why it has not taken over, for people; "" while nobody knows
	// draining is the connection before: informers leave it when they are synced over
	// the present one, at the latest at drained.
	draining *Connection
	drained  time.Time
}

// addCandidate begins a connection to another server, or with another CA, beside the one
// in use.
func (k *keeper) addCandidate(ctx context.Context, config *kubeconfig.Config, source string) error {
	if c := k.handover.candidate; c != nil {
		if change := kubeconfig.Classify(c.fingerprint, config.Fingerprint()); change != kubeconfig.Endpoint {
			k.handover.retryAt, k.handover.expiry = time.Time{}, config.Expiry()
			return c.rotate(config, change)
		}
	}
	k.dropCandidate()
	candidate, err := k.m.newConnection(ctx, k.snapshot().Epoch+1, config, k.hooks())
	if err != nil {
		return err
	}
	k.handover.candidate, k.handover.expiry, k.handover.source = candidate, config.Expiry(), source
	k.handover.wait = backoff.NewSequence(k.m.timings.UnreachableRetry, k.m.timings.UnreachableRetryMax)
	k.log.Info("the cluster moves, trying the new server beside the old", "server", config.Server.Host)
	return nil
}

// dropCandidate forgets it.
func (k *keeper) dropCandidate() {
	if c := k.handover.candidate; c != nil {
		c.close()
	}
	k.handover.candidate, k.handover.problem, k.handover.retryAt = nil, "", time.Time{}
}

// endDraining closes the connection before.
func (k *keeper) endDraining() {
	if c := k.handover.draining; c != nil {
		c.close()
	}
	k.handover.draining, k.handover.drained = nil, time.Time{}
}

// reconcileHandover brings forward what is beside the connection in use.
func (k *keeper) reconcileHandover(ctx context.Context) {
	passing := passes(k.outcome().State)
	if !passing || !k.m.clock.Now().Before(k.handover.drained) {
		k.endDraining()
	}
	candidate := k.handover.candidate
	switch {
	case candidate == nil:
	case !passing:
		k.replace("dialling " + candidate.server.Host) // There is nothing to keep.
	case !k.m.clock.Now().Before(k.handover.retryAt):
		k.tryCandidate(ctx, candidate)
	}
}

// tryCandidate asks the new server once, and has it take over if it is the same
// cluster's.
func (k *keeper) tryCandidate(ctx context.Context, candidate *Connection) {
	ctx, cancel := context.WithTimeout(ctx, 2*k.m.timings.ProbeTimeout) // For its turn, and the calls.
	defer cancel()
	release, err := k.m.dials.acquire(ctx, k.handover.problem != "")
	if err == nil {
		defer release()
		start := k.m.clock.Now()
		result, problem := candidate.probe(ctx)
		k.m.metrics.probed(result, k.m.clock.Since(start))
		if err = problem; result == probeGood {
			version, uid := candidate.identify(ctx)
			if known := k.snapshot().ClusterUID; uid == "" || uid != known {
				// Another cluster, or nobody can tell: nothing known holds for it.
				k.replace("dialling " + candidate.server.Host + ", which is another cluster or hides its identity")
				return
			}
			k.takeOver(version)
			return
		}
	}
	candidate.transport.CloseConnections() // The next attempt dials.
	k.handover.retryAt = k.m.clock.Now().Add(k.handover.wait.Wait())
	if err != nil {
		k.handover.problem = fmt.Sprintf("%s names the server %s, which cannot be used: %s; the one before is used as long as it answers",
			k.handover.source, candidate.server.Host, err)
	}
	k.judgeKinds()
}

// takeOver makes the candidate the connection in use. The state stays.
func (k *keeper) takeOver(version string) {
	k.endDraining()
	k.handover.draining, k.handover.drained = k.connection(), k.m.clock.Now().Add(k.m.timings.Handover)
	k.health, k.unanswered = health{good: steadyThreshold, probed: true}, false
	k.versionAt = k.m.clock.Now()
	k.nextProbe = k.versionAt.Add(backoff.Spread(k.m.timings.ProbeInterval, probeJitter, nil))
	k.use(eventAnswered, "", func(s *keeperState) { s.snapshot.KubernetesVersion = version })
	k.judgeKinds()
}

// replace makes the candidate the connection in use, and begins anew: nothing known
// holds for it.
func (k *keeper) replace(message string) {
	old := k.connection()
	k.endDraining()
	k.health, k.unanswered, k.versionAt, k.nextProbe = health{}, false, time.Time{}, k.m.clock.Now()
	k.use(eventReplaced, message, func(s *keeperState) { s.snapshot.ClusterUID, s.snapshot.KubernetesVersion = "", "" })
	old.close() // Listeners know of the new one by now.
}

// use puts the candidate into use.
func (k *keeper) use(e event, message string, edit func(*keeperState)) {
	candidate, expiry := k.handover.candidate, k.handover.expiry
	k.handover.candidate, k.handover.problem, k.handover.retryAt = nil, "", time.Time{}
	k.m.metrics.rotated(kubeconfig.Endpoint)
	k.change(e, message, func(s *keeperState) {
		s.connection, s.snapshot.Epoch = candidate, candidate.epoch
		s.snapshot.Server, s.snapshot.CredentialExpiry = candidate.server.String(), expiry
		edit(s)
	})
}
