package clusters

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/internal/backoff"
)

// SelfManagedOwner is the owner of the demand that SelfManagedLabel is.
const SelfManagedOwner = "self-managed"

// idle is the wait of a keeper that only a wake concerns.
const idle = time.Hour

// readingMessage of a connection whose kubeconfig is not read yet.
const readingMessage = "reading the kubeconfig"

// versionAge after which a probe also reads the version again: an upgrade that
// nobody noticed.
const versionAge = 10 * time.Minute

// keeper looks after one cluster. Its goroutine (run) does all that can block for
// that cluster, each with a deadline; it is level-triggered: whatever woke it, a
// step looks at everything.
type keeper struct {
	m    *Manager
	name multicluster.ClusterName
	ref  Ref
	log  logr.Logger
	wake chan struct{} // of capacity 1: wakes fold

	mu          sync.Mutex
	lockedState keeperState

	// What follows belongs to the goroutine alone.

	objectUID types.UID
	creds     credentialState
	beside    beside
	health    health
	engaged   int64     // epoch
	failed    bool      // has failed in this run: dials in the retry lane
	asked     questions // that the present step answers
	doubted   bool      // the last probe got no answer
	nextProbe time.Time
	versionAt time.Time // when identify was done; zero: to be done
	lostWait  backoff.Sequence
	authWait  backoff.Sequence
}

// keeperState is what others read and write.
type keeperState struct {
	running   bool // the goroutine
	forgotten bool // the Manager does not know the keeper any more
	owners    map[string]struct{}
	// releasedAt is when the last owner left.
	releasedAt time.Time
	snapshot   Snapshot // without LastContact
	connection *Connection
	kinds      []capstanv1.WatchedKind
	kindSince  map[string]time.Time // when each kind was first reported unsynced
	apps       int
	// open are the questions that requests wait for the next step to answer.
	open questions
}

// questions of requests, answered by a look at the Secret, a probe, or both.
type questions struct {
	rejected bool // a request met 401
	lost     bool // a request got no answer
	// answered is closed then; nil when nobody asks.
	answered chan struct{}
}

func (q questions) any() bool { return q.rejected || q.lost }

// credentialState is what is known of a cluster's Secret, without a byte of it.
type credentialState struct {
	read        bool // at least once
	secret      types.NamespacedName
	readVersion string // of the Secret when read; "" it did not exist
	seenVersion string // the last that the watch told
	usable      bool   // accepted, and not missed or refused since
	retryAt     time.Time
}

func newKeeper(m *Manager, name multicluster.ClusterName, ref Ref) *keeper {
	k := &keeper{
		m: m, name: name, ref: ref,
		log:      m.log.WithValues("cluster", string(name)),
		wake:     make(chan struct{}, 1),
		lostWait: backoff.NewSequence(m.timings.UnreachableRetry, m.timings.UnreachableRetryMax),
		authWait: backoff.NewSequence(m.timings.AuthRetry, m.timings.AuthRetryMax),
	}
	k.lockedState.owners = map[string]struct{}{}
	k.lockedState.releasedAt = m.clock.Now()
	k.lockedState.snapshot = Snapshot{Name: name, State: unused.State, Reason: unused.Reason, Since: m.clock.Now()}
	return k
}

// own adds an owner; true if that makes a difference.
func (k *keeper) own(owner string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	first := len(k.lockedState.owners) == 0
	k.lockedState.owners[owner] = struct{}{}
	return first
}

// disown takes an owner away; true if that makes a difference.
func (k *keeper) disown(owner string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.lockedState.owners[owner]; !ok {
		return false
	}
	delete(k.lockedState.owners, owner)
	k.lockedState.releasedAt = k.m.clock.Now()
	return len(k.lockedState.owners) == 0
}

// report takes what watchers say of the kinds.
func (k *keeper) report(kinds []capstanv1.WatchedKind, apps int) {
	kinds = slices.Clone(kinds)
	slices.SortFunc(kinds, func(a, b capstanv1.WatchedKind) int { return cmp.Compare(a.Kind, b.Kind) })
	kinds = slices.CompactFunc(kinds, func(a, b capstanv1.WatchedKind) bool { return a.Kind == b.Kind })
	now := k.m.clock.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	since := map[string]time.Time{}
	for _, kind := range kinds {
		if kind.Synced {
			continue
		}
		since[kind.Kind] = now
		if at, ok := k.lockedState.kindSince[kind.Kind]; ok {
			since[kind.Kind] = at
		}
	}
	k.lockedState.kinds, k.lockedState.kindSince, k.lockedState.apps = kinds, since, apps
}

// takeOff marks the goroutine as running; false if it is, or must not.
func (k *keeper) takeOff() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lockedState.running || k.lockedState.forgotten {
		return false
	}
	k.lockedState.running = true
	return true
}

// land marks it as not running.
func (k *keeper) land() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lockedState.running = false
}

// poke makes the goroutine look; it need not be running.
func (k *keeper) poke() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

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

// rest ends the goroutine if nothing came in between.
func (k *keeper) rest() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.lockedState.forgotten && (len(k.wake) > 0 || len(k.lockedState.owners) > 0) {
		return false
	}
	k.lockedState.running = false
	return true
}

// end lets go whoever waits for the goroutine.
func (k *keeper) end() {
	k.mu.Lock()
	open := k.lockedState.open
	k.lockedState.open = questions{}
	k.mu.Unlock()
	if open.answered != nil {
		close(open.answered)
	}
}

