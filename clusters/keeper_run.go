package clusters

import (
	"context"
	"time"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/clusters/kubeconfig"
)

// readingMessage is the message of a connection whose kubeconfig is not read yet.
const readingMessage = "reading the kubeconfig"

func (k *keeper) run(ctx context.Context) {
	defer k.end()
	timer := k.m.clock.NewTimer(idle)
	defer timer.Stop()
	for ctx.Err() == nil {
		wait, more := k.step(ctx)
		if !more && k.rest() {
			return
		}
		if !timer.Stop() {
			select {
			case <-timer.C():
			default:
			}
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-k.wake:
		case <-timer.C():
		}
	}
	k.disconnect()
}

// rest marks the goroutine as not running, unless a wake or a demand arrived meanwhile. It
// returns whether the goroutine must return.
func (k *keeper) rest() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.lockedState.forgotten && (len(k.wake) > 0 || len(k.lockedState.owners) > 0) {
		return false
	}
	k.lockedState.running = false
	return true
}

// end releases the requests that wait for the goroutine.
func (k *keeper) end() {
	k.mu.Lock()
	open := k.lockedState.open
	k.lockedState.open = checks{}
	k.mu.Unlock()
	if open.done != nil {
		close(open.done)
	}
}

// step reconciles the connection and returns the time until the next step. more is false
// when the keeper has nothing more to do.
func (k *keeper) step(ctx context.Context) (wait time.Duration, more bool) {
	k.mu.Lock()
	k.requested = k.lockedState.open
	k.lockedState.open = checks{}
	demanded := len(k.lockedState.owners) > 0 || k.ref.IsLocal()
	lingerEnd := k.lockedState.releasedAt.Add(k.m.timings.Linger)
	state := k.lockedState.snapshot.State
	k.mu.Unlock()
	if done := k.requested.done; done != nil {
		defer close(done)
	}
	if k.ref.IsLocal() {
		k.probeIfDue(ctx)
		return k.untilNext(), true
	}

	object, found := k.m.objects.find(k.ref)
	if found == presenceAbsent || object.Deleting {
		return idle, k.removed(demanded, object.Deleting)
	}
	now := k.m.clock.Now()
	if !demanded && !now.Before(lingerEnd) {
		k.release()
		return idle, false
	}
	if !demanded && state == capstanv1.ConnectionUnused {
		// Not demanded, but the linger is not over: after a restart, the Pipelines
		// that use the cluster may not have been read yet.
		return lingerEnd.Sub(now), true
	}
	k.apply(eventDemanded, readingMessage)
	if found == presenceUnknown {
		if problem := k.m.objects.problem(k.ref); problem != "" {
			k.apply(eventHubUnreadable, problem)
		}
	} else {
		if k.objectUID != "" && k.objectUID != object.UID {
			k.disconnect()
			k.apply(eventRemoved, k.ref.String()+" was replaced by another object of the same name")
			k.apply(eventDemanded, readingMessage)
		}
		k.objectUID = object.UID
		k.readSecretIfDue(ctx, object)
	}
	k.probeIfDue(ctx)
	k.reconcileHandover(ctx)
	k.reconcileEngagement(found == presencePresent && object.SelfManaged)
	k.publishOverdue()
	wait = k.untilNext()
	if !demanded {
		wait = min(wait, lingerEnd.Sub(k.m.clock.Now()))
	}
	return wait, true
}

// removed is the step of a cluster whose object is deleted, or is being deleted.
func (k *keeper) removed(demanded, deleting bool) (more bool) {
	message := k.ref.String() + " " + clusterKinds[k.ref.Kind].absent
	if deleting {
		message = k.ref.String() + " is being deleted"
	}
	k.disconnect()
	k.apply(eventRemoved, message)
	k.objectUID = ""
	if !demanded && !deleting {
		k.forget(k)
		return false
	}
	return demanded
}

// release is the step of a cluster that is not demanded any more.
func (k *keeper) release() {
	k.disconnect()
	k.mu.Lock()
	k.lockedState.kinds, k.lockedState.apps = nil, 0
	k.mu.Unlock()
	k.apply(eventReleased, "no Pipeline uses the cluster")
	k.publish()
}

// disconnect closes all connections and removes the credentials.
func (k *keeper) disconnect() {
	k.m.secrets.Drop(k.name)
	k.creds = credentialState{}
	k.dropCandidate()
	k.endDraining()
	k.health, k.waits = health{}, false
	k.nextProbe, k.versionAt = time.Time{}, time.Time{}
	k.mu.Lock()
	old := k.lockedState.connection
	k.lockedState.connection = nil
	s := &k.lockedState.snapshot
	s.Server, s.KubernetesVersion, s.ClusterUID, s.Credential = "", "", "", kubeconfig.Validity{}
	k.mu.Unlock()
	if old != nil {
		old.close()
	}
	k.reconcileEngagement(false)
}

// untilNext returns the time until the next step that no wake triggers.
func (k *keeper) untilNext() time.Duration {
	now := k.m.clock.Now()
	wait := idle
	sooner := func(at time.Time) {
		if !at.IsZero() {
			wait = min(wait, max(at.Sub(now), 0))
		}
	}
	sooner(k.creds.retryAt)
	sooner(k.handover.retryAt)
	sooner(k.handover.drained)
	sooner(k.briefUntil())
	if k.connection() != nil && k.creds.usable {
		sooner(k.nextProbe)
	}
	return wait
}
