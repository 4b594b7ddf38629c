package watchers

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/index"
)

// keeper keeps one kind of one cluster watched, over one connection after another,
// and tries again when a run ends.
//
// What waits is done by its work goroutine, of which there is one at most, and none
// while there is nothing to do: ten thousand goroutines that wait would cost what
// the observations of a hundred clusters do.
type keeper struct {
	w    *Watcher
	c    *watched
	kind Kind

	// stale is the loop's own: namespaces that the index was told are not fresh.
	stale map[string]struct{}

	// The work goroutine's own:

	// current is the present run; nil between runs. next is beside it: over the
	// connection that is to replace its own, until that is synced.
	current, next      *run
	transient, mending backoff

	// Guarded by the Watcher's mutex:

	// lockedPending: there is something to look at; lockedWorking: somebody does.
	lockedPending, lockedWorking bool
	// lockedLookAt is when to look again though nothing happened; zero for never. No
	// run begins before.
	lockedLookAt time.Time
	// lockedWant: what is wanted, or was until lately → by whom.
	lockedWant map[wanted]*interest
	// lockedConnection is what to run over; nil for nothing.
	lockedConnection *clusters.Connection
	// lockedBegan is when there was that connection.
	lockedBegan time.Time
	// lockedRun is the run that counts; nil between runs. lockedNext is to take its
	// place; it observes, but what is fresh is judged by lockedRun.
	lockedRun, lockedNext *run
	// lockedProblem is why the last run ended, until another is synced.
	lockedProblem problem
	// lockedSources are told of what is stored.
	lockedSources map[*subscription]struct{}
}

// wanted is an object, all objects of a namespace (no name), or all.
type wanted struct{ namespace, name string }

// interest is the owners of a demand, sorted, and since when there is none.
type interest struct {
	owners []string
	since  time.Time
}

