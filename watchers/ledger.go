package watchers

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/index"
)

// ledger holds what a run has observed. It orders the observations of an object that come
// from several sources: the watch, a read of one object, and the watch of another run. An
// older resourceVersion never overwrites a newer one.
//
// Locking: order.mu is held while the index's own lock is taken (record), and in no other
// call.
type ledger struct {
	order *order
	// record writes an observation to the index and returns the Pipelines to wake.
	record func(wanted, index.Observation) []types.NamespacedName
	// since is when the run began, before any of its lists.
	since time.Time

	// lockedState is guarded by order.mu.
	lockedState ledgerState
}

type ledgerState struct {
	// closed: the run may not write to the index any more.
	closed bool
	known  map[wanted]known
}

// order is shared by a run and the one that replaces it: runs over two servers of one
// cluster, whose resourceVersions can be compared.
type order struct {
	// mu guards entries, and lockedState of the ledgers that share the order.
	mu      sync.Mutex
	entries map[wanted]entry
}

// entry is of a demanded object.
type entry struct {
	// version that was observed last, or that of the deletion.
	version string
	deleted bool
}

// known is the knowledge of one run about an object.
type known struct {
	// streamed is the version that the watch delivered last, which only rises.
	streamed string
	// observed: by this run.
	observed bool
	// unread: it has changed, and is stored as its key only.
	unread bool
	// confirm: it has to be read, although it is stored.
	confirm bool
}

// newLedger makes the ledger of a run that began at a time. It shares the order of the ledger of the run that it
// replaces; nil for none.
func newLedger(replaces *ledger, since time.Time, record func(wanted, index.Observation) []types.NamespacedName) *ledger {
	l := &ledger{order: &order{entries: map[wanted]entry{}}, record: record, since: since, lockedState: ledgerState{known: map[wanted]known{}}}
	if replaces != nil {
		l.order = replaces.order
	}
	return l
}

// close closes the ledger: later observations are dropped.
func (l *ledger) close() {
	l.order.mu.Lock()
	defer l.order.mu.Unlock()
	l.lockedState.closed = true
}

// prune drops the objects that are not demanded any more.
func (l *ledger) prune(wants func(namespace, name string) bool) {
	l.order.mu.Lock()
	all := slices.AppendSeq(slices.Collect(maps.Keys(l.order.entries)), maps.Keys(l.lockedState.known))
	l.order.mu.Unlock()
	for _, want := range all {
		if !wants(want.namespace, want.name) {
			l.drop(want)
		}
	}
}

func (l *ledger) drop(want wanted) {
	l.order.mu.Lock()
	defer l.order.mu.Unlock()
	delete(l.order.entries, want)
	delete(l.lockedState.known, want)
}

// unread notes that an object has changed, and is stored as its key only.
func (l *ledger) unread(want wanted) { l.mark(want, func(k *known) { k.unread = true }) }

// confirm notes that an object has to be read, although it is stored.
func (l *ledger) confirm(want wanted) { l.mark(want, func(k *known) { k.confirm = true }) }

func (l *ledger) mark(want wanted, set func(*known)) {
	l.order.mu.Lock()
	defer l.order.mu.Unlock()
	k := l.lockedState.known[want]
	set(&k)
	l.lockedState.known[want] = k
}

// isObserved returns whether this run has observed the object as it is stored.
func (l *ledger) isObserved(want wanted) bool {
	l.order.mu.Lock()
	defer l.order.mu.Unlock()
	k := l.lockedState.known[want]
	return k.observed && !k.unread && !k.confirm
}

// isToConfirm returns whether an object has to be read, although it is stored.
func (l *ledger) isToConfirm(want wanted) bool {
	l.order.mu.Lock()
	defer l.order.mu.Unlock()
	return l.lockedState.known[want].confirm
}

// isObservedByAnother returns whether the object existed for another run, and this one has
// not observed it.
func (l *ledger) isObservedByAnother(want wanted) bool {
	l.order.mu.Lock()
	defer l.order.mu.Unlock()
	e := l.order.entries[want]
	return e.version != "" && !e.deleted && !l.lockedState.known[want].observed
}

