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

// SelfManagedOwner is the owner of the demand that SelfManagedLabel makes.
const SelfManagedOwner = "self-managed"

// versionAge is the time after which a probe also reads the version again. It finds
// upgrades during which the connection did not fail.
const versionAge = 10 * time.Minute

// keeper maintains the connection to one cluster. Its goroutine (run) does everything that
// can block for that cluster, each with a deadline. It is level-triggered: each step
// reconciles everything.
type keeper struct {
	m    *shared
	name multicluster.ClusterName
	ref  Ref
	log  logr.Logger
	wake chan struct{} // of capacity 1: several wakes become one
	// forget removes the keeper from the Manager, unless it is demanded.
	forget func(*keeper)
	// engaging serialises the calls of Engage. No other mutex is held with it.
	engaging sync.Mutex

	mu          sync.Mutex
	lockedState keeperState

	// Only the goroutine uses the following fields.

	objectUID types.UID
	creds     credentialState
	handover  handover
	health    health
	failed    bool   // has failed in this run: dials in the retry lane
	requested checks // that the present step makes
	// waits: requests wait although the state passes them. The last probe got no response,
	// or 401.
	waits     bool
	nextProbe time.Time
	versionAt time.Time // when identify was done; zero: to be done
	lastUID   string    // the last ClusterUID that was read, over any connection
	failedAt  time.Time // when the last outage began
	returned  time.Time // when an outage last ended with a working connection
	lostWait  backoff.Sequence
	authWait  backoff.Sequence
}

// keeperState is the state that other goroutines read and write.
type keeperState struct {
	running   bool // the goroutine
	forgotten bool // the Manager does not have the keeper any more
	owners    map[string]struct{}
	// releasedAt is when the last owner left.
	releasedAt time.Time
	snapshot   Snapshot // without LastContact
	connection *Connection
	engagement *engagement
	kinds      []capstanv1.WatchedKind
	apps       int
	// brief: the state was last published as one that is expected to change (isBrief).
	brief bool
	// open are the checks that requests wait for. The next step makes them.
	open checks
	// worked: an earlier hub was connected to it.
	worked bool
}

// checks that requests wait for: the Secret is read, the server is probed, or both.
type checks struct {
	rejected bool // a request got 401
	lost     bool // a request got no response
	// done is closed after the checks; nil when no request waits.
	done chan struct{}
}

func (q checks) any() bool { return q.rejected || q.lost }

// credentialState is the state of a cluster's Secret. It has no byte of the Secret's data.
type credentialState struct {
	read        bool // at least once
	secret      types.NamespacedName
	endpoint    access // credentialSource.endpoint
	readVersion string // of the Secret when it was read; "" when it did not exist
	seenVersion string // the last version from the watch
	usable      bool   // accepted, and not missing or refused since
	retryAt     time.Time
	// forbidden is how often in sequence the hub was not allowed to read the Secret.
	forbidden int
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

// addOwner adds an owner. It returns true for the first owner.
func (k *keeper) addOwner(owner string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	first := len(k.lockedState.owners) == 0
	k.lockedState.owners[owner] = struct{}{}
	return first
}

// removeOwner removes an owner. It returns true when no owner is left.
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

// report stores the state of the watched kinds and the number of applications.
func (k *keeper) report(kinds []capstanv1.WatchedKind, apps int) {
	kinds = slices.Clone(kinds)
	slices.SortFunc(kinds, func(a, b capstanv1.WatchedKind) int { return cmp.Compare(a.Kind, b.Kind) })
	kinds = slices.CompactFunc(kinds, func(a, b capstanv1.WatchedKind) bool { return a.Kind == b.Kind })
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lockedState.kinds, k.lockedState.apps = kinds, apps
}

// retire marks a keeper as forgotten. It returns false when the cluster is demanded.
func (k *keeper) retire() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.lockedState.owners) > 0 {
		return false
	}
	k.lockedState.forgotten = true
	return true
}

// start marks the goroutine as running. It returns false when the goroutine runs already,
// or must not run.
func (k *keeper) start() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lockedState.running || k.lockedState.forgotten {
		return false
	}
	k.lockedState.running = true
	return true
}

// finish marks the goroutine as not running.
func (k *keeper) finish() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lockedState.running = false
}

// trigger makes the goroutine reconcile now or, when it does not run, after its start.
func (k *keeper) trigger() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// hooks returns the functions that the transports of the keeper's connections call.
func (k *keeper) hooks() requestHooks { return requestHooks{k.reauthenticate, k.checkServer} }

// reauthenticate is called by the transport after a 401. It waits until the Secret was
// read again and, if the credentials did not change, the server was probed.
func (k *keeper) reauthenticate(ctx context.Context) { k.requestCheck(ctx, checks{rejected: true}) }

// checkServer is called by the transport after a request without a response. It waits
// until the server was probed.
func (k *keeper) checkServer(ctx context.Context) { k.requestCheck(ctx, checks{lost: true}) }

// requestCheck waits until the next step made the checks. All callers before that step
// share them.
func (k *keeper) requestCheck(ctx context.Context, q checks) {
	done := k.open(q)
	if done == nil {
		return
	}
	k.trigger()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// open adds checks to those of the next step. It returns the channel that is closed after
// them, or nil when the goroutine does not run.
func (k *keeper) open(q checks) <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.lockedState.running {
		return nil
	}
	open := &k.lockedState.open
	open.rejected, open.lost = open.rejected || q.rejected, open.lost || q.lost
	if open.done == nil {
		open.done = make(chan struct{})
	}
	return open.done
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

// snapshot returns the present Snapshot.
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
