package owner

import (
	"cmp"
	"container/list"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/capstan-hub/capstan/hub/instancestate/message"
)

// Bounds of a Ring. Cluster API Provider AWS reconciles its pools every 3 minutes, and a
// machine has its instance's id within seconds of its launch.
const (
	DefaultTTL   = 15 * time.Minute
	DefaultCount = 50_000
	DefaultBytes = 32 << 20
	// overhead of a waiting fact in bytes, in addition to its event.
	overhead = 512
)

// Waiting is a fact that waits for its object, with a value of the caller.
type Waiting[V any] struct {
	Fact message.Fact
	With V
	// size with overhead, and the end of its time.
	size  int
	until time.Time
}

// Ring keeps facts without an object. New facts replace the oldest ones.
type Ring[V any] struct {
	Clock clock.PassiveClock
	// TTL of a fact, Count of facts and Bytes of their events; the defaults when 0.
	TTL   time.Duration
	Count int
	Bytes int

	mu          sync.Mutex
	lockedState struct {
		order list.List // of *waiting[V], oldest first
		by    map[waitKey]*list.Element
		bytes int
	}
}

type waiting[V any] struct {
	Waiting[V]
	// keys that it is still the newest fact of.
	keys []waitKey
}

// waitKey is an instance or a group that facts wait for. of is the id of an instance; for facts
// of a group it is the group's ARN or name, or the instance of the fact.
type waitKey struct {
	group bool
	of    string
}

// keysOf returns the keys of a fact. A fact of a group waits for its instance too, because
// pools that do not name their group are found by their instances.
func keysOf(f message.Fact) []waitKey {
	if !f.Kind.Group() {
		return []waitKey{{of: f.InstanceID}}
	}
	keys := []waitKey{{group: true, of: cmp.Or(f.GroupARN, f.GroupName)}}
	if f.InstanceID != "" {
		keys = append(keys, waitKey{group: true, of: f.InstanceID})
	}
	return keys
}

// Put adds a fact, whose event has a size in bytes. Of two facts of one instance or group
// the newer one is kept.
func (r *Ring[V]) Put(f message.Fact, with V, size int) {
	r.Return(Waiting[V]{f, with, size + overhead, r.Clock.Now().Add(cmp.Or(r.TTL, DefaultTTL))})
}

// Return adds a fact that was taken. It waits until the end of its time.
func (r *Ring[V]) Return(taken Waiting[V]) {
	f, now := taken.Fact, r.Clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.lockedState
	if s.by == nil {
		s.by = map[waitKey]*list.Element{}
	}
	w := &waiting[V]{Waiting: taken}
	for _, key := range keysOf(f) {
		at := s.by[key]
		if at != nil {
			old := at.Value.(*waiting[V]).Fact
			if cmp.Or(f.Time.Compare(old.Time), cmp.Compare(f.Rank, old.Rank)) < 0 {
				continue
			}
			r.leave(at, key)
		}
		w.keys = append(w.keys, key)
	}
	if len(w.keys) == 0 {
		return
	}
	added := s.order.PushBack(w)
	for _, key := range w.keys {
		s.by[key] = added
	}
	s.bytes += w.size
	for at := s.order.Front(); at != nil; at = s.order.Front() {
		fits := s.order.Len() <= cmp.Or(r.Count, DefaultCount) && s.bytes <= cmp.Or(r.Bytes, DefaultBytes)
		if fits && at.Value.(*waiting[V]).until.After(now) {
			break
		}
		r.remove(at)
	}
}

// Take removes and returns the facts that wait for an object.
func (r *Ring[V]) Take(o Object) []Waiting[V] {
	keys := []waitKey{{group: true, of: o.GroupARN}, {group: true, of: o.GroupName}, {group: true, of: o.LearnedARN}}
	for _, id := range o.Instances {
		keys = append(keys, waitKey{of: id})
		if o.Learns() {
			keys = append(keys, waitKey{group: true, of: id})
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var taken []Waiting[V]
	for _, key := range keys {
		if at := r.lockedState.by[key]; at != nil && key.of != "" {
			if w := at.Value.(*waiting[V]); w.until.After(r.Clock.Now()) {
				taken = append(taken, w.Waiting)
			}
			r.remove(at)
		}
	}
	return taken
}

// Len returns how many facts wait.
func (r *Ring[V]) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lockedState.order.Len()
}

// leave makes a fact no longer wait for a key, for which there is a newer one.
func (r *Ring[V]) leave(at *list.Element, key waitKey) {
	w := at.Value.(*waiting[V])
	w.keys = slices.DeleteFunc(w.keys, func(k waitKey) bool { return k == key })
	delete(r.lockedState.by, key)
	if len(w.keys) == 0 {
		r.remove(at)
	}
}

func (r *Ring[V]) remove(at *list.Element) {
	w := r.lockedState.order.Remove(at).(*waiting[V])
	for _, key := range w.keys {
		delete(r.lockedState.by, key)
	}
	r.lockedState.bytes -= w.size
}
