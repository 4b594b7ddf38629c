package promotion

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/internal/promotions"
)

// view is what the hub's objects say around one Promotion.
type view struct {
	// pipeline that asked for it; nil when none of its name and UID exists.
	pipeline *pipelinesv1.Pipeline
	// ledger of the environment.
	ledger decision.Ledger
	// secretChanged: the Secret that the promotion failed with is another by now.
	secretChanged bool
}

// view reads the Pipeline and the Promotions beside this one.
func (r *Reconciler) view(ctx context.Context, reader client.Reader, p *capstanv1.Promotion) (view, error) {
	var v view
	pipeline := &pipelinesv1.Pipeline{}
	err := reader.Get(ctx, types.NamespacedName{Namespace: p.Namespace, Name: p.Spec.Pipeline.Name}, pipeline)
	switch {
	case err == nil && pipeline.UID == p.Spec.Pipeline.UID && pipeline.DeletionTimestamp.IsZero():
		v.pipeline = pipeline
	case err != nil && !apierrors.IsNotFound(err):
		return v, fmt.Errorf("reading Pipeline %s/%s: %w", p.Namespace, p.Spec.Pipeline.Name, err)
	}
	all, err := promotions.OfPipeline(ctx, reader, types.NamespacedName{Namespace: p.Namespace, Name: p.Spec.Pipeline.Name}, p.Spec.Pipeline.UID)
	if err != nil {
		return v, err
	}
	var mark int64
	if status := v.status(p.Spec.Environment); status != nil {
		mark = status.LastPromotion
	}
	v.ledger = decision.LedgerOf(all, p.Spec.Environment, mark)
	v.secretChanged, err = r.secretChanged(ctx, p)
	return v, err
}

// secretChanged asks for the version of the Secret that a promotion failed with,
// uncached and as metadata only. One that may not be read is not known to have
// changed.
func (r *Reconciler) secretChanged(ctx context.Context, p *capstanv1.Promotion) (bool, error) {
	failedWith := p.Status.Secret
	if failedWith == nil || p.Status.Phase != capstanv1.PhaseFailed {
		return false, nil
	}
	now := &metav1.PartialObjectMetadata{}
	now.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	err := r.APIReader.Get(ctx, types.NamespacedName{Namespace: p.Namespace, Name: failedWith.Name}, now)
	switch {
	case apierrors.IsNotFound(err):
		return failedWith.ResourceVersion != "", nil
	case apierrors.IsForbidden(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading the metadata of Secret %s/%s: %w", p.Namespace, failedWith.Name, err)
	}
	return now.ResourceVersion != failedWith.ResourceVersion, nil
}

func (v view) suspended() bool { return v.pipeline != nil && v.pipeline.Spec.Suspend }

func (v view) status(env string) *pipelinesv1.EnvironmentStatus {
	if v.pipeline == nil {
		return nil
	}
	return v.pipeline.Status.Environments[env]
}

// environment of the Pipeline's spec by name; nil when it has none.
func (v view) environment(env string) *pipelinesv1.Environment {
	i := slices.IndexFunc(v.pipeline.Spec.Environments, func(e pipelinesv1.Environment) bool { return e.Name == env })
	if i < 0 {
		return nil
	}
	return &v.pipeline.Spec.Environments[i]
}

// facts that the life table asks for.
func (v view) facts(p *capstanv1.Promotion, outcome decision.Outcome) decision.Facts {
	f := decision.Facts{
		PipelineGone: v.pipeline == nil,
		Newer:        v.ledger.Highest() > p.Spec.Number,
		Manual:       p.Spec.Manual,
		Approved:     p.Spec.Approval != nil,
		Retry:        p.Spec.Retry > p.Status.Retry,
		Tried:        p.Status.Attempt != nil,
		Outcome:      outcome,

		SecretChanged: v.secretChanged && p.Status.Secret != nil,
	}
	if v.pipeline == nil {
		return f
	}
	env := v.environment(p.Spec.Environment)
	f.EnvironmentGone = env == nil
	f.PromotionGone = env != nil && v.pipeline.PromotionFor(env) == nil
	if status := v.status(p.Spec.Environment); status != nil && env != nil {
		revision, agrees := decision.Agree(decision.TargetsOf(env, status))
		f.Runs = agrees && revision == p.Spec.Revision
		f.EnvironmentMovedOn = v.movedOn(p, status.Agreed)
	}
	if status := v.status(p.Spec.Source.Environment); status != nil && status.Agreed != nil {
		f.SourceMovedOn = status.Agreed.Sequence > p.Spec.Source.Sequence && status.Agreed.Revision != p.Spec.Revision
	}
	return f
}

// movedOn tells whether the environment agreed, since the promotion was decided,
// on a revision that can only have been made by hand: neither the promoted one,
// nor one that a target ran then, nor what an earlier promotion was to bring (a
// slow carrier of it may be late). Where a target ran nothing then, what it runs
// now tells nothing.
func (v view) movedOn(p *capstanv1.Promotion, agreed *pipelinesv1.AgreedRevision) bool {
	if agreed == nil || p.Spec.From == nil || agreed.Sequence <= p.Spec.From.Sequence || agreed.Revision == p.Spec.Revision {
		return false
	}
	from := p.Spec.From.Revisions
	return !slices.Contains(from, "") && !slices.Contains(from, agreed.Revision) && !v.ledger.Brought(agreed.Revision, p.Spec.Number)
}