func newKeeper(w *Watcher, c *watched, kind Kind) *keeper {
	t := w.o.Timings
	return &keeper{
		w: w, c: c, kind: kind,
		stale:         map[string]struct{}{},
		transient:     backoff{least: t.TransientRetry, most: t.Retry},
		mending:       backoff{least: t.Retry, most: t.RetryMax},
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
	i := k.lockedWant[want]
	if i == nil {
		i = &interest{}
		k.lockedWant[want] = i
	}
	if at, had := slices.BinarySearch(i.owners, owner); !had {
		i.owners = slices.Insert(i.owners, at, owner)
	}
	k.lockedPoke()
}

func (k *keeper) lockedRelease(d Demand, owner string, now time.Time) {
	i := k.lockedWant[wanted{d.Namespace, d.Name}]
	if at, had := slices.BinarySearch(i.owners, owner); had {
		i.owners = slices.Delete(i.owners, at, at+1)
	}
	if len(i.owners) == 0 {
		i.since = now
	}
}

// lockedSweep drops what nobody has wanted for the linger, and tells whether
// nothing is left.
func (k *keeper) lockedSweep(now time.Time, linger time.Duration) bool {
	for want, i := range k.lockedWant {
		if len(i.owners) == 0 && now.Sub(i.since) >= linger {
			delete(k.lockedWant, want)
			k.lockedPoke()
		}
	}
	return len(k.lockedWant) == 0
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

// connect has the keeper run over a connection. What runs well over another, to the
// same cluster, goes on until this one is synced. Called by the loop.
func (k *keeper) connect(connection *clusters.Connection, now time.Time) {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	switch r := k.lockedRun; {
	case k.lockedConnection == connection:
		if !k.lockedLookAt.IsZero() && !now.Before(k.lockedLookAt) {
			k.lockedPoke()
		}
		return
	case r.lockedSynced() && r.ctx.Err() == nil && r.connection.Context().Err() == nil:
	default:
		k.lockedDrop()
	}
	k.lockedConnection, k.lockedProblem = connection, problem{}
	k.lockedBegan, k.lockedLookAt = now, time.Time{}
	k.lockedPoke()
}

// lockedDrop makes nothing count that runs.
func (k *keeper) lockedDrop() {
	for _, r := range []*run{k.lockedRun, k.lockedNext} {
		if r != nil {
			r.cancel(errReplaced)
		}
	}
	k.lockedRun, k.lockedNext = nil, nil
}

// disconnect ends what runs, and lets it observe nothing more. Called by the loop.
func (k *keeper) disconnect() {
	k.w.mu.Lock()
	runs := []*run{k.lockedRun, k.lockedNext}
	k.lockedDrop()
	k.lockedConnection, k.lockedProblem = nil, problem{}
	k.lockedBegan, k.lockedLookAt = time.Time{}, time.Time{}
	k.lockedPoke()
	k.w.mu.Unlock()
	for _, r := range runs {
		if r != nil {
			r.ledger.close()
		}
	}
}

// lockedPoke has the work goroutine look. It never waits.
func (k *keeper) lockedPoke() {
	k.lockedPending = true
	ctx := k.w.lockedState.ctx
	if !k.lockedWorking && ctx != nil && ctx.Err() == nil {
		k.lockedWorking = true
		k.w.goroutines.Go(func() { k.work(ctx) })
	}
}

func (k *keeper) poke() {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	k.lockedPoke()
}

// work does all there is to do.
func (k *keeper) work(ctx context.Context) {
	for {
		k.w.mu.Lock()
		if !k.lockedPending || ctx.Err() != nil {
			k.lockedWorking = false
			k.w.mu.Unlock()
			return
		}
		k.lockedPending = false
		connection, counts, synced := k.lockedConnection, k.lockedRun, k.lockedNext.lockedSynced()
		due := !k.w.o.Clock.Now().Before(k.lockedLookAt)
		if due {
			k.lockedLookAt = time.Time{}
		}
		k.w.mu.Unlock()

		if r := k.current; r != nil && (r.ctx.Err() != nil || synced || (r.connection != connection && r != counts)) {
			k.current, k.next = k.next, nil
			k.conclude(r, r.end())
			continue
		}
		if r := k.next; r != nil && (r.ctx.Err() != nil || r.connection != connection) {
			k.next = nil
			k.conclude(r, r.end())
			continue
		}
		k.begin(ctx, connection, due)
		for _, r := range []*run{k.current, k.next} {
			if r != nil && r.ctx.Err() == nil {
				r.align()
			}
		}
	}
}

// begin begins a run if there is none over the connection, and it is due.
func (k *keeper) begin(ctx context.Context, connection *clusters.Connection, due bool) {
	newest := k.current
	if k.next != nil {
		newest = k.next
	}
	if connection == nil || connection.Context().Err() != nil || !due || (newest != nil && newest.connection == connection) {
		return
	}
	r := k.newRun(ctx, connection, k.current)
	if k.current == nil {
		k.current = r
	} else {
		k.next = r
	}
	if err := r.plan(); err != nil {
		r.fail(err)
	}
}

// conclude decides what follows a run that has ended.
func (k *keeper) conclude(r *run, cause error) {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	k.w.lockedLook(k.c)
	k.lockedPoke()
	if errors.Is(cause, errReplan) || errors.Is(cause, errReplaced) || errors.Is(cause, errRestored) {
		k.transient.next, k.mending.next = 0, 0
		return
	}
	now := k.w.o.Clock.Now()
	if now.Sub(r.began) > k.w.o.Timings.RetryMax {
		k.transient.next, k.mending.next = 0, 0 // It went well for long: this is a new trouble.
	}
	wait := k.transient.wait
	if needsMending(cause) {
		wait = k.mending.wait
	}
	k.lockedLookAt = now.Add(wait())
	p := problemOf(cause, k, "")
	if k.lockedProblem != p {
		k.w.o.Logger.Info("kind cannot be watched", "cluster", k.c.name, "kind", k.kind.GroupKind.String(), "reason", p.reason, "message", p.message)
	}
	k.lockedProblem = p
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
