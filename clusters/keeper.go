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

// versionAge after which a probe also reads the version again: an upgrade that
// nobody noticed.
const versionAge = 10 * time.Minute

// keeper looks after one cluster. Its goroutine (run) does all that can block for
// that cluster, each with a deadline; it is level-triggered: each step reconciles
// everything, whatever woke it.
type keeper struct {
	m    *shared
	name multicluster.ClusterName
	ref  Ref
	log  logr.Logger
	wake chan struct{} // of capacity 1: wakes fold
	// forget removes the keeper from the Manager, unless it is demanded.
	forget func(*keeper)

	mu          sync.Mutex
	lockedState keeperState

	// The fields that follow are the goroutine's own.

	objectUID  types.UID
	creds      credentialState
	handover   handover
	health     health
	engaged    int64  // epoch
	failed     bool   // has failed in this run: dials in the retry lane
	requested  checks // that the present step answers
	unanswered bool   // the last probe got no answer
	nextProbe  time.Time
	versionAt  time.Time // when identify was done; zero: to be done
	lostWait   backoff.Sequence
	authWait   backoff.Sequence
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
	// open are the checks that requests wait for the next step to answer.
	open checks
}

// checks of requests, answered by a look at the Secret, a probe, or both.
type checks struct {
	rejected bool // a request met 401
	lost     bool // a request got no answer
	// answered is closed then; nil when nobody asks.
	answered chan struct{}
}

func (q checks) any() bool { return q.rejected || q.lost }

// credentialState is what is known of a cluster's Secret, without a byte of it.
type credentialState struct {
	read        bool // at least once
	secret      types.NamespacedName
	readVersion string // of the Secret when read; "" it did not exist
	seenVersion string // the last that the watch told
	usable      bool   // accepted, and not missed or refused since
	retryAt     time.Time
}

func newKeeper(m *shared, name multicluster.ClusterName, ref Ref, forget func(*keeper)) *keeper {
	k := &keeper{
		m: m, name: name, ref: ref, forget: forget,
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

// addOwner adds an owner; true if that makes a difference.
func (k *keeper) addOwner(owner string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	first := len(k.lockedState.owners) == 0
	k.lockedState.owners[owner] = struct{}{}
	return first
}

// removeOwner takes an owner away; true if that makes a difference.
func (k *keeper) removeOwner(owner string) bool {
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

// retire marks a keeper that is not demanded as forgotten; false if it is demanded.
func (k *keeper) retire() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.lockedState.owners) > 0 {
		return false
	}
	k.lockedState.forgotten = true
	return true
}

// start marks the goroutine as running; false if it is, or must not.
func (k *keeper) start() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lockedState.running || k.lockedState.forgotten {
		return false
	}
	k.lockedState.running = true
	return true
}

// finish marks it as not running.
func (k *keeper) finish() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lockedState.running = false
}

// trigger makes the goroutine reconcile; it need not be running.
func (k *keeper) trigger() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// hooks are what the transport of its connections calls.
func (k *keeper) hooks() requestHooks { return requestHooks{k.reauthenticate, k.checkServer} }

// reauthenticate is what the transport calls after a 401: it waits until the
// Secret was read again, and the server probed if that changed nothing.
func (k *keeper) reauthenticate(ctx context.Context) { k.requestCheck(ctx, checks{rejected: true}) }

// checkServer is what the transport calls after a request got no answer: it waits until
// the server was probed.
func (k *keeper) checkServer(ctx context.Context) { k.requestCheck(ctx, checks{lost: true}) }

// requestCheck waits for the next step to answer. All who ask before it share its answer.
func (k *keeper) requestCheck(ctx context.Context, q checks) {
	answered := k.open(q)
	if answered == nil {
		return
	}
	k.trigger()
	select {
	case <-answered:
	case <-ctx.Done():
	}
}

// open adds checks to those of the next step, and returns what is closed then; nil
// where no goroutine runs.
func (k *keeper) open(q checks) <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.lockedState.running {
		return nil
	}
	open := &k.lockedState.open
	open.rejected, open.lost = open.rejected || q.rejected, open.lost || q.lost
	if open.answered == nil {
		open.answered = make(chan struct{})
	}
	return open.answered
}

func (k *keeper) connection() *Connection {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lockedState.connection
}

func (k *keeper) stateAndConnection() (capstanv1.ConnectionState, *Connection) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lockedState.snapshot.State, k.lockedState.connection
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
