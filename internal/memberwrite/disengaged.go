package memberwrite

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/source"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

// Queue of a multicluster controller.
type Queue = workqueue.TypedRateLimitingInterface[mcreconcile.Request]

// Disengaged is a source that emits nothing. It is called once for each engagement of a
// cluster that ends, with the queue of the controller.
type Disengaged func(multicluster.ClusterName, Queue)

// ForCluster implements mcsource.TypedSource.
func (d Disengaged) ForCluster(name multicluster.ClusterName, _ cluster.Cluster) (source.TypedSource[mcreconcile.Request], bool, error) {
	return source.TypedFunc[mcreconcile.Request](func(ctx context.Context, q Queue) error {
		context.AfterFunc(ctx, func() { d(name, q) })
		return nil
	}), true, nil
}
