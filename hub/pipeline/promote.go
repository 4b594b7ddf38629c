package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/internal/promotions"
)

// errMovedOn is returned if the objects of a decision have changed since.
var errMovedOn = errors.New("the Pipeline or its Promotions changed meanwhile")

// raceDelay is the wait after a conflict, so that the cache receives the other write.
const raceDelay = 200 * time.Millisecond

// promote creates the Promotions that are due, and gives PromotionRequests their outcome. The status of p has
// been written. It returns the time until a request expires that cannot be carried out at present; 0 if none will.
func (r *Reconciler) promote(ctx context.Context, p *pipelinesv1.Pipeline, seen observations, cached []capstanv1.Promotion, found []problem) (next time.Duration, err error) {
	requests, err := r.requestsFor(ctx, client.ObjectKeyFromObject(p))
	if err != nil {
		return 0, err
	}
	if concernsAll(found) {
		return r.waiting(ctx, onlyOpen(requests), "waits: correct the Pipeline: "+messages(found))
	}
	if err := r.refuseElsewhere(ctx, p, requests); err != nil {
		return 0, err
	}
	var uncached []capstanv1.Promotion
	fleets := seen.fleets(p)
	for i := 1; i < len(p.Spec.Environments); i++ {
		env := p.Spec.Environments[i].Name
		asked := ofEnvironment(requests, env)
		invalid := ofEnvironmentProblems(found, p.Spec.Environments[i].Base())
		if beyondGates(invalid) {
			left, err := r.waiting(ctx, onlyOpen(asked), "waits: correct the Pipeline: "+messages(invalid))
			if err != nil {
				return 0, err
			}
			next = sooner(next, left)
			continue
		}
		isAsked := slices.ContainsFunc(asked, open)
		if !isAsked && !decision.Decide(decision.QuestionOf(p, fleets, cached, i)).Create {
			continue
		}
		if uncached == nil {
			if uncached, err = r.promotionsUncached(ctx, p); err != nil {
				return 0, err
			}
		}
		q := decision.QuestionOf(p, fleets, uncached, i)
		var due *capstanv1.PromotionRequest
		if isAsked {
			if due, q.Request, err = r.request(ctx, p, q, asked, uncached, i); err != nil {
				return 0, err
			}
		}
		verdict := decision.Decide(q)
		var waits string
		switch {
		case len(invalid) > 0 && !verdict.IsRollback():
			waits = "waits: correct the Pipeline: " + messages(invalid)
		case verdict.Reason == decision.Suspended:
			waits = "waits: the Pipeline is suspended"
		case verdict.Reason == decision.ClustersNotKnown:
			waits = fmt.Sprintf("waits: it is not known which clusters environment %q selects", p.Spec.Environments[i].Base())
		}
		if waits != "" && due != nil {
			left, err := r.waiting(ctx, []*capstanv1.PromotionRequest{due}, waits)
			if err != nil {
				return 0, err
			}
			next = sooner(next, left)
		}
		if !verdict.Create || waits != "" {
			continue
		}
		var replaced *capstanv1.Promotion
		if of := verdict.Replaces; of != nil {
			replaced = &uncached[slices.IndexFunc(uncached, func(p capstanv1.Promotion) bool { return p.Name == of.Name })]
			due = requestOf(replaced, asked)
		}
		if err := r.create(ctx, p, q, verdict, replaced, due); err != nil {
			return 0, err
		}
	}
	return next, nil
}

// sooner returns the shorter one of two waits; 0 is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// promotionsUncached returns the Promotions of a Pipeline, read uncached, and errMovedOn if
// the Pipeline has changed; errPruned if its gates are not served any more. A decision from the cache, or of a process that has lost the
// lease, may use an old state.
func (r *Reconciler) promotionsUncached(ctx context.Context, p *pipelinesv1.Pipeline) ([]capstanv1.Promotion, error) {
	now := &pipelinesv1.Pipeline{}
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(p), now); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, errMovedOn
		}
		return nil, fmt.Errorf("reading Pipeline %s/%s again: %w", p.Namespace, p.Name, err)
	}
	if !now.ServedInFull() {
		return nil, errPruned
	}
	if now.UID != p.UID || now.ResourceVersion != p.ResourceVersion {
		return nil, errMovedOn
	}
	all, err := promotions.OfName(ctx, r.APIReader, client.ObjectKeyFromObject(p))
	if err != nil {
		return nil, err
	}
	if all == nil {
		all = []capstanv1.Promotion{}
	}
	return all, nil
}