// recordLocked writes an observation to the index. It is not older than the run if it is not dated.
func (l *ledger) recordLocked(want wanted, o index.Observation) []types.NamespacedName {
	if o.Since.IsZero() {
		o.Since = l.since
	}
	return l.record(want, o)
}

// noteLocked notes what was observed.
func (l *ledger) noteLocked(want wanted, e entry) {
	l.order.entries[want] = e
	l.lockedState.known[want] = known{streamed: l.lockedState.known[want].streamed, observed: true}
}

// precedes returns whether a version may follow the entry, and is not already included in
// it. A version that cannot be compared may follow.
func (e entry) precedes(version string) bool {
	if e.version == "" {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(version, e.version)
	return err != nil || order > 0 || (order == 0 && !e.deleted)
}

// goesBack returns whether the watch delivers an older version than it delivered before,
// and notes the version. The cluster was then restored from a backup, or rebuilt, at the
// same address: old versions cannot be compared with new ones.
func (l *ledger) goesBack(o client.Object) bool {
	want, version := wanted{o.GetNamespace(), o.GetName()}, o.GetResourceVersion()
	l.order.mu.Lock()
	defer l.order.mu.Unlock()
	k := l.lockedState.known[want]
	if order, err := resourceversion.CompareResourceVersion(version, k.streamed); k.streamed != "" && err == nil && order < 0 {
		return true
	}
	k.streamed = version
	l.lockedState.known[want] = k
	return false
}

// observeRead is observe for an object that was read by a request that began at a time, although it is
// stored. If the watch has delivered a newer version than was read, that is recorded.
func (l *ledger) observeRead(read, stored client.Object, began time.Time, toObservation func(client.Object) index.Observation) []types.NamespacedName {
	dated := func(o client.Object) index.Observation {
		of := toObservation(o)
		of.Since = began
		return of
	}
	woken := l.observe(read, dated)
	if stored != nil && l.isToConfirm(wanted{read.GetNamespace(), read.GetName()}) {
		woken = l.observe(stored, dated)
	}
	return woken
}

// observe records an object, from the watch or from a read.
func (l *ledger) observe(o client.Object, toObservation func(client.Object) index.Observation) []types.NamespacedName {
	want := wanted{o.GetNamespace(), o.GetName()}
	l.order.mu.Lock()
	defer l.order.mu.Unlock()
	if l.lockedState.closed || !l.order.entries[want].precedes(o.GetResourceVersion()) {
		return nil
	}
	l.noteLocked(want, entry{version: o.GetResourceVersion()})
	return l.recordLocked(want, toObservation(o))
}

// observeDeleted records that an object was deleted. The entry stays, so that a read
// that was under way does not restore the object.
func (l *ledger) observeDeleted(o client.Object) []types.NamespacedName {
	want := wanted{o.GetNamespace(), o.GetName()}
	l.order.mu.Lock()
	defer l.order.mu.Unlock()
	if l.lockedState.closed || !l.order.entries[want].precedes(o.GetResourceVersion()) {
		return nil
	}
	l.noteLocked(want, entry{version: o.GetResourceVersion(), deleted: true})
	return l.recordLocked(want, index.Observation{})
}

// observeAbsent records that a demanded object does not exist, unless it was observed. began is when
// the request began that found that.
func (l *ledger) observeAbsent(want wanted, began time.Time) []types.NamespacedName {
	l.order.mu.Lock()
	defer l.order.mu.Unlock()
	e := l.order.entries[want]
	if l.lockedState.closed || l.lockedState.known[want].unread || (e.version != "" && !e.deleted) {
		return nil
	}
	l.noteLocked(want, entry{version: e.version, deleted: true})
	return l.recordLocked(want, index.Observation{Since: began})
}

// observeMissed records that an object which another run has observed does not exist: a
// read returned NotFound.
func (l *ledger) observeMissed(want wanted) []types.NamespacedName {
	l.order.mu.Lock()
	defer l.order.mu.Unlock()
	if l.lockedState.closed || l.lockedState.known[want].observed {
		return nil
	}
	l.noteLocked(want, entry{version: l.order.entries[want].version, deleted: true})
	return l.recordLocked(want, index.Observation{})
}
