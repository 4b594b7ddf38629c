package pipeline

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// The API server removes fields from a Pipeline that its CRD does not have, when the Pipeline is read.
// So the CRD of another product, or an older one of this product, hides gates, quorums and selectors of
// clusters, and a write would store the Pipeline without them. Such a Pipeline has no status.schema, or no
// status.schemaFleets. Nothing is done for it and nothing is written to it, until the CRD is the hub's again.

// errPruned is returned if a Pipeline is served by another CRD.
var errPruned = errors.New("the CRD pipelines.pipelines.weave.works does not keep all gates and selectors of clusters (status.schema or status.schemaFleets is absent): apply config/crd of this version of Capstan")

// prunedRetry is the time between two looks at such a Pipeline, if the event of the changed CRD is lost.
const prunedRetry = time.Minute

// ReasonCRDOutdated is the reason why a Pipeline is not reconciled that is served by another CRD.
const ReasonCRDOutdated = "CRDOutdated"

// pruned reports once that a Pipeline is served by another CRD.
func (r *Reconciler) pruned(ctx context.Context, p *pipelinesv1.Pipeline) ctrl.Result {
	key := client.ObjectKeyFromObject(p)
	r.soaks.forget(key)
	if _, known := r.outdated.Swap(key, true); !known {
		r.metrics.outdated.Inc()
		r.Recorder.Eventf(p, nil, corev1.EventTypeWarning, ReasonCRDOutdated, "Reconcile", "Nothing is promoted: %v", errPruned)
		logger(ctx).Error(errPruned, "nothing is promoted for the Pipeline", "reason", ReasonCRDOutdated)
	}
	return ctrl.Result{RequeueAfter: prunedRetry}
}

// served notes that a Pipeline is served in full, or was deleted.
func (r *Reconciler) served(key types.NamespacedName) {
	if _, known := r.outdated.LoadAndDelete(key); known {
		r.metrics.outdated.Dec()
	}
}

// refused returns why the API server cannot apply a patch: the Pipeline is served by another CRD, or it
// is not any more what the patch was made of, and a path of the patch does not exist. It returns nil
// for another cause.
func (r *Reconciler) refused(ctx context.Context, p *pipelinesv1.Pipeline) error {
	now := &pipelinesv1.Pipeline{}
	switch err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(p), now); {
	case err != nil:
		return nil //nolint:nilerr // Then the refusal itself is the error.
	case !now.ServedInFull():
		return errPruned
	case now.ResourceVersion != p.ResourceVersion:
		return errMovedOn
	}
	return nil
}
