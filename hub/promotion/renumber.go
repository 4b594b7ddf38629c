package promotion

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/internal/promotions"
	"github.com/capstan-hub/capstan/strategy"
)

// numbersLost is the reason of the Event when the hub continues under another number.
const numbersLost = "NumbersLost"

// renumber continues a promotion under a number above the one that the receiver of its
// action has, if no promotion with a higher number exists: the management cluster was
// restored from a backup that is older than that number. It creates the same intent in the
// next slot, which only one hub can; the lifecycle table then supersedes p. The promotion
// with the new number takes over what the lost ones left at the receiver.
//
// The check is uncached: a promotion with a higher number that this hub's cache does not
// have yet is none that was lost. Approvals and overrides belong to the promotion that they were
// given for, so a manual promotion waits for another one.
func (r *Reconciler) renumber(ctx context.Context, p *capstanv1.Promotion, outranked *strategy.OutrankedError) error {
	v, err := r.view(ctx, r.APIReader, p)
	if err != nil {
		return err
	}
	if v.pipeline == nil || v.suspended() || v.ledger.Outranks(decision.EntryOf(p)) || outranked.Number <= p.Spec.Number {
		return nil
	}
	next := &capstanv1.Promotion{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace,
			Name:      promotions.Name(p.Spec.Pipeline.Name, p.Spec.Pipeline.UID, p.Spec.Environment, outranked.Number+1),
			Labels:    maps.Clone(p.Labels),
		},
		Spec: *p.Spec.DeepCopy(),
	}
	delete(next.Labels, capstanv1.ApprovalSignatureLabel)
	next.Spec.Number, next.Spec.Approval, next.Spec.Overrides, next.Spec.Retry = outranked.Number+1, nil, nil, 0
	switch err := r.Client.Create(ctx, next); {
	case apierrors.IsAlreadyExists(err):
		return nil // Another hub has created it.
	case err != nil:
		return fmt.Errorf("creating Promotion %s/%s: %w", next.Namespace, next.Name, err)
	}
	r.Recorder.Eventf(p, nil, corev1.EventTypeWarning, numbersLost, "Promote",
		"promotion number %d of environment %q exists at the Git service and not in this cluster, which was restored from an older state; Promotion %s continues with number %d",
		outranked.Number, p.Spec.Environment, next.Name, next.Spec.Number)
	log.FromContext(ctx).Info("promotions were lost, probably by a restore; the promotion continues under a higher number",
		"lost", outranked.Number, "promotion", next.Name, "number", next.Spec.Number)
	return nil
}
