package watchers

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/index"
)

// keeper keeps one kind of one cluster watched, over one connection after another,
// and tries again when a run ends.
type keeper struct {
	w    *Watcher
	c    *watched
	kind Kind
	// changed tells the run that there is something to look at; it holds one.
	changed chan struct{}
	// replaced tells the goroutine that the connection is another; it holds one.
	replaced chan struct{}

	// The loop's own: end of the goroutine, nil before it was started; and the
	// namespaces that the index was told are not fresh.
	cancel context.CancelFunc
	stale  map[string]struct{}

	// Guarded by the Watcher's mutex:

	// lockedWant: what is wanted, or was until lately → by whom.
	lockedWant map[wanted]*interest
	// lockedConnection is what to run over; nil for nothing.
	lockedConnection *clusters.Connection
	// lockedBegan is when there was that connection.
	lockedBegan time.Time
	// lockedRun is the present run; nil between runs.
	lockedRun *run
	// lockedProblem is why the last run ended, until another is synced.
	lockedProblem problem
	// lockedSources are told of what is stored.
	lockedSources map[*subscription]struct{}
}

// wanted is an object, all objects of a namespace (no name), or all.
type wanted struct{ namespace, name string }

// interest is the owners of a demand, and since when there is none.
type interest struct {
	owners sets.Set[string]
	since  time.Time
}

func newKeeper(w *Watcher, c *watched, kind Kind) *keeper {
	return &keeper{
		w: w, c: c, kind: kind,
		changed:       make(chan struct{}, 1),
		replaced:      make(chan struct{}, 1),
		stale:         map[string]struct{}{},
		lockedWant:    map[wanted]*interest{},
		lockedSources: map[*subscription]struct{}{},
	}
}

func (k *keeper) indexKind() index.Kind {
	return index.Kind{Group: k.kind.GroupKind.Group, Kind: k.kind.GroupKind.Kind}
}

func (k *keeper) object(want wanted) index.Object {
	return index.Object{Cluster: string(k.c.name), Kind: k.indexKind(), Namespace: want.namespace, Name: want.name}
}

// lockedDemand adds an owner. Even where there are others, the object is looked at
// again: the index may have forgotten it between one user and the next.
func (k *keeper) lockedDemand(d Demand, owner string) {
	want := wanted{d.Namespace, d.Name}
	if k.lockedWant[want] == nil {
		k.lockedWant[want] = &interest{owners: sets.New[string]()}
	}
	k.lockedWant[want].owners.Insert(owner)
	signal(k.changed)
}

func (k *keeper) lockedRelease(d Demand, owner string, now time.Time) {
	i := k.lockedWant[wanted{d.Namespace, d.Name}]
	i.owners.Delete(owner)
	if i.owners.Len() == 0 {
		i.since = now
	}
}

// lockedSweep drops what nobody has wanted for the linger, and tells whether
// nothing is left.
func (k *keeper) lockedSweep(now time.Time, linger time.Duration) bool {
	for want, i := range k.lockedWant {
		if i.owners.Len() == 0 && now.Sub(i.since) >= linger {
			delete(k.lockedWant, want)
			signal(k.changed)
		}
	}
	return len(k.lockedWant) == 0
}

// signal never waits: the channel holds one, and one is enough.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// wants tells whether an object is demanded, and lockedWants the same.
func (k *keeper) wants(namespace, name string) bool {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	return k.lockedWants(namespace, name)
}

func (k *keeper) lockedWants(namespace, name string) bool {
	_, named := k.lockedWant[wanted{namespace, name}]
	return named || k.lockedWantsAll(namespace)
}

// lockedWantsAll tells whether every object of a namespace is demanded.
func (k *keeper) lockedWantsAll(namespace string) bool {
	_, space := k.lockedWant[wanted{namespace, ""}]
	_, all := k.lockedWant[wanted{}]
	return space || all
}

// connect has the keeper run over a connection. Called by the loop.
func (k *keeper) connect(ctx context.Context, connection *clusters.Connection, now time.Time) {
	k.w.mu.Lock()
	same := k.lockedConnection == connection
	before := k.lockedRun
	if !same {
		// Nothing of the other epoch counts as fresh any more.
		k.lockedConnection, k.lockedRun, k.lockedProblem = connection, nil, problem{}
		k.lockedBegan = now
	}
	k.w.mu.Unlock()
	if same {
		return
	}
	if before != nil {
		before.fail(errReplaced)
	}
	signal(k.replaced)
	if k.cancel == nil {
		ctx, k.cancel = context.WithCancel(ctx)
		k.w.keepers.Go(func() { k.keep(ctx) })
	}
}

// disconnect ends the run, and lets it observe nothing more. Called by the loop.
func (k *keeper) disconnect() {
	k.w.mu.Lock()
	k.lockedConnection, k.lockedBegan = nil, time.Time{}
	before := k.lockedRun
	k.lockedRun, k.lockedProblem = nil, problem{}
	k.w.mu.Unlock()
	if before != nil {
		before.ledger.close()
		before.fail(errReplaced)
	}
}

// stop ends the keeper. Called by the loop.
func (k *keeper) stop() {
	k.disconnect()
	if k.cancel != nil {
		k.cancel()
	}
}

func (k *keeper) connection() *clusters.Connection {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	return k.lockedConnection
}

// keep runs over one connection after another until the context ends.
func (k *keeper) keep(ctx context.Context) {
	timings := k.w.o.Timings
	transient := backoff{least: timings.TransientRetry, most: timings.Retry}
	mending := backoff{least: timings.Retry, most: timings.RetryMax}
	for ctx.Err() == nil {
		connection := k.connection()
		if connection == nil || connection.Context().Err() != nil {
			select {
			case <-ctx.Done():
			case <-k.replaced:
			}
			continue
		}
		began := k.w.o.Clock.Now()
		err := k.run(ctx, connection)
		if ctx.Err() != nil || connection.Context().Err() != nil || k.connection() != connection || errors.Is(err, errReplan) {
			continue
		}
		k.setProblem(problemOf(err, k, ""))
		if k.w.o.Clock.Since(began) > timings.RetryMax {
			transient.reset() // It went well for long: this is a new trouble.
			mending.reset()
		}
		wait := transient.wait
		if needsMending(err) {
			wait = mending.wait
		}
		timer := k.w.o.Clock.NewTimer(wait())
		select {
		case <-ctx.Done():
		case <-k.replaced:
		case <-timer.C():
		}
		timer.Stop()
	}
}

// backoff doubles from least to most. Each wait is drawn from its upper half, so
// that clusters in the same trouble do not ask at once.
type backoff struct{ least, most, next time.Duration }

func (b *backoff) wait() time.Duration {
	b.next = max(b.next, b.least)
	wait := b.next/2 + rand.N(b.next/2+1)
	b.next = min(2*b.next, b.most)
	return wait
}

func (b *backoff) reset() { b.next = 0 }

func (k *keeper) setProblem(p problem) {
	k.w.mu.Lock()
	same := k.lockedProblem == p
	k.lockedProblem = p
	k.w.lockedLook(k.c)
	k.w.mu.Unlock()
	if !same && p.reason != "" {
		k.w.o.Logger.Info("kind cannot be watched", "cluster", k.c.name, "kind", k.kind.GroupKind.String(), "reason", p.reason, "message", p.message)
	}
}
