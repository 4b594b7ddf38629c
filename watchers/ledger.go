package watchers

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/index"
)

// ledger is what a run has observed. It keeps the order of what is observed of an
// object in several ways, by the watch and by a read of one object, and by the watch
// of another run beside: an older resourceVersion never overwrites a newer.
//
// Locking: mu of the order is held over the index's own lock, and nothing else.
type ledger struct {
	*order
	// Guarded by mu:

	// closed: the run is over for the index.
	closed bool
	told   map[wanted]told
}

// order is shared by a run and the one that takes its place: runs over two servers of
// one cluster, whose resourceVersions can be compared.
type order struct {
	mu      sync.Mutex
	entries map[wanted]entry
}

// entry is of a demanded object.
type entry struct {
	// version that was observed last, or that of the deletion.
	version string
	gone    bool
}

// told is what one run knows of it.
type told struct {
	// streamed is the version that the watch told last, which only rises.
	streamed string
	// observed: by this run.
	observed bool
	// unread: it has changed, and is stored as its key only.
	unread bool
}

// newLedger makes the ledger of a run, beside the one whose place it takes; nil for
// none.
func newLedger(beside *ledger) *ledger {
	l := &ledger{order: &order{entries: map[wanted]entry{}}, told: map[wanted]told{}}
	if beside != nil {
		l.order = beside.order
	}
	return l
}

// close ends it: nothing is observed any more.
func (l *ledger) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

// prune drops what nobody demands any more.
func (l *ledger) prune(wants func(namespace, name string) bool) {
	l.mu.Lock()
	all := slices.AppendSeq(slices.Collect(maps.Keys(l.entries)), maps.Keys(l.told))
	l.mu.Unlock()
	for _, want := range all {
		if !wants(want.namespace, want.name) {
			l.mu.Lock()
			delete(l.entries, want)
			delete(l.told, want)
			l.mu.Unlock()
		}
	}
}

func (l *ledger) unread(want wanted) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.told[want]
	t.unread = true
	l.told[want] = t
}

// tells is whether this run has observed the object as it is stored.
func (l *ledger) tells(want wanted) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.told[want].observed && !l.told[want].unread
}

// toldByAnother is whether the object was there for a run beside, and this one has
// not observed it.
func (l *ledger) toldByAnother(want wanted) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, t := l.entries[want], l.told[want]
	return e.version != "" && !e.gone && !t.observed
}

// lockedObserved notes what was observed.
func (l *ledger) lockedObserved(want wanted, e entry) {
	l.entries[want] = e
	l.told[want] = told{streamed: l.told[want].streamed, observed: true}
}

// newer tells whether version may follow the entry, and is not part of what it
// tells already. What cannot be compared is believed.
func (e entry) newer(version string) bool {
	if e.version == "" {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(version, e.version)
	return err != nil || order > 0 || (order == 0 && !e.gone)
}

// goesBack tells whether the watch tells an older version than it told before, and
// notes it. The cluster was then restored from a backup, or built anew, at the same
// address: no version of before can be compared with one of now.
func (l *ledger) goesBack(o client.Object) bool {
	want, version := wanted{o.GetNamespace(), o.GetName()}, o.GetResourceVersion()
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.told[want]
	if order, err := resourceversion.CompareResourceVersion(version, t.streamed); t.streamed != "" && err == nil && order < 0 {
		return true
	}
	t.streamed = version
	l.told[want] = t
	return false
}

// observe an object, of the watch or of a read.
func (r *run) observe(o client.Object) []types.NamespacedName {
	want, l := wanted{o.GetNamespace(), o.GetName()}, r.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || !l.entries[want].newer(o.GetResourceVersion()) {
		return nil
	}
	l.lockedObserved(want, entry{version: o.GetResourceVersion()})
	return r.tellIndex(want, r.kind.Observe(o))
}

// observeGone observes that an object was deleted. The entry stays: a read that was
// under way does not bring it back.
func (r *run) observeGone(o client.Object) []types.NamespacedName {
	want, l := wanted{o.GetNamespace(), o.GetName()}, r.ledger
	if !r.wants(want.namespace, want.name) {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || !l.entries[want].newer(o.GetResourceVersion()) {
		return nil
	}
	l.lockedObserved(want, entry{version: o.GetResourceVersion(), gone: true})
	return r.tellIndex(want, index.Observation{})
}

// observeAbsent observes that a demanded object does not exist, unless it was seen.
func (r *run) observeAbsent(want wanted) []types.NamespacedName {
	l := r.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[want]
	if l.closed || l.told[want].unread || (e.version != "" && !e.gone) {
		return nil
	}
	l.lockedObserved(want, entry{version: e.version, gone: true})
	return r.tellIndex(want, index.Observation{})
}

// observeMissed observes that an object which a run beside has seen does not exist:
// a read said so.
func (r *run) observeMissed(want wanted) []types.NamespacedName {
	l := r.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.told[want].observed {
		return nil
	}
	l.lockedObserved(want, entry{version: l.entries[want].version, gone: true})
	return r.tellIndex(want, index.Observation{})
}

// tellIndex brings an observation to the index and returns whom to wake.
func (k *keeper) tellIndex(want wanted, o index.Observation) []types.NamespacedName {
	o.At = k.w.o.Clock.Now()
	woken := k.w.o.Index.Observe(k.object(want), o)
	result := resultEqual
	if len(woken) > 0 {
		result = resultChanged
	}
	k.w.m.observations.WithLabelValues(k.kind.GroupKind.String(), result).Inc()
	return woken
}

// wake the Pipelines that an observation concerns.
func (k *keeper) wake(pipelines []types.NamespacedName, initial bool) {
	k.w.wake(k.c, pipelines, initial)
}
