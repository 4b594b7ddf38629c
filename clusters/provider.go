package clusters

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

var _ multicluster.Provider = &Manager{}

// Get implements multicluster.Provider: the cluster.Cluster of a connection that
// is Ready or Degraded, else multicluster.ErrClusterNotFound. It does no I/O. The
// cluster's cache has no informers and makes none; read through package watchers,
// or uncached (GetAPIReader).
func (m *Manager) Get(_ context.Context, name multicluster.ClusterName) (cluster.Cluster, error) {
	k := m.keeper(name)
	if k == nil {
		return nil, multicluster.ErrClusterNotFound
	}
	k.mu.Lock()
	state, connection := k.lockedState.snapshot.State, k.lockedState.connection
	k.mu.Unlock()
	if connection == nil || !passes(state) {
		return nil, fmt.Errorf("%w: %q is %s", multicluster.ErrClusterNotFound, name, state)
	}
	return connection.built()
}

// IndexField implements multicluster.Provider. It always fails: an index on the
// caches of workload clusters would need informers there, and discovery to make
// them, which a dead cluster can hold for ever.
func (m *Manager) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return ErrNoIndexes
}

// build makes the cluster.Cluster of an epoch, without a call to the cluster, and
// starts it for the epoch's life.
func (m *Manager) build(c *Connection) (cluster.Cluster, error) {
	built, err := cluster.New(c.Config(), func(o *cluster.Options) {
		o.Scheme = m.options.WorkloadScheme
		o.HTTPClient = c.client
		o.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return m.options.WorkloadMapper, nil }
		o.Cache = cache.Options{ReaderFailOnMissingInformer: true, DefaultTransform: cache.TransformStripManagedFields()}
		o.Logger = m.log
	})
	if err != nil {
		return nil, fmt.Errorf("building the cluster: %w", err)
	}
	m.spawn(func(context.Context) {
		if err := built.Start(c.ctx); err != nil && c.ctx.Err() == nil {
			m.log.Error(err, "cluster of a connection ended", "epoch", c.epoch)
		}
	})
	return built, nil
}

// StaticMapper is a RESTMapper of all kinds of a scheme that never asks a server.
// Kinds are namespaced but for those named.
func StaticMapper(scheme *runtime.Scheme, clusterScoped ...schema.GroupKind) meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(scheme.PrioritizedVersionsAllGroups())
	for kind := range scheme.AllKnownTypes() {
		scope := meta.RESTScopeNamespace
		for _, c := range clusterScoped {
			if c == kind.GroupKind() {
				scope = meta.RESTScopeRoot
			}
		}
		mapper.Add(kind, scope)
	}
	return mapper
}

// coreClusterScoped are those of client-go's scheme that a hub might read.
var coreClusterScoped = []schema.GroupKind{
	{Kind: "Namespace"},
	{Kind: "Node"},
	{Kind: "PersistentVolume"},
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"},
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRoleBinding"},
}
