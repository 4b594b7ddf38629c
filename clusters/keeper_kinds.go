package clusters

import (
	"fmt"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// judgeKinds applies the event that follows when only the watched kinds may have changed.
func (k *keeper) judgeKinds() {
	if k.health.good == 0 || !passes(k.outcome().State) {
		return
	}
	failing := k.kindsProblem()
	e := k.moving(k.health.verdict(k.outcome(), failing == nil))
	k.apply(e, k.describe(e, nil, failing))
}

// moving replaces eventHealthy by eventNewServer while the server that the kubeconfig
// names cannot be used.
func (k *keeper) moving(e event) event {
	if e == eventHealthy && k.handover.problem != "" {
		return eventNewServer
	}
	return e
}

// kindsProblem returns a copy of the first kind that makes the cluster Degraded, or nil.
func (k *keeper) kindsProblem() *capstanv1.WatchedKind {
	k.mu.Lock()
	defer k.mu.Unlock()
	return failingKind(k.lockedState.kinds).DeepCopy()
}

// describe returns the message for users.
func (k *keeper) describe(e event, problem error, failing *capstanv1.WatchedKind) string {
	switch {
	case e == eventHealthy:
		return "connected"
	case e == eventNewServer:
		return k.handover.problem
	case e == eventKinds && failing != nil:
		return fmt.Sprintf("%s cannot be watched: %s: %s", failing.Kind, failing.Reason, failing.Message)
	case e == eventUnauthorized && !k.ref.IsLocal():
		return fmt.Sprintf("%s with the credentials of Secret %s: renew them there", problem, k.creds.secret)
	case problem != nil:
		return problem.Error()
	}
	return ""
}
