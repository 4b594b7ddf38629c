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

// conflictRetry is the wait after a conflict with another writer. The watch delivers the other
// change within milliseconds.
const conflictRetry = 200 * time.Millisecond

// mostMalformed is how many malformed values an Event names: an annotation can hold thousands.
const mostMalformed = 3

// Reconciler annotates the node groups of one kind.
type Reconciler struct {
	Options
	kind       schema.GroupKind
	dependents *dependents
	notifier   *notifier
	writer     *writer
	metrics    *metrics
	unseen     unseen
	contests   contests
	// queue is nil until the controller starts.
	queue atomic.Pointer[queue]
}

// Reconcile updates the annotations of one node group by one patch, or none if they are as
// they should be.
func (r *Reconciler) Reconcile(ctx context.Context, who mcreconcile.Request) (reconcile.Result, error) {
	if !r.Watchers.Delivers(who.ClusterName) {
		r.forget(who) // The node groups of the cluster may still be stored.
		return reconcile.Result{}, nil
	}
	reader := r.Watchers.Reader(who.ClusterName)
	var unsynced *watchers.NotSyncedError
	group, err := capa.Get(ctx, reader, r.kind.WithVersion(capa.CoreVersion), who.NamespacedName)
	switch {
	case errors.As(err, &unsynced) && unsynced.Demanded:
		return reconcile.Result{RequeueAfter: syncRetry}, nil
	case unsynced != nil: // The cluster is no longer engaged.
		r.forget(who)
		return reconcile.Result{}, nil
	case apierrors.IsNotFound(err):
		r.forget(who)
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, err
	case group.GetDeletionTimestamp() != nil, capa.OwnedByDeployment(group):
		r.forget(who)
		return reconcile.Result{}, nil
	case r.unseen.holds(who, group.GetResourceVersion()):
		return reconcile.Result{}, nil // The watch triggers the next reconciliation.
	}
	l := r.dependents.begin(who, reader)
	defer l.end()
	v := r.decide(ctx, l, group)
	if v.pending {
		return reconcile.Result{RequeueAfter: v.retry}, nil
	}
	if v.node == nil {
		r.notifier.publish(ctx, who, group, v.notices...)
		return reconcile.Result{RequeueAfter: repeating(v.retry, v.notices)}, nil
	}
	change := annotation.Plan(group.GetAnnotations(), *v.node, r.Families)
	v.notices = append(v.notices, stranger(change)...)
	if change.Empty() {
		r.notifier.publish(ctx, who, group, v.notices...)
		return reconcile.Result{RequeueAfter: repeating(v.retry, v.notices)}, nil
	}
	return r.write(ctx, who, group, change, v)
}

func (r *Reconciler) forget(who mcreconcile.Request) {
	r.dependents.keep(who, nil)
	r.notifier.forget(who)
	r.unseen.forget(who)
	r.contests.forget(who)
}

// write sends the change and reports the result.
func (r *Reconciler) write(ctx context.Context, who mcreconcile.Request, group *unstructured.Unstructured, change annotation.Change, v verdict) (reconcile.Result, error) {
	notices := v.notices
	patch, err := change.MergePatch(group.GetResourceVersion())
	if err != nil {
		return reconcile.Result{}, err
	}
	what := change.Fingerprint()
	wait, contested := r.contests.until(who, what)
	if contested {
		notices = append(notices, warn(ReasonFailedUpdate, WordUndone, "another client, such as GitOps or the topology controller of the ClusterClass, repeatedly reverts %s: configure it to set all of these annotations or none",
			strings.Join(change.Keys(), ", ")))
	}
	if wait > 0 {
		r.notifier.publish(ctx, who, group, notices...)
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
		r.notifier.publish(ctx, who, group, notices...)
		log.FromContext(ctx).Info("annotated", "set", len(change.Set), "removed", len(change.Remove))
		return reconcile.Result{}, nil
	case errors.As(err, &later):
		return reconcile.Result{RequeueAfter: later.after}, nil
	case apierrors.IsConflict(err):
		r.metrics.patches.WithLabelValues(r.kind.Kind, outcomeConflict).Inc()
		log.FromContext(ctx).V(1).Info("another client changed the node group; reconciling again")
		return reconcile.Result{RequeueAfter: conflictRetry}, nil
	case apierrors.IsNotFound(err):
		return reconcile.Result{}, nil // The watch delivers its deletion.
	case ctx.Err() != nil:
		return reconcile.Result{}, ctx.Err()
	}
	r.metrics.patches.WithLabelValues(r.kind.Kind, outcomeFailed).Inc()
	r.notifier.publish(ctx, who, group, append(notices, warn(ReasonReconcileError, WordNotWritten, "%s", refusal(err)))...)
	return reconcile.Result{RequeueAfter: fixRetry}, nil
}

// refusal returns why a patch failed, without details that differ from try to try.
func refusal(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("the API server did not answer within %s", memberwrite.Timeout)
	}
	return err.Error()
}

// stranger returns the notices about values that this package did not write.
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
		all = append(all, warn(ReasonInvalidAnnotation, WordInvalidAnnotation, "%s: cluster-autoscaler ignores the value or the whole group; correct or remove the value", strings.Join(named, "; ")))
	}
	if len(c.Kept) > 0 {
		all = append(all, notice{
			severity: corev1.EventTypeNormal, reason: ReasonOverridden, word: WordOverridden,
			message: "values set by a user are kept instead of the computed values: " + strings.Join(c.Kept, ", "),
		})
	}
	return all
}
