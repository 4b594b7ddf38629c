package clusters

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Object is an object of the management cluster that names a cluster.
type Object struct {
	Ref Ref
	// Of is the Cluster that a GitopsCluster references, which need not exist; zero for each other object.
	Of Ref
	// Labels are shared and must not be changed.
	Labels map[string]string
	// Created is when the object was created, in UTC. Deleting is set when its deletion was requested.
	Created  time.Time
	Deleting bool
}

// Objects returns all cluster objects, sorted by kind, namespace and name, with or without a connection. In
// contrast to Resolve, it also knows them on a replica that does not lead. While a replica begins to lead, it returns
// what was read before. The error names each kind that was not read yet because it cannot be read, with the reason. A
// kind that is not installed has no objects and is no error. It does no I/O.
func (m *Manager) Objects() ([]Object, error) {
	leads := map[string]bool{}
	for _, w := range m.watches {
		leads[w.scope] = m.readsAtOnce() || m.objects.decided(w.scope)
	}
	before := func(scope string) bool { return !leads[scope] }
	all := append(m.objects.list(func(scope string) bool { return leads[scope] }), m.standby.list(before)...)
	slices.SortFunc(all, func(a, b Object) int { return a.Ref.compare(b.Ref) })
	// A scope that was read before the election may not be readable now.
	problems := append(m.objects.problems(func(string) bool { return true }), m.standby.problems(before)...)
	slices.Sort(problems)
	var failed []error
	for _, problem := range slices.Compact(problems) {
		failed = append(failed, errors.New(problem))
	}
	return all, errors.Join(failed...)
}

// compare orders references by kind, namespace and name.
func (r Ref) compare(other Ref) int {
	return cmp.Or(cmp.Compare(r.Kind, other.Kind), cmp.Compare(r.Namespace, other.Namespace), cmp.Compare(r.Name, other.Name))
}

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
// to be installed. Before that, Resolve returns ErrNotSynced for the kind. It does not wait for
// Secrets that the hub may not read.
func (m *Manager) WaitForObjects(ctx context.Context) error {
	select {
	case <-m.decided:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the cluster objects: %w", ctx.Err())
	}
}

// kindDecided is called when a scope was read, or its kind is not installed. It wakes the keepers of
// the scope and notifies the Listeners of references that could not be resolved before.
func (m *Manager) kindDecided(scope string, unresolved []Ref) {
	m.noteDecided(scope)
	for _, k := range m.keepers() {
		if m.objects.scopeOf(k.ref.Kind, k.ref.Namespace) == scope {
			m.wake(k)
		}
	}
	for _, ref := range unresolved {
		for _, l := range m.listeners {
			l.ReferenceChanged(ref)
		}
	}
}

func (m *Manager) noteDecided(scope string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if slices.Contains(m.lockedState.decided, scope) {
		return
	}
	if m.lockedState.decided = append(m.lockedState.decided, scope); len(m.lockedState.decided) == len(m.watches) {
		close(m.decided)
	}
}
