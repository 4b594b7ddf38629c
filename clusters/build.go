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
	"sigs.k8s.io/controller-runtime/pkg/cluster"
)

// build makes the cluster.Cluster of an engagement, without a call to the cluster, and starts
// it. It runs until ctx ends.
func (m *shared) build(ctx context.Context, c *Connection) (cluster.Cluster, error) {
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
	m.goroutines.spawn(func(context.Context) {
		if err := built.Start(ctx); err != nil && ctx.Err() == nil {
			m.log.Error(err, "cluster of a connection ended", "epoch", c.epoch)
		}
	})
	return built, nil
}

// StaticMapper is a RESTMapper of all kinds of a scheme that never calls a server.
// All kinds are namespaced, except those in clusterScoped.
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

// coreClusterScoped are the cluster-scoped kinds of client-go's scheme that a hub might read.
var coreClusterScoped = []schema.GroupKind{
	{Kind: "Namespace"},
	{Kind: "Node"},
	{Kind: "PersistentVolume"},
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"},
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRoleBinding"},
}
