package instancestate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/capstan-hub/capstan/hub/instancestate/owner"
)

const (
	// fieldManager of the patches.
	fieldManager = "capstan-instancestate"
	// callTimeout of one call: an API server that has not answered by then holds a worker
	// no longer. A notice lives for two minutes.
	callTimeout = 10 * time.Second
	// machines is the resource of Cluster API's Machines.
	machines = "machines"
)

// writer patches objects. What goes to a workload cluster passes the transport of its
// connection, which lets merge patches of a few kinds through and nothing else.
type writer struct {
	local    metadata.Interface
	clusters func(context.Context, multicluster.ClusterName) (cluster.Cluster, error)

	mu          sync.Mutex
	lockedState struct {
		// ahead: objects as they were written here, until a watch brings as much.
		ahead map[owner.Key]seen
	}
}

func newWriter(local metadata.Interface, clusters func(context.Context, multicluster.ClusterName) (cluster.Cluster, error)) *writer {
	w := &writer{local: local, clusters: clusters}
	w.lockedState.ahead = map[owner.Key]seen{}
	return w
}

// last is how an object was last written here, if no watch has brought as much yet.
func (w *writer) last(key owner.Key) (seen, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, ahead := w.lockedState.ahead[key]
	return at, ahead
}

// caughtUp says what a watch has brought of an object.
func (w *writer) caughtUp(key owner.Key, resourceVersion string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, ahead := w.lockedState.ahead[key]
	if !ahead {
		return
	}
	order, err := resourceversion.CompareResourceVersion(resourceVersion, at.resourceVersion)
	if err != nil || order >= 0 {
		delete(w.lockedState.ahead, key)
	}
}

func (w *writer) forget(key owner.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.lockedState.ahead, key)
}

func (w *writer) wrote(key owner.Key, at seen) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lockedState.ahead[key] = at
}

// patch an object by a merge patch. Errors: the API server's.
func (w *writer) patch(ctx context.Context, key owner.Key, at seen, patch []byte) (*metav1.PartialObjectMetadata, error) {
	resource, err := w.resource(ctx, key.Cluster, at.gvk.GroupVersion().WithResource(resources[kindOf(key)]))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return resource.Namespace(key.Namespace).Patch(ctx, key.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
}

// read an object from its API server. Errors: the API server's.
func (w *writer) read(ctx context.Context, key owner.Key, gvk schema.GroupVersionKind) (*metav1.PartialObjectMetadata, error) {
	resource, err := w.resource(ctx, key.Cluster, gvk.GroupVersion().WithResource(resources[kindOf(key)]))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return resource.Namespace(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
}

// annotateMachine annotates a Machine of the management cluster. Errors: the API
// server's.
func (w *writer) annotateMachine(ctx context.Context, namespace string, machine metav1.OwnerReference, patch []byte) error {
	gv, err := schema.ParseGroupVersion(machine.APIVersion)
	if err != nil {
		return fmt.Errorf("owner %s: %w", machine.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = w.local.Resource(gv.WithResource(machines)).Namespace(namespace).
		Patch(ctx, machine.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	return err
}

func (w *writer) resource(ctx context.Context, name string, resource schema.GroupVersionResource) (metadata.Getter, error) {
	if name == "" {
		return w.local.Resource(resource), nil
	}
	connected, err := w.clusters(ctx, multicluster.ClusterName(name))
	if err != nil {
		return nil, fmt.Errorf("connection of %s: %w", name, err)
	}
	client, err := metadata.NewForConfigAndClient(connected.GetConfig(), connected.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", name, err)
	}
	return client.Resource(resource), nil
}

var resources = map[schema.GroupKind]string{AWSMachine: "awsmachines", AWSMachinePool: "awsmachinepools"}

// gone is whether an error says that an object is not there. That a path is not, such as
// of a version that is served no more, says nothing of the object.
func gone(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// otherUID is whether an error says that the object is not the one of a patch's uid.
func otherUID(err error) bool {
	return apierrors.IsConflict(err) || apierrors.HasStatusCause(err, metav1.CauseTypeFieldValueInvalid)
}

// silent is whether an error says that the cluster did not answer.
func silent(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, multicluster.ErrClusterNotFound) || apierrors.IsTimeout(err)
}