// step brings the connection to where it should be and says when to look again;
// more is false when there is nothing left to look after.
func (k *keeper) step(ctx context.Context) (wait time.Duration, more bool) {
	k.mu.Lock()
	k.asked = k.lockedState.open
	k.lockedState.open = questions{}
	demanded := len(k.lockedState.owners) > 0 || k.ref.IsLocal()
	lingerEnd := k.lockedState.releasedAt.Add(k.m.timings.Linger)
	state := k.lockedState.snapshot.State
	k.mu.Unlock()
	if answered := k.asked.answered; answered != nil {
		defer close(answered)
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
		// Not used, and not yet long enough to say so: after a restart its
		// Pipelines may not have been read yet.
		return lingerEnd.Sub(now), true
	}
	k.apply(eventDemanded, readingMessage)
	if found == presenceUnknown {
		if problem := k.m.objects.problem(k.ref.Kind); problem != "" {
			k.apply(eventHubSilent, problem)
		}
	} else {
		if k.objectUID != "" && k.objectUID != object.UID {
			k.disconnect()
			k.apply(eventGone, k.ref.String()+" was replaced by another of the same name")
			k.apply(eventDemanded, readingMessage)
		}
		k.objectUID = object.UID
		k.readSecretIfDue(ctx, object)
	}
	k.probeIfDue(ctx)
	k.tendBeside(ctx)
	wait = k.untilNext()
	if !demanded {
		wait = min(wait, lingerEnd.Sub(k.m.clock.Now()))
	}
	return wait, true
}

// removed is the step of a cluster whose object is gone, or going.
func (k *keeper) removed(demanded, going bool) (more bool) {
	message := k.ref.String() + " does not exist"
	if going {
		message = k.ref.String() + " is being deleted"
	}
	k.disconnect()
	k.apply(eventGone, message)
	k.objectUID = ""
	if !demanded && !going {
		k.m.forget(k)
		return false
	}
	return demanded
}

// release is the step of a cluster that nobody wants any more.
func (k *keeper) release() {
	k.disconnect()
	k.mu.Lock()
	k.lockedState.kinds, k.lockedState.kindSince, k.lockedState.apps = nil, nil, 0
	k.mu.Unlock()
	k.apply(eventReleased, "no Pipeline names the cluster")
	k.publish()
}

// disconnect ends the connection and forgets its credentials.
func (k *keeper) disconnect() {
	k.m.secrets.unwant(k.name)
	k.creds = credentialState{}
	k.dropCandidate()
	k.endDraining()
	k.health, k.doubted = health{}, false
	k.nextProbe, k.versionAt = time.Time{}, time.Time{}
	k.mu.Lock()
	old := k.lockedState.connection
	k.lockedState.connection = nil
	s := &k.lockedState.snapshot
	s.Server, s.KubernetesVersion, s.ClusterUID, s.CredentialExpiry = "", "", "", time.Time{}
	k.mu.Unlock()
	if old != nil {
		old.close()
	}
}

// reauthenticate is what the transport calls after a 401: it waits until the
// Secret was read again, and the server probed if that changed nothing.
func (k *keeper) reauthenticate(ctx context.Context) { k.ask(ctx, questions{rejected: true}) }

// doubt is what the transport calls after a request got no answer: it waits until
// the server was probed.
func (k *keeper) doubt(ctx context.Context) { k.ask(ctx, questions{lost: true}) }

// ask waits for the next step to answer. All who ask before it share its answer.
func (k *keeper) ask(ctx context.Context, q questions) {
	k.mu.Lock()
	if !k.lockedState.running {
		k.mu.Unlock()
		return
	}
	open := &k.lockedState.open
	open.rejected, open.lost = open.rejected || q.rejected, open.lost || q.lost
	if open.answered == nil {
		open.answered = make(chan struct{})
	}
	answered := open.answered
	k.mu.Unlock()
	k.poke()
	select {
	case <-answered:
	case <-ctx.Done():
	}
}

// untilNext is the time until the clock alone asks for a step.
func (k *keeper) untilNext() time.Duration {
	now := k.m.clock.Now()
	wait := idle
	sooner := func(at time.Time) {
		if !at.IsZero() {
			wait = min(wait, max(at.Sub(now), 0))
		}
	}
	sooner(k.creds.retryAt)
	sooner(k.beside.retryAt)
	sooner(k.beside.drained)
	if k.connection() != nil && k.creds.usable {
		sooner(k.nextProbe)
	}
	k.mu.Lock()
	_, grace := failingKind(k.lockedState.kinds, k.lockedState.kindSince, k.m.timings.KindGrace, now)
	k.mu.Unlock()
	sooner(grace)
	return wait
}

func (k *keeper) connection() *Connection {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lockedState.connection
}

func (k *keeper) outcome() outcome {
	k.mu.Lock()
	defer k.mu.Unlock()
	return outcome{k.lockedState.snapshot.State, k.lockedState.snapshot.Reason}
}

// snapshot is the present one.
func (k *keeper) snapshot() Snapshot {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.snapshotLocked()
}

func (k *keeper) snapshotLocked() Snapshot {
	s := k.lockedState.snapshot
	if c := k.lockedState.connection; c != nil {
		s.LastContact = c.LastContact()
	}
	return s
}
