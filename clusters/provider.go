package clusters

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

var _ multicluster.Provider = &Manager{}

// Get implements multicluster.Provider. It returns the cluster.Cluster of a self-managed cluster
// that is engaged and Ready or Degraded, else multicluster.ErrClusterNotFound. It does no I/O.
// The cluster's cache has no informers and makes none. Read through package watchers, or without
// a cache (GetAPIReader).
func (m *Manager) Get(_ context.Context, name multicluster.ClusterName) (cluster.Cluster, error) {
	k := m.keeper(name)
	if k == nil {
		return nil, multicluster.ErrClusterNotFound
	}
	state, connection := k.stateAndConnection()
	if connection == nil || !passes(state) {
		return nil, fmt.Errorf("%w: %q is %s", multicluster.ErrClusterNotFound, name, state)
	}
	if e := k.engagement(); e != nil && e.ctx.Err() == nil {
		return e.built()
	}
	return nil, fmt.Errorf("%w: %q is not engaged", multicluster.ErrClusterNotFound, name)
}

// IndexField implements multicluster.Provider. It always returns ErrNoIndexes. An index on
// the caches of workload clusters would need informers there, and discovery to make
// them. An unreachable cluster would block both.
func (m *Manager) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return ErrNoIndexes
}
