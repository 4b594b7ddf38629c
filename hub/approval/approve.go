package approval

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/strategy"
)

// approve records an approval on the Promotion that waits for it, and waits for the result.
func (s *Server) approve(ctx context.Context, r *http.Request, p *pipelinesv1.Pipeline, target route, body []byte) (string, error) {
	_, into := environment(p, target.environment)
	who, err := s.authenticate(ctx, r, p, into, target, body)
	if err != nil {
		return "", err
	}
	if into == nil {
		return "", noEnvironment(p, target.environment)
	}
	var approved *capstanv1.Promotion
	repeated := false
	// The reconcilers write to the same object: a conflict is retried.
	if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var err error
		approved, repeated, err = s.record(ctx, p, into, target, who)
		return err
	}); err != nil {
		return "", err
	}
	message := "approval recorded"
	if repeated {
		message = "approval repeated; it is already recorded"
	}
	s.Logger.Info(message, "promotion", client.ObjectKeyFromObject(approved).String(), "environment", target.environment,
		"revision", target.revision, "by", who.String(), "client", r.RemoteAddr)
	if p.Spec.Suspend {
		return "", nil // The promotion waits until the Pipeline is resumed.
	}
	return s.await(ctx, func(ctx context.Context) (string, bool, error) {
		now := &capstanv1.Promotion{}
		if err := s.Cache.Get(ctx, client.ObjectKeyFromObject(approved), now); err != nil || now.UID != approved.UID || !now.Approved() {
			return "", false, nil // The cache has not seen the approval.
		}
		return outcome(now)
	})
}

// record writes the approval to the newest Promotion. It returns true if the same caller has
// already approved the present run of that Promotion: then it writes nothing. As in weave, it
// checks first whether a promotion waits, and then whether it can be executed.
func (s *Server) record(ctx context.Context, p *pipelinesv1.Pipeline, into *pipelinesv1.Environment, target route, who caller) (*capstanv1.Promotion, bool, error) {
	var mark int64
	if status := p.Status.Environments[target.environment]; status != nil {
		mark = status.LastPromotion
	}
	waiting, err := newest(ctx, s.Client, p, target.environment, mark)
	if err != nil {
		return nil, false, err
	}
	if repeats(waiting, target, who) {
		return waiting, true, nil
	}
	if err := waits(waiting, target); err != nil {
		return nil, false, err
	}
	if err := executable(p, into); err != nil {
		return nil, false, err
	}
	digest := who.signature.digest()
	if err := s.unused(ctx, p.Namespace, digest); err != nil {
		return nil, false, err
	}
	before := waiting.DeepCopy()
	waiting.Spec.Approval = &capstanv1.Approval{By: who.String(), Method: capstanv1.ApprovalByHTTP, Retry: waiting.Run()}
	keep(waiting, digest)
	if err := s.Client.Patch(ctx, waiting, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, false, fmt.Errorf("recording the approval of Promotion %s/%s: %w", waiting.Namespace, waiting.Name, err)
	}
	return waiting, false, nil
}

// keep puts the digest of a signature on a Promotion. The digest of an earlier run stays: its
// signature may be valid for some minutes more.
func keep(p *capstanv1.Promotion, digest string) {
	if digest == "" {
		return
	}
	if p.Labels == nil {
		p.Labels = map[string]string{}
	}
	if former := p.Labels[capstanv1.ApprovalSignatureLabel]; former != "" {
		p.Labels[capstanv1.FormerApprovalSignaturePrefix+former] = ""
	}
	p.Labels[capstanv1.ApprovalSignatureLabel] = digest
}

// repeats returns whether a caller has already approved the present run of a promotion. A
// caller whose connection failed calls again, with the same signature or with a new one.
func repeats(p *capstanv1.Promotion, target route, who caller) bool {
	return p != nil && p.Spec.Revision == target.revision && p.Approved() &&
		p.Spec.Approval.Method == capstanv1.ApprovalByHTTP && p.Spec.Approval.By == who.String()
}

// waits returns an error if the newest promotion into an environment cannot be approved.
func waits(p *capstanv1.Promotion, target route) error {
	switch {
	case p == nil:
		return notApproved(reasonNotWaiting, "no promotion into environment %q waits for an approval", target.environment)
	case p.Spec.Revision != target.revision:
		return notApproved(reasonNotWaiting, "the newest promotion into environment %q has revision %s, not %s", target.environment, p.Spec.Revision, target.revision)
	case p.Approved():
		return notApproved(reasonNotWaiting, "Promotion %s/%s was already approved by %s", p.Namespace, p.Name, p.Spec.Approval.By)
	case p.Rejected() && p.Waits():
		return notApproved(reasonNotWaiting, "Promotion %s/%s was already rejected by %s", p.Namespace, p.Name, p.Spec.Rejection.By)
	case !p.Spec.Manual:
		return notApproved(reasonNotWaiting, "Promotion %s/%s needs no approval", p.Namespace, p.Name)
	case !p.WaitsForApproval():
		return notApproved(reasonNotWaiting, "Promotion %s/%s is %s: %s", p.Namespace, p.Name, p.Status.Phase, p.Status.Message)
	}
	return nil
}

// unused returns an error if a signature has already approved a promotion.
func (s *Server) unused(ctx context.Context, namespace, digest string) error {
	if digest == "" {
		return nil
	}
	for _, label := range []client.ListOption{
		client.MatchingLabels{capstanv1.ApprovalSignatureLabel: digest},
		client.HasLabels{capstanv1.FormerApprovalSignaturePrefix + digest},
	} {
		var used capstanv1.PromotionList
		if err := s.Client.List(ctx, &used, client.InNamespace(namespace), label, client.Limit(1)); err != nil {
			return fmt.Errorf("listing the Promotions that the signature approved: %w", err)
		}
		if len(used.Items) > 0 {
			return notApproved(reasonReplayed, "this signature has already approved Promotion %s; sign each approval again",
				types.NamespacedName{Namespace: namespace, Name: used.Items[0].Name})
		}
	}
	return nil
}

// executable returns an error if no strategy can execute promotions into an environment.
func executable(p *pipelinesv1.Pipeline, into *pipelinesv1.Environment) error {
	promotion := p.PromotionFor(into)
	why := "it has no promotion"
	if promotion != nil {
		why = string(strategy.Check(promotion.Strategy))
	}
	if why == "" {
		return nil
	}
	return refuse(http.StatusInternalServerError, reasonNoStrategy, "%s: environment %q of Pipeline %s/%s: %s", weaveFailed, into.Name, p.Namespace, p.Name, why)
}
