package dashboard

import (
	"maps"
	"sync"
	"time"

	"k8s.io/utils/clock"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/hub/dashboard/view"
)

// history remembers the states of connections of the last day, as the leader wrote them. Each replica has its own, from
// its start: a cluster takes a few hundred bytes.
type history struct {
	clock clock.PassiveClock
	began time.Time

	// mu guards the fields that follow.
	mu         sync.Mutex
	lockedPast map[view.Cluster]view.Past
	// lockedShared is a copy that was given away; nil after a change.
	lockedShared map[view.Cluster]view.Past
}

func newHistory(clock clock.PassiveClock) *history {
	return &history{clock: clock, began: clock.Now(), lockedPast: map[view.Cluster]view.Past{}}
}

// observe records the state of a connection.
func (h *history) observe(c *capstanv1.ClusterConnection) {
	cluster, tone, slot := view.ClusterOf(&c.Spec.ClusterRef, c.Namespace), view.ConnectionTone(c.Status.State), view.SlotOf(h.clock.Now())
	h.mu.Lock()
	defer h.mu.Unlock()
	before, known := h.lockedPast[cluster]
	if known && before.State == tone {
		return
	}
	h.lockedPast[cluster] = before.Observe(tone, slot)
	h.lockedShared = nil
}

// forget removes a connection.
func (h *history) forget(c *capstanv1.ClusterConnection) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.lockedPast, view.ClusterOf(&c.Spec.ClusterRef, c.Namespace))
	h.lockedShared = nil
}

// past returns the past of all connections, which the caller must not change.
func (h *history) past() map[view.Cluster]view.Past {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lockedShared == nil {
		h.lockedShared = maps.Clone(h.lockedPast)
	}
	return h.lockedShared
}
