package promotion

import (
	"context"
	"fmt"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// longestWait bounds a requeue: a promotion that is kept because it is the newest may not
// be the newest a day later.
const longestWait = 24 * time.Hour

// retire deletes a finished promotion after the retention time.
func (r *Reconciler) retire(ctx context.Context, p *capstanv1.Promotion, v view) (ctrl.Result, error) {
	if p.Status.FinishTime == nil {
		return ctrl.Result{}, nil
	}
	left := p.Status.FinishTime.Add(r.Retention).Sub(r.Clock.Now())
	if left > 0 {
		return ctrl.Result{RequeueAfter: min(left, longestWait)}, nil
	}
	if v.pipeline != nil && kept(p, v) {
		return ctrl.Result{RequeueAfter: longestWait}, nil
	}
	if err := r.Client.Delete(ctx, p, client.Preconditions{UID: &p.UID, ResourceVersion: &p.ResourceVersion}); err != nil {
		return requeueOnConflict(ctx, fmt.Errorf("deleting Promotion %s/%s after its retention: %w", p.Namespace, p.Name, err))
	}
	log.FromContext(ctx).Info("promotion deleted after its retention", "finished", p.Status.FinishTime, "retention", r.Retention)
	return ctrl.Result{}, nil
}

// kept returns whether the promotion is needed: for the numbering, or to show that the
// state of the environment was promoted.
func kept(p *capstanv1.Promotion, v view) bool {
	if n := v.ledger.Newest(); n == nil || n.Number <= p.Spec.Number {
		return true
	}
	s := v.ledger.NewestSucceeded()
	return s != nil && s.Number == p.Spec.Number
}
