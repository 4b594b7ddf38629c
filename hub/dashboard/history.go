package dashboard

import (
	"maps"
	"sync"
	"time"

	"k8s.io/utils/clock"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/dashboard/view"
)

// history remembers the states of connections of the last day, and the deliveries of backends of the last hour, as the leader
// wrote them. Each replica has its own, from its start: an object takes a few hundred bytes.
type history struct {
	clock clock.PassiveClock
	began time.Time

	// mu guards the fields that follow.
	mu         sync.Mutex
	lockedPast map[view.Cluster]view.Past
	// lockedShared is a copy that was given away; nil after a change.
	lockedShared map[view.Cluster]view.Past
	// lockedBackends and lockedSharedBackends are the same of backends.
	lockedBackends, lockedSharedBackends map[view.BackendKey]view.BackendPast
}

func newHistory(clock clock.PassiveClock) *history {
	return &history{clock: clock, began: clock.Now(), lockedPast: map[view.Cluster]view.Past{}, lockedBackends: map[view.BackendKey]view.BackendPast{}}
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

// deliver records the delivery of a backend.
func (h *history) deliver(b *eventingv1.EventingBackend) {
	if b.Status.Delivery == nil {
		return
	}
	key, now := view.BackendKey{Namespace: b.Namespace, Name: b.Name}, h.clock.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lockedBackends[key] = h.lockedBackends[key].Observe(*b.Status.Delivery, now)
	h.lockedSharedBackends = nil
}

// forgetBackend removes a backend.
func (h *history) forgetBackend(b *eventingv1.EventingBackend) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.lockedBackends, view.BackendKey{Namespace: b.Namespace, Name: b.Name})
	h.lockedSharedBackends = nil
}

// backends returns the past of all backends, which the caller must not change.
func (h *history) backends() map[view.BackendKey]view.BackendPast {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lockedSharedBackends == nil {
		h.lockedSharedBackends = maps.Clone(h.lockedBackends)
	}
	return h.lockedSharedBackends
}

// change records the change or deletion of an object of any kind.
func (h *history) change(object any, deleted bool) {
	switch o := object.(type) {
	case *capstanv1.ClusterConnection:
		if deleted {
			h.forget(o)
		} else {
			h.observe(o)
		}
	case *eventingv1.EventingBackend:
		if deleted {
			h.forgetBackend(o)
		} else {
			h.deliver(o)
		}
	}
}