// create creates the Promotion under the name that only one can have. It returns errMovedOn
// if the name is taken.
//
// If it is for a PromotionRequest, that gets its outcome; request is nil if it is for none. replaced is the Promotion
// that it replaces with the present strategy; nil if it replaces none. An outcome that is not written is written by the next
// reconcile, which finds the request in the ledger.
func (r *Reconciler) create(ctx context.Context, p *pipelinesv1.Pipeline, q decision.Question, v decision.Verdict, replaced *capstanv1.Promotion, request *capstanv1.PromotionRequest) error {
	promotion := newPromotion(p, q, v, replaced)
	err := r.Client.Create(ctx, promotion)
	switch {
	case apierrors.IsAlreadyExists(err):
		return fmt.Errorf("%w: Promotion %s/%s exists", errMovedOn, promotion.Namespace, promotion.Name)
	case err != nil:
		return fmt.Errorf("creating Promotion %s/%s: %w", promotion.Namespace, promotion.Name, err)
	}
	r.metrics.created.WithLabelValues(string(v.Reason)).Inc()
	logger(ctx).Info("promotion created", "environment", q.Into.Name, "revision", v.Revision, "sequence", v.Sequence,
		"promotion", promotion.Name, "why", v.Reason)
	if v.RollbackOf != nil {
		r.Recorder.Eventf(p, promotion, corev1.EventTypeWarning, ReasonRolledBack, "Promote", "Environment %q is rolled back from %s to %s by Promotion %s: %s",
			q.Into.Name, v.RollbackOf.Revision, v.Revision, promotion.Name, rollbackCause(promotion))
	}
	if request == nil {
		return nil
	}
	return r.writeRequest(ctx, request, capstanv1.PromotionRequestStatus{
		Phase: capstanv1.RequestPromoted, Promotion: promotion.Name, Revision: v.Revision, Message: promotedText(request, promotion.Name),
	})
}

// ReasonRolledBack is the reason of the Event that a rollback was created.
const ReasonRolledBack = "RolledBack"

// rollbackCause says what a rollback was created for.
func rollbackCause(p *capstanv1.Promotion) string {
	if by := p.Spec.Request; by != nil {
		return fmt.Sprintf("%s requested it (%s)", by.By, by.Reason)
	}
	return fmt.Sprintf("Promotion %s failed there", p.Spec.RollbackOf.Name)
}

func newPromotion(p *pipelinesv1.Pipeline, q decision.Question, v decision.Verdict, replaced *capstanv1.Promotion) *capstanv1.Promotion {
	from := &capstanv1.PromotionBase{Revisions: q.Into.Revisions()}
	if q.Into.Agreed != nil {
		from.Sequence = q.Into.Agreed.Sequence
	}
	from.Targets = targetTexts(p, q.Into.Name)
	number := q.Into.Ledger.Next()
	promotion := &capstanv1.Promotion{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace,
			Name:      promotions.Name(p.Name, p.UID, q.Into.Name, number),
			Labels: map[string]string{
				capstanv1.PipelineUIDLabel: string(p.UID),
				capstanv1.PipelineLabel:    promotions.Slug(p.Name, promotions.MaxLabel),
				capstanv1.EnvironmentLabel: promotions.Slug(q.Into.Name, promotions.MaxLabel),
			},
		},
		Spec: capstanv1.PromotionSpec{
			Pipeline:    capstanv1.PipelineReference{Name: p.Name, UID: p.UID},
			App:         q.Into.Intent.App,
			Environment: q.Into.Name,
			Wave:        waveOf(p, p.Find(q.Into.Name)),
			Number:      number,
			Revision:    v.Revision,
			Source:      capstanv1.PromotionSource{Environment: q.Source.Name, Sequence: v.Sequence},
			From:        from,
			Strategy:    *q.Into.Intent.Strategy.DeepCopy(),
			Manual:      q.Into.Intent.Manual,
		},
	}
	if v.Reason == decision.Requested {
		by := q.Request
		promotion.Spec.Request = &capstanv1.RequestReference{Name: by.Name, UID: by.UID, By: by.By, Reason: by.Reason}
	}
	if replaced != nil {
		promotion.Spec.Request, promotion.Spec.RollbackOf = replaced.Spec.Request.DeepCopy(), replaced.Spec.RollbackOf.DeepCopy()
	}
	if of := v.RollbackOf; of != nil {
		promotion.Spec.RollbackOf = &capstanv1.RollbackReference{Name: of.Name, Number: of.Number}
	}
	if v.Hold > 0 {
		promotion.Spec.Hold = &capstanv1.Hold{UntilSequence: v.Hold}
	}
	return promotion
}

// maxTargets is how many targets a Promotion names, for information only.
const maxTargets = 20

// targetTexts returns the names of an environment's targets.
func targetTexts(p *pipelinesv1.Pipeline, env string) []string {
	var texts []string
	for i := range p.Spec.Environments {
		if p.Spec.Environments[i].Name != env {
			continue
		}
		for j := range p.Spec.Environments[i].Targets[:min(len(p.Spec.Environments[i].Targets), maxTargets)] {
			texts = append(texts, targetText(p, i, j))
		}
	}
	return texts
}
