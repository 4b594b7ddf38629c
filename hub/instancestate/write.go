package instancestate

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/capstan-hub/capstan/hub/instancestate/owner"
	"github.com/capstan-hub/capstan/internal/capa"
	"github.com/capstan-hub/capstan/internal/memberwrite"
)

// fieldManager of the patches.
const fieldManager = "capstan-instancestate"

// writer patches objects, and remembers their state after the patch.
type writer struct {
	memberwrite.Writer

	mu          sync.Mutex
	lockedState struct {
		// ahead: objects as they were written here, until a watch delivers that state.
		ahead map[owner.Key]seen
	}
}

func newWriter(to memberwrite.Writer) *writer {
	w := &writer{Writer: to}
	w.lockedState.ahead = map[owner.Key]seen{}
	return w
}

// last returns the state that this process last wrote of an object, if no watch has
// delivered it yet.
func (w *writer) last(key owner.Key) (seen, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, ahead := w.lockedState.ahead[key]
	return at, ahead
}

// caughtUp records the resourceVersion of an object that a watch has delivered. It returns
// whether that is the newest state: false when this process has written a newer one.
func (w *writer) caughtUp(key owner.Key, resourceVersion string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, ahead := w.lockedState.ahead[key]
	if !ahead {
		return true
	}
	if order, err := resourceversion.CompareResourceVersion(resourceVersion, at.resourceVersion); err == nil && order < 0 {
		return false
	}
	delete(w.lockedState.ahead, key)
	return true
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

// patch applies a merge patch to an object. Errors: those of memberwrite.
func (w *writer) patch(ctx context.Context, key owner.Key, at seen, patch []byte) (*metav1.PartialObjectMetadata, error) {
	to, err := w.In(ctx, multicluster.ClusterName(key.Cluster))
	if err != nil {
		return nil, err
	}
	return to.Patch(ctx, resourceOf(key, at.gvk), nameOf(key), patch)
}

// read returns an object from its API server. Errors: those of memberwrite.
func (w *writer) read(ctx context.Context, key owner.Key, gvk schema.GroupVersionKind) (*metav1.PartialObjectMetadata, error) {
	from, err := w.In(ctx, multicluster.ClusterName(key.Cluster))
	if err != nil {
		return nil, err
	}
	return from.Get(ctx, resourceOf(key, gvk), nameOf(key))
}

// annotateMachine annotates the Machine that owns an object, in the cluster and namespace of the
// object. Errors: those of memberwrite.
func (w *writer) annotateMachine(ctx context.Context, of owner.Key, machine metav1.OwnerReference, patch []byte) error {
	gv, err := schema.ParseGroupVersion(machine.APIVersion)
	if err != nil {
		return fmt.Errorf("owner %s: %w", machine.Name, err)
	}
	to, err := w.In(ctx, multicluster.ClusterName(of.Cluster))
	if err != nil {
		return err
	}
	_, err = to.Patch(ctx, capa.Resource(capa.Machine).WithVersion(gv.Version), types.NamespacedName{Namespace: of.Namespace, Name: machine.Name}, patch)
	return err
}

func resourceOf(key owner.Key, served schema.GroupVersionKind) schema.GroupVersionResource {
	return capa.Resource(key.Kind).WithVersion(served.Version)
}

func nameOf(key owner.Key) types.NamespacedName {
	return types.NamespacedName{Namespace: key.Namespace, Name: key.Name}
}

// notFound reports whether an error means that an object does not exist. A path that does
// not exist, for example of a version that is no longer served, does not mean that.
func notFound(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// otherUID reports whether an error means that the object does not have the uid of a patch.
func otherUID(err error) bool {
	return apierrors.IsConflict(err) || apierrors.HasStatusCause(err, metav1.CauseTypeFieldValueInvalid)
}
