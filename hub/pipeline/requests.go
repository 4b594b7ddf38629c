package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/internal/revision"
	"github.com/capstan-hub/capstan/internal/truncate"
)

// requestedPipeline maps a PromotionRequest to its Pipeline.
func requestedPipeline(_ context.Context, o client.Object) []reconcile.Request {
	r, is := o.(*capstanv1.PromotionRequest)
	if !is {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: r.Namespace, Name: r.Spec.Pipeline}}}
}

// requestsFor returns the PromotionRequests for a Pipeline.
func (r *Reconciler) requestsFor(ctx context.Context, pipeline types.NamespacedName) ([]*capstanv1.PromotionRequest, error) {
	var list capstanv1.PromotionRequestList
	if err := r.Client.List(ctx, &list, client.InNamespace(pipeline.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing PromotionRequests: %w", err)
	}
	var all []*capstanv1.PromotionRequest
	for i := range list.Items {
		if request := &list.Items[i]; request.Spec.Pipeline == pipeline.Name {
			all = append(all, request)
		}
	}
	return all, nil
}

// open returns whether a request has no outcome yet.
func open(r *capstanv1.PromotionRequest) bool { return !decision.IsHandled(r) }

func onlyOpen(requests []*capstanv1.PromotionRequest) []*capstanv1.PromotionRequest {
	var all []*capstanv1.PromotionRequest
	for _, request := range requests {
		if open(request) {
			all = append(all, request)
		}
	}
	return all
}

// ofEnvironment returns the requests for an environment.
func ofEnvironment(requests []*capstanv1.PromotionRequest, environment string) []*capstanv1.PromotionRequest {
	var all []*capstanv1.PromotionRequest
	for _, request := range requests {
		if request.Spec.Environment == environment {
			all = append(all, request)
		}
	}
	return all
}

// refuseElsewhere refuses the requests for environments that are not promoted into.
func (r *Reconciler) refuseElsewhere(ctx context.Context, p *pipelinesv1.Pipeline, requests []*capstanv1.PromotionRequest) error {
	for _, request := range onlyOpen(requests) {
		env := request.Spec.Environment
		var why string
		switch i := slices.IndexFunc(p.Spec.Environments, func(e pipelinesv1.Environment) bool { return e.Name == env }); {
		case i < 0:
			why = fmt.Sprintf("Pipeline %s has no environment %q", p.Name, env)
			if stages := stagesOf(p, env); len(stages) > 0 {
				why = fmt.Sprintf("environment %q has waves: name one of %s", env, strings.Join(stages, ", "))
			}
		case i == 0:
			why = fmt.Sprintf("environment %q is the first of Pipeline %s, and nothing is promoted into it", env, p.Name)
		default:
			continue
		}
		if err := r.writeRequest(ctx, request, capstanv1.PromotionRequestStatus{Phase: capstanv1.RequestRefused, Message: why}); err != nil {
			return err
		}
	}
	return nil
}

// withoutPipeline handles the requests for a Pipeline that does not exist: they wait for it until they expire.
// It returns the time until the next one does; 0 if none is left.
func (r *Reconciler) withoutPipeline(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	requests, err := r.requestsFor(ctx, key)
	if err != nil {
		return 0, err
	}
	return r.waiting(ctx, onlyOpen(requests),
		fmt.Sprintf("waits: there is no Pipeline %s in namespace %s", key.Name, key.Namespace))
}

// waiting says in requests why they are not carried out, or that they have expired. It returns the time until
// the next one expires; 0 if none is left.
func (r *Reconciler) waiting(ctx context.Context, requests []*capstanv1.PromotionRequest, why string) (next time.Duration, err error) {
	for _, request := range requests {
		left := request.CreationTimestamp.Add(decision.RequestLifetime).Sub(r.Clock.Now())
		status := capstanv1.PromotionRequestStatus{Message: why}
		if left <= 0 {
			status.Phase, status.Message = capstanv1.RequestExpired, "not carried out within "+decision.RequestLifetime.String()+": "+strings.TrimPrefix(why, "waits: ")
		} else if next == 0 || left < next {
			next = left
		}
		if err := r.writeRequest(ctx, request, status); err != nil {
			return 0, err
		}
	}
	return next, nil
}

// writeRequest writes the status of a request if it changes. The phase is written once.
func (r *Reconciler) writeRequest(ctx context.Context, request *capstanv1.PromotionRequest, status capstanv1.PromotionRequestStatus) error {
	status.ObservedGeneration = request.Generation
	status.Message = truncate.Bytes(status.Message, maxMessage)
	before := request.Status
	if before.Phase == status.Phase && before.Message == status.Message && before.Promotion == status.Promotion {
		return nil
	}
	if status.Phase != "" {
		now := metav1.NewTime(r.Clock.Now())
		status.FinishTime = &now
	}
	written := request.DeepCopy()
	written.Status = status
	patch := client.MergeFromWithOptions(request.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, written, patch); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing the status of PromotionRequest %s/%s: %w", request.Namespace, request.Name, err)
	}
	if status.Phase != "" {
		logger(ctx).Info("promotion request handled", "request", request.Name, "environment", request.Spec.Environment, "by", request.Spec.By,
			"phase", status.Phase, "promotion", status.Promotion, "message", status.Message)
	}
	return nil
}

