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

// end what publishes for an object that is being deleted: its queue empties itself, and
// then the object goes; at the latest when its time is over.
func (r *Reconciler) end(ctx context.Context, b *eventingv1.EventingBackend) (reconcile.Result, error) {
	name := client.ObjectKeyFromObject(b)
	e := r.entry(name)
	r.secrets.Drop(name)
	r.release(name, e)
	if !r.leads() || !controllerutil.ContainsFinalizer(b, eventingv1.BackendFinalizer) {
		return reconcile.Result{}, nil // Forgotten when it is gone.
	}
	deadline := b.DeletionTimestamp.Add(drainGrace + endGrace)
	if _, runs := r.publisher.Status(name.String()); runs && r.Clock.Now().Before(deadline) {
		if err := r.write(ctx, b, e, facts{wants: b.Status.BackendType, uses: b.Status.BackendType, ending: true}); err != nil {
			return reconcile.Result{}, err
		}
		// The end of the queue wakes this; it looks by itself when that does not come.
		return reconcile.Result{RequeueAfter: deadline.Sub(r.Clock.Now())}, nil
	}
	r.mu.Lock()
	left := e.lockedLeft
	r.mu.Unlock()
	if left > 0 {
		r.Logger.Info("a deleted backend's queue was not empty in time", "backend", name, "dropped", left)
		r.event(b, corev1.EventTypeWarning, eventDropped, actionDelete,
			fmt.Sprintf("%d events were still queued %s after the deletion, and were dropped", left, drainGrace))
	}
	if err := r.hold(ctx, b, false); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, nil
}
