package annotator

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/internal/capa"
	"github.com/capstan-hub/capstan/internal/memberwrite"
)

const (
	// laneRetry is the wait of a node group whose cluster uses its whole share of workers.
	laneRetry = 500 * time.Millisecond
	// notConnectedRetry is the wait of a node group whose cluster is not connected.
	notConnectedRetry = 15 * time.Second
)

// laneRests bound how long a member cluster that did not answer gets no patch.
var laneRests = memberwrite.Rests{Min: 10 * time.Second, Max: 5 * time.Minute}

// errLater says that the cluster cannot be written to now.
type errLater struct{ after time.Duration }

func (e errLater) Error() string { return "the cluster cannot be written to now" }

// writer sends the patches.
type writer struct {
	memberwrite.Writer
	lanes *memberwrite.Lanes
}

// errUndone says that the API server accepted a patch that did not change the object.
var errUndone = errors.New("the API server accepted the patch, but the object did not change: an admission webhook or policy of the cluster removes these annotations; configure it to allow them")

// patch sends a patch of the object's metadata. Errors: errLater, errUndone, and the API server's.
func (w *writer) patch(ctx context.Context, name multicluster.ClusterName, u *unstructured.Unstructured, patch []byte) error {
	to, err := w.In(ctx, name)
	if errors.Is(err, multicluster.ErrClusterNotFound) {
		return errLater{notConnectedRetry}
	} else if err != nil {
		return err
	}
	outcome := memberwrite.Answered
	if name != clusters.LocalName {
		if wait := w.lanes.Enter(name); wait > 0 {
			return errLater{wait}
		}
		defer func() { w.lanes.Leave(name, outcome) }()
	}
	gvk := u.GroupVersionKind()
	resource := capa.Resource(gvk.GroupKind()).WithVersion(gvk.Version)
	written, err := to.Patch(ctx, resource, client.ObjectKeyFromObject(u), patch)
	switch {
	case memberwrite.Silent(err):
		outcome = memberwrite.Unanswered
	case err == nil && written.GetResourceVersion() == u.GetResourceVersion():
		return errUndone
	}
	return err
}
