package promotions

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// Outranked returns whether a promotion with a higher number exists, or existed, into the
// same environment, as decision.Ledger.Outranks does for a strategy that is about to change
// something outside: it needs no list of all Promotions. It makes two reads by name, whatever the number of Promotions is. The
// reader must be uncached: a cache may not have the newer promotion yet.
//
// The reads are sufficient because numbers are given in sequence: a number is one above the
// highest of the existing Promotions and of the mark in Pipeline.status. So the first
// number that is given after that of p is the next one, unless a mark above p was written
// before. While p exists, the next one is not deleted by the retention before a mark of at
// least its number is written, because the newest Promotion is always kept.
func Outranked(ctx context.Context, uncached client.Reader, p *capstanv1.Promotion) (bool, error) {
	uids := []types.UID{p.Spec.Pipeline.UID}
	pipeline := &pipelinesv1.Pipeline{}
	key := types.NamespacedName{Namespace: p.Namespace, Name: p.Spec.Pipeline.Name}
	switch err := uncached.Get(ctx, key, pipeline); {
	case apierrors.IsNotFound(err):
	case err != nil:
		return false, fmt.Errorf("reading Pipeline %s: %w", key, err)
	default:
		status := pipeline.Status.Environments[p.Spec.Environment]
		if status != nil && status.LastPromotion > p.Spec.Number {
			return true, nil
		}
		if pipeline.UID != uids[0] {
			uids = append(uids, pipeline.UID) // It was re-created, and names its Promotions by another UID.
		}
	}
	for _, uid := range uids {
		key.Name = Name(p.Spec.Pipeline.Name, uid, p.Spec.Environment, p.Spec.Number+1)
		switch err := uncached.Get(ctx, key, &capstanv1.Promotion{}); {
		case err == nil:
			return true, nil
		case !apierrors.IsNotFound(err):
			return false, fmt.Errorf("reading Promotion %s: %w", key, err)
		}
	}
	return false, nil
}
