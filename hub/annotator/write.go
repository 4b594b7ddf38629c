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
	// fieldManager of the patches.
	fieldManager = "capstan-annotator"
	// laneRetry is when a node group is reconciled again whose cluster uses its share of
	// workers.
	laneRetry = 500 * time.Millisecond
	// notConnectedRetry is when a node group is reconciled again whose cluster is not
	// connected.
	notConnectedRetry = 15 * time.Second
)

// laneRests are how long a member cluster rests that did not answer a patch.
var laneRests = memberwrite.Rests{Min: 10 * time.Second, Max: 5 * time.Minute}

// errLater: the cluster cannot be written to now.
type errLater struct{ after time.Duration }

func (e errLater) Error() string { return "not now: later" }

// writer sends the patches.
type writer struct {
	memberwrite.Writer
	lanes *memberwrite.Lanes
}

// errUndone: the API server took the patch, and the object is as it was.
var errUndone = errors.New("the API server took the patch and the object is as it was: an admission webhook or policy there takes these annotations away; let it pass them")

// patch the object's metadata. Errors: errLater, errUndone, and the API server's.
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
