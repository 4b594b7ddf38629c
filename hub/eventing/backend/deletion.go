package backend

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
)

// finalize stops publishing to an object that is being deleted. Its finalizer is removed
// when the queue is empty, or at the deadline.
func (r *Reconciler) finalize(ctx context.Context, b *eventingv1.EventingBackend) (reconcile.Result, error) {
	name := client.ObjectKeyFromObject(b)
	e := r.entry(name)
	r.secrets.Drop(name)
	r.release(name, e)
	if !r.isLeader() || !controllerutil.ContainsFinalizer(b, eventingv1.BackendFinalizer) {
		return reconcile.Result{}, nil // The entry is deleted when the object no longer exists.
	}
	deadline := b.DeletionTimestamp.Add(r.Timings.DrainGrace + endGrace)
	if _, runs := r.publisher.Status(name.String()); runs && r.Clock.Now().Before(deadline) {
		if err := r.write(ctx, b, e, facts{specType: b.Status.BackendType, activeType: b.Status.BackendType, ending: true}); err != nil {
			return reconcile.Result{}, err
		}
		// The end of the queue enqueues the object. The requeue is for the case that it
		// does not end in time.
		return reconcile.Result{RequeueAfter: deadline.Sub(r.Clock.Now())}, nil
	}
	r.mu.Lock()
	left := e.lockedLeft
	r.mu.Unlock()
	if left > 0 {
		r.Logger.Info("dropped the queued events of a deleted EventingBackend", "backend", name, "dropped", left)
		r.event(b, corev1.EventTypeWarning, eventDropped, actionDelete,
			fmt.Sprintf("%d events were still queued %s after the deletion, and were dropped", left, r.Timings.DrainGrace))
	}
	if err := r.setFinalizer(ctx, b, false); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, nil
}
