package fleet

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// connections are the ClusterConnections of the workload clusters.
type connections struct{ client.Reader }

// get the ClusterConnection of a workload cluster.
func (v connections) get(ctx context.Context, cluster string) (*capstanv1.ClusterConnection, error) {
	var list capstanv1.ClusterConnectionList
	if err := v.Reader.List(ctx, &list, client.InNamespace(fleetNamespace)); err != nil {
		return nil, err
	}
	for i, c := range list.Items {
		if c.Spec.ClusterRef.Kind == pipelinesv1.ClusterKindCluster && c.Spec.ClusterRef.Name == cluster {
			return &list.Items[i], nil
		}
	}
	return nil, fmt.Errorf("no ClusterConnection of Cluster %s/%s", fleetNamespace, cluster)
}

// are: the ClusterConnections of the clusters are in the state.
func (v connections) are(state capstanv1.ConnectionState, clusters ...string) check {
	return func(ctx context.Context) error {
		for _, name := range clusters {
			c, err := v.get(ctx, name)
			if err != nil {
				return err
			}
			if c.Status.State != state {
				return fmt.Errorf("ClusterConnection %s is %s: %s: %s", c.Name, c.Status.State, c.Status.Reason, c.Status.Message)
			}
		}
		return nil
	}
}
