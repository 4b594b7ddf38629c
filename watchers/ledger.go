package watchers

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/index"
)

// ledger keeps the order of what is observed of an object in two ways, by the watch
// and by a read of one object: an older resourceVersion never overwrites a newer.
//
// Locking: mu is held over the index's own lock, and nothing else.
type ledger struct {
	mu sync.Mutex
	// closed: the run is over for the index.
	closed  bool
	entries map[wanted]entry
}

// entry is of a demanded object.
type entry struct {
	// version that was observed last, or that of the deletion.
	version string
	// streamed is the version that the watch told last, which only rises.
	streamed string
	gone     bool
	// unread: it has changed, and is stored as its key only.
	unread bool
}

func newLedger() *ledger { return &ledger{entries: map[wanted]entry{}} }

// close ends it: nothing is observed any more.
func (l *ledger) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

// prune drops what nobody demands any more.
func (l *ledger) prune(wants func(namespace, name string) bool) {
	l.mu.Lock()
	var all []wanted
	for want := range l.entries {
		all = append(all, want)
	}
	l.mu.Unlock()
	for _, want := range all {
		if !wants(want.namespace, want.name) {
			l.mu.Lock()
			delete(l.entries, want)
			l.mu.Unlock()
		}
	}
}

func (l *ledger) unread(want wanted) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[want]
	e.unread = true
	l.entries[want] = e
}

// tells is whether this run has observed the object as it is stored.
func (l *ledger) tells(want wanted) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, observed := l.entries[want]
	return observed && !e.unread
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
	e := l.entries[want]
	if order, err := resourceversion.CompareResourceVersion(version, e.streamed); e.streamed != "" && err == nil && order < 0 {
		return true
	}
	e.streamed = version
	l.entries[want] = e
	return false
}

// observe an object, of the watch or of a read.
func (r *run) observe(o client.Object) []types.NamespacedName {
	want, l := wanted{o.GetNamespace(), o.GetName()}, r.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[want]
	if l.closed || !e.newer(o.GetResourceVersion()) {
		return nil
	}
	l.entries[want] = entry{version: o.GetResourceVersion(), streamed: e.streamed}
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
	e := l.entries[want]
	if l.closed || !e.newer(o.GetResourceVersion()) {
		return nil
	}
	l.entries[want] = entry{version: o.GetResourceVersion(), streamed: e.streamed, gone: true}
	return r.tellIndex(want, index.Observation{})
}

// observeAbsent observes that a demanded object does not exist, unless it was seen.
func (r *run) observeAbsent(want wanted) []types.NamespacedName {
	l := r.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[want]
	if l.closed || e.unread || (e.version != "" && !e.gone) {
		return nil
	}
	l.entries[want] = entry{version: e.version, streamed: e.streamed, gone: true}
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