// request returns the request for environment i that is due, with what it asks for; nil if none is. It gives the
// others their outcome. promotions were read uncached.
func (r *Reconciler) request(ctx context.Context, p *pipelinesv1.Pipeline, q decision.Question, requests []*capstanv1.PromotionRequest, promotions []capstanv1.Promotion, i int) (*capstanv1.PromotionRequest, *decision.Request, error) {
	due, others := decision.Triage(requests, q.Into.Ledger, r.Clock.Now())
	for _, o := range others {
		status := capstanv1.PromotionRequestStatus{Phase: o.Phase, Promotion: o.Promotion, Message: outcomeText(o)}
		if j := slices.IndexFunc(promotions, func(p capstanv1.Promotion) bool { return p.Name == o.Promotion }); j >= 0 {
			status.Revision = promotions[j].Spec.Revision
		}
		if err := r.writeRequest(ctx, o.PromotionRequest, status); err != nil {
			return nil, nil, err
		}
	}
	if due == nil {
		return nil, nil, nil
	}
	known := func(candidate string) bool { return knows(p, promotions, candidate) }
	resolved, err := decision.Resolve(q, due, known, decision.Rejects(p, i))
	if err == nil && q.Into.ApprovedBefore && !resolved.Rollback { // What is put back succeeded in the wave itself.
		first := p.Spec.Environments[decision.FirstStage(p, i)].Name
		if !decision.LedgerOf(decision.LineOf(p), promotions, first, 0).Passed(p.Spec.AppRef, resolved.Revision) {
			err = fmt.Errorf("%w: %s did not succeed in the first wave of environment %q, which has the approval for all of them: request it for %q first",
				decision.ErrRefused, resolved.Revision, p.Spec.Environments[i].Base(), first)
		}
	}
	if errors.Is(err, decision.ErrRefused) {
		return nil, nil, r.writeRequest(ctx, due, capstanv1.PromotionRequestStatus{Phase: capstanv1.RequestRefused, Message: decision.RefusalText(err)})
	}
	return due, resolved, err
}

// requestOf returns the request that caused a promotion; nil if none of them did.
func requestOf(p *capstanv1.Promotion, requests []*capstanv1.PromotionRequest) *capstanv1.PromotionRequest {
	i := slices.IndexFunc(requests, func(r *capstanv1.PromotionRequest) bool { return p.Spec.Request != nil && p.Spec.Request.UID == r.UID })
	if i < 0 {
		return nil
	}
	return requests[i]
}

func outcomeText(o decision.RequestOutcome) string {
	switch o.Phase {
	case capstanv1.RequestPromoted:
		return promotedText(o.PromotionRequest, o.Promotion)
	case capstanv1.RequestSuperseded:
		return "a newer request for the environment was created before this one was carried out"
	case capstanv1.RequestExpired:
		return "not carried out within " + decision.RequestLifetime.String() + " of its creation"
	case capstanv1.RequestRefused:
	}
	return ""
}

func promotedText(request *capstanv1.PromotionRequest, promotion string) string {
	if request.Spec.Rollback != nil {
		return fmt.Sprintf("Promotion %s carries it out: PromotionWindows that block rollbacks, and its approval, apply", promotion)
	}
	return fmt.Sprintf("Promotion %s carries it out: its gates and its approval apply", promotion)
}

// knows returns whether a revision runs in an environment of a Pipeline, or was promoted by it.
func knows(p *pipelinesv1.Pipeline, promotions []capstanv1.Promotion, candidate string) bool {
	for i := range promotions {
		if revision.Same(promotions[i].Spec.Revision, candidate) {
			return true
		}
	}
	for _, env := range p.Status.Environments {
		for i := range env.Targets {
			if t := &env.Targets[i]; t.Revision != "" && revision.Same(t.Revision, candidate) {
				return true
			}
		}
	}
	return false
}
