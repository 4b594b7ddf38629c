package owner

import (
	"cmp"
	"container/list"
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
		by    map[string]*list.Element
		bytes int
	}
}

type waiting[V any] struct {
	Waiting[V]
	key string
}

// keyOf returns the instance or group of a fact.
func keyOf(f message.Fact) string {
	switch {
	case !f.Kind.Group():
		return f.InstanceID
	case f.GroupARN != "":
		return f.GroupARN
	}
	return f.GroupName
}

// Put adds a fact, whose event has a size in bytes. Of two facts of one instance or group
// the newer one is kept.
func (r *Ring[V]) Put(f message.Fact, with V, size int) {
	r.Return(Waiting[V]{f, with, size + overhead, r.Clock.Now().Add(cmp.Or(r.TTL, DefaultTTL))})
}

// Return adds a fact that was taken. It waits until the end of its time.
func (r *Ring[V]) Return(taken Waiting[V]) {
	f, key, now := taken.Fact, keyOf(taken.Fact), r.Clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.lockedState
	if s.by == nil {
		s.by = map[string]*list.Element{}
	}
	if at := s.by[key]; at != nil {
		old := at.Value.(*waiting[V]).Fact
		if cmp.Or(f.Time.Compare(old.Time), cmp.Compare(f.Rank, old.Rank)) < 0 {
			return
		}
		r.remove(at)
	}
	w := &waiting[V]{taken, key}
	s.by[key] = s.order.PushBack(w)
	s.bytes += w.size
	for at := s.order.Front(); at != nil; at = s.order.Front() {
		fits := len(s.by) <= cmp.Or(r.Count, DefaultCount) && s.bytes <= cmp.Or(r.Bytes, DefaultBytes)
		if fits && at.Value.(*waiting[V]).until.After(now) {
			break
		}
		r.remove(at)
	}
}

// Take removes and returns the facts that wait for an object.
func (r *Ring[V]) Take(o Object) []Waiting[V] {
	r.mu.Lock()
	defer r.mu.Unlock()
	var taken []Waiting[V]
	for _, key := range append([]string{o.GroupARN, o.GroupName}, o.Instances...) {
		if at := r.lockedState.by[key]; at != nil && key != "" {
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
	return len(r.lockedState.by)
}

func (r *Ring[V]) remove(at *list.Element) {
	w := r.lockedState.order.Remove(at).(*waiting[V])
	delete(r.lockedState.by, w.key)
	r.lockedState.bytes -= w.size
}
