package annotator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/capstan-hub/capstan/hub/annotator/annotation"
	"github.com/capstan-hub/capstan/internal/capa"
	"github.com/capstan-hub/capstan/internal/memberwrite"
	"github.com/capstan-hub/capstan/watchers"
)

// conflictRetry is when a node group is looked at again that somebody else wrote in
// between: the watch brings what was written within milliseconds.
const conflictRetry = 200 * time.Millisecond

// mostMalformed values are named in an Event: an annotation holds thousands.
const mostMalformed = 3

// Reconciler annotates the node groups of one kind.
type Reconciler struct {
	Options
	kind       schema.GroupKind
	dependents *dependents
	teller     *teller
	writer     *writer
	metrics    *metrics
	unseen     unseen
	contests   contests
	// queue is nil until the controller starts.
	queue atomic.Pointer[queue]
}

// Reconcile brings one node group's annotations to what they should be, by one patch
// or none.
func (r *Reconciler) Reconcile(ctx context.Context, who mcreconcile.Request) (reconcile.Result, error) {
	reader := r.Watchers.Reader(who.ClusterName)
	var unsynced *watchers.NotSyncedError
	group, err := capa.Get(ctx, reader, r.kind.WithVersion(capa.CoreVersion), who.NamespacedName)
	switch {
	case errors.As(err, &unsynced) && unsynced.Demanded:
		return reconcile.Result{RequeueAfter: syncRetry}, nil
	case unsynced != nil: // The cluster is not looked after any more.
		r.forget(who)
		return reconcile.Result{}, nil
	case apierrors.IsNotFound(err):
		r.forget(who)
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, err
	case group.GetDeletionTimestamp() != nil, ownedByDeployment(group):
		r.forget(who)
		return reconcile.Result{}, nil
	case r.unseen.holds(who, group.GetResourceVersion()):
		return reconcile.Result{}, nil // The watch wakes it.
	}
	l := r.dependents.begin(who, reader)
	defer l.end()
	v := r.decide(ctx, l, group)
	if v.pending {
		return reconcile.Result{RequeueAfter: v.retry}, nil
	}
	if v.node == nil {
		r.teller.tell(ctx, who, group, v.notices...)
		return reconcile.Result{RequeueAfter: v.retry}, nil
	}
	change := annotation.Plan(group.GetAnnotations(), *v.node, r.Families)
	v.notices = append(v.notices, stranger(change)...)
	if change.Empty() {
		r.teller.tell(ctx, who, group, v.notices...)
		return reconcile.Result{RequeueAfter: v.retry}, nil
	}
	return r.write(ctx, who, group, change, v)
}

func (r *Reconciler) forget(who mcreconcile.Request) {
	r.dependents.keep(who, nil)
	r.teller.forget(who)
	r.unseen.forget(who)
	r.contests.forget(who)
}

// write the change, and tell of it.
func (r *Reconciler) write(ctx context.Context, who mcreconcile.Request, group *unstructured.Unstructured, change annotation.Change, v verdict) (reconcile.Result, error) {
	notices := v.notices
	patch, err := change.MergePatch(group.GetResourceVersion())
	if err != nil {
		return reconcile.Result{}, err
	}
	what := change.Fingerprint()
	wait, contested := r.contests.until(who, what)
	if contested {
		notices = append(notices, warn(ReasonFailedUpdate, WordUndone, "somebody undoes what is written to %s again and again, such as GitOps or the ClusterClass' topology: let it set these annotations wholly or not at all",
			strings.Join(change.Keys(), ", ")))
	}
	if wait > 0 {
		r.teller.tell(ctx, who, group, notices...)
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	var later errLater
	r.unseen.writes(who, group.GetResourceVersion())
	if err = r.writer.patch(ctx, who.ClusterName, group, patch); err != nil {
		r.unseen.forget(who)
	}
	switch {
	case err == nil:
		r.contests.wrote(who, what)
		r.written(who, group, v)
		r.metrics.patches.WithLabelValues(r.kind.Kind, outcomeWritten).Inc()
		r.teller.tell(ctx, who, group, notices...)
		log.FromContext(ctx).Info("annotated", "set", len(change.Set), "removed", len(change.Remove))
		return reconcile.Result{}, nil
	case errors.As(err, &later):
		return reconcile.Result{RequeueAfter: later.after}, nil
	case apierrors.IsConflict(err):
		r.metrics.patches.WithLabelValues(r.kind.Kind, outcomeConflict).Inc()
		log.FromContext(ctx).V(1).Info("somebody else wrote in between")
		return reconcile.Result{RequeueAfter: conflictRetry}, nil
	case apierrors.IsNotFound(err):
		return reconcile.Result{}, nil // Its deletion is on its way.
	case ctx.Err() != nil:
		return reconcile.Result{}, ctx.Err()
	}
	r.metrics.patches.WithLabelValues(r.kind.Kind, outcomeFailed).Inc()
	r.teller.tell(ctx, who, group, append(notices, warn(ReasonReconcileError, WordNotWritten, "%s", refusal(err)))...)
	return reconcile.Result{RequeueAfter: mendRetry}, nil
}

// refusal says why a patch failed, without what changes from try to try.
func refusal(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("the API server has not answered within %s", memberwrite.Timeout)
	}
	return err.Error()
}

// stranger tells of values that are not ours.
func stranger(c annotation.Change) []notice {
	var all []notice
	if n := len(c.Malformed); n > 0 {
		named := make([]string, 0, mostMalformed+1)
		for _, m := range c.Malformed[:min(n, mostMalformed)] {
			named = append(named, m.String())
		}
		if n > mostMalformed {
			named = append(named, fmt.Sprintf("and %d more", n-mostMalformed))
		}
		all = append(all, warn(ReasonInvalidAnnotation, WordInvalidAnnotation, "%s: cluster-autoscaler would pass over the group or the value; mend or remove it", strings.Join(named, "; ")))
	}
	if len(c.Kept) > 0 {
		all = append(all, notice{
			severity: corev1.EventTypeNormal, reason: ReasonOverridden, word: WordOverridden,
			message: "somebody's own values stay in place of the computed ones: " + strings.Join(c.Kept, ", "),
		})
	}
	return all
}
