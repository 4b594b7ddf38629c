package memberwrite

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// Timeout is the deadline of one call. A longer call would only hold a worker.
const Timeout = 10 * time.Second

// Writer makes clients for the management cluster and for member clusters.
type Writer struct {
	// FieldManager of the patches.
	FieldManager string
	// Local is the client of the management cluster, which has the empty name.
	Local metadata.Interface
	// Clusters returns an engaged cluster.
	Clusters func(context.Context, multicluster.ClusterName) (cluster.Cluster, error)
}

// LocalClient returns a metadata client of a manager's own cluster without a client-side
// rate limit: the number of workers bounds the calls.
func LocalClient(mgr manager.Manager) (metadata.Interface, error) {
	config := rest.CopyConfig(mgr.GetConfig())
	config.QPS, config.RateLimiter = -1, nil
	client, err := metadata.NewForConfigAndClient(config, mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("client of the management cluster: %w", err)
	}
	return client, nil
}

// In returns the client of a cluster. Errors: of class multicluster.ErrClusterNotFound when
// the cluster is not connected.
func (w Writer) In(ctx context.Context, name multicluster.ClusterName) (Client, error) {
	if name == "" {
		return Client{w.FieldManager, w.Local}, nil
	}
	connected, err := w.Clusters(ctx, name)
	if err != nil {
		return Client{}, fmt.Errorf("connection of %s: %w", name, err)
	}
	client, err := metadata.NewForConfigAndClient(connected.GetConfig(), connected.GetHTTPClient())
	if err != nil {
		return Client{}, fmt.Errorf("client of %s: %w", name, err)
	}
	return Client{w.FieldManager, client}, nil
}

// Client reads and patches the metadata of objects in one cluster.
type Client struct {
	fieldManager string
	client       metadata.Interface
}

// Patch sends a merge patch of an object's metadata and returns the object after it.
// Errors: the API server's, and of class context.DeadlineExceeded after Timeout.
func (c Client) Patch(ctx context.Context, resource schema.GroupVersionResource, at types.NamespacedName, patch []byte) (*metav1.PartialObjectMetadata, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	return c.client.Resource(resource).Namespace(at.Namespace).
		Patch(ctx, at.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: c.fieldManager})
}

// Get reads the metadata of an object from the API server. Errors: as those of Patch.
func (c Client) Get(ctx context.Context, resource schema.GroupVersionResource, at types.NamespacedName) (*metav1.PartialObjectMetadata, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	return c.client.Resource(resource).Namespace(at.Namespace).Get(ctx, at.Name, metav1.GetOptions{})
}

// Silent reports whether an error says that the cluster did not answer.
func Silent(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, multicluster.ErrClusterNotFound) || apierrors.IsTimeout(err)
}
