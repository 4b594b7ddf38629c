package clusters

import (
	"context"
	"fmt"
	"slices"
)

// objectsChanged is called with references whose object changed. It updates the demands of
// SelfManagedLabel, wakes the keepers and notifies the Listeners.
func (m *Manager) objectsChanged(refs []Ref) {
	for _, ref := range refs {
		object, found := m.objects.find(ref)
		if found == presencePresent && object.SelfManaged && !object.Deleting {
			m.Demand(ref.ClusterName(), SelfManagedOwner)
		} else {
			m.Release(ref.ClusterName(), SelfManagedOwner)
		}
		m.wakeCluster(ref.ClusterName())
		for _, l := range m.listeners {
			l.ReferenceChanged(ref)
		}
	}
}

// WaitForObjects waits until every kind of cluster object was read, or is known not
// to be installed. Before that, Resolve returns ErrNotSynced for the kind.
func (m *Manager) WaitForObjects(ctx context.Context) error {
	select {
	case <-m.decided:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the cluster objects: %w", ctx.Err())
	}
}

// kindDecided is called when a kind was read, or is not installed. It wakes the keepers of
// the kind and notifies the Listeners of references that could not be resolved before.
func (m *Manager) kindDecided(kind string, unresolved []Ref) {
	m.noteDecided(kind)
	for _, k := range m.keepers() {
		if k.ref.Kind == kind {
			m.wake(k)
		}
	}
	for _, ref := range unresolved {
		for _, l := range m.listeners {
			l.ReferenceChanged(ref)
		}
	}
}

func (m *Manager) noteDecided(kind string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if slices.Contains(m.lockedState.decided, kind) {
		return
	}
	if m.lockedState.decided = append(m.lockedState.decided, kind); len(m.lockedState.decided) == len(clusterKinds) {
		close(m.decided)
	}
}
