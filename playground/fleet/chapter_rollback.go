package fleet

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
)

// rollbackChapter releases a revision of billing whose check fails after its roll-out in staging. It is rolled back by a
// pull request, and the next revision is promoted. Then alice requests a rollback, and a promotion into prod.
type rollbackChapter struct {
	pipelines  pipelines
	promotions promotions
	billing    *billingTeam
	management *management
	files      *files
}

func (c rollbackChapter) play(ctx context.Context, s *stage) error {
	const good, bad, next = "1.3.0", "1.4.0-rc.1", "1.4.0"
	rule := pipelinesv1.Check{
		Name: "no-pre-release", Interval: "1s", Failures: 2,
		CEL: &pipelinesv1.CELCheck{Expression: `targets.all(t, !t.revision.contains("-"))`},
	}
	if err := c.edit(ctx, &pipelinesv1.Verification{For: "1s", Checks: []pipelinesv1.Check{rule}},
		&pipelinesv1.Rollback{Mode: pipelinesv1.RollbackPromote, Within: pipelinesv1.RollbackMinor}); err != nil {
		return err
	}
	s.note("staging of billing has the check %s: %s", rule.Name, rule.CEL.Expression)
	if err := s.await(ctx, "what staging runs is verified there", c.promotions.newest(billing, staging, good, capstanv1.PhaseSucceeded, string(decision.Verified))); err != nil {
		return err
	}
	if err := c.rollBack(ctx, s, good, bad); err != nil {
		return err
	}
	if err := c.release(ctx, s, bad, next); err != nil {
		return err
	}
	if err := c.requestRollback(ctx, s, good, next); err != nil {
		return err
	}
	if err := c.requestRevision(ctx, s, good); err != nil {
		return err
	}
	return c.edit(ctx, nil, nil)
}

// rollBack releases a bad revision, and waits until it is rolled back in staging.
func (c rollbackChapter) rollBack(ctx context.Context, s *stage, good, bad string) error {
	if err := releaseInDev(ctx, s, bad, c.billing.developers()); err != nil {
		return err
	}
	if err := c.billing.merge(ctx, s, c.promotions, staging, bad); err != nil {
		return err
	}
	var failed *capstanv1.Promotion
	if err := s.await(ctx, "staging runs "+bad+", its check fails, and the promotion with it", func(ctx context.Context) (err error) {
		failed, err = c.promotions.only(ctx, billing, staging, bad, capstanv1.PhaseFailed)
		return err
	}); err != nil {
		return err
	}
	s.note("%s: %s", failed.Status.Reason, failed.Status.Message)
	if err := c.mergeRollback(ctx, s, good, func(p *capstanv1.Promotion) bool {
		return failed.Status.Reason == string(decision.VerificationFailed) && p.Spec.RollbackOf.Name == failed.Name && p.Spec.Request == nil
	}); err != nil {
		return err
	}
	if err := s.await(ctx, "staging runs "+good+" again, which is verified; "+bad+" is still in dev, and stays there",
		all(c.pipelines.runs(billing, bad, dev), c.rolledBack(good), c.failedOnce(bad), c.billing.tidied)); err != nil {
		return err
	}
	s.note("%s -n %s get events --field-selector reason=RolledBack", kubectlFor(c.files)(managementName), appsNamespace)
	return nil
}

// release the next revision, which is promoted although the one before is held.
func (c rollbackChapter) release(ctx context.Context, s *stage, bad, next string) error {
	if err := releaseInDev(ctx, s, next, c.billing.developers()); err != nil {
		return err
	}
	if err := c.billing.merge(ctx, s, c.promotions, staging, next); err != nil {
		return err
	}
	return s.await(ctx, "staging runs "+next+", which is verified, and waits for an approval into prod; "+bad+" was never promoted again",
		all(c.pipelines.runs(billing, next, dev, staging), c.promotions.newest(billing, staging, next, capstanv1.PhaseSucceeded, string(decision.Verified)),
			c.promotions.newest(billing, prod, next, capstanv1.PhaseAwaitingApproval, string(decision.ApprovalRequired)), c.failedOnce(bad), c.billing.tidied))
}

// requestRollback rolls staging back on demand: the API server refuses those who must not.
func (c rollbackChapter) requestRollback(ctx context.Context, s *stage, good, next string) error {
	rollback := capstanv1.PromotionRequestSpec{Environment: staging, Rollback: &capstanv1.RollbackRequest{}}
	for _, attempt := range []struct{ user, by, why string }{
		{mallory, mallory, "mallory, who may not create PromotionRequests, is refused"},
		{alice, "bob", "alice, who writes another's name, is refused"},
	} {
		if err := s.expect(ctx, attempt.why, func(ctx context.Context) error {
			_, err := requestPromotion(ctx, c.management, attempt.user, attempt.by, rollback)
			if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
				return fmt.Errorf("the API server answered: %w", errors.Join(err, errNotRefused))
			}
			s.note("%v", err)
			return nil
		}); err != nil {
			return err
		}
	}
	s.note("%s", requestCommand(c.files, billing, staging))
	var request *capstanv1.PromotionRequest
	if err := s.expect(ctx, "alice requests a rollback of staging", func(ctx context.Context) (err error) {
		request, err = requestPromotion(ctx, c.management, alice, alice, rollback)
		return err
	}); err != nil {
		return err
	}
	if err := c.mergeRollback(ctx, s, good, func(p *capstanv1.Promotion) bool {
		return p.Spec.Request != nil && p.Spec.Request.UID == request.UID && p.Spec.Request.By == alice
	}); err != nil {
		return err
	}
	if err := s.await(ctx, "staging runs "+good+" again, which is verified, and "+next+" does not wait for prod any more",
		all(c.rolledBack(good), c.promotions.newest(billing, prod, next, capstanv1.PhaseSuperseded, string(decision.SourceFailed)))); err != nil {
		return err
	}
	if err := s.await(ctx, "the PromotionRequest says that it was promoted, and which revision the hub chose", func(ctx context.Context) error {
		err := c.management.Get(ctx, client.ObjectKeyFromObject(request), request)
		if err == nil && (request.Status.Phase != capstanv1.RequestPromoted || request.Status.Revision != good) {
			err = fmt.Errorf("its status is %+v", request.Status)
		}
		return err
	}); err != nil {
		return err
	}
	s.note("%s -n %s get promotionrequests -o wide", kubectlFor(c.files)(managementName), appsNamespace)
	return nil
}

// requestRevision requests the promotion of a revision into prod.
func (c rollbackChapter) requestRevision(ctx context.Context, s *stage, revision string) error {
	if err := s.expect(ctx, "alice requests the promotion of "+revision+" into prod", func(ctx context.Context) error {
		_, err := requestPromotion(ctx, c.management, alice, alice, capstanv1.PromotionRequestSpec{Environment: prod, Revision: revision})
		return err
	}); err != nil {
		return err
	}
	return s.await(ctx, "its Promotion waits for an approval, as every promotion into prod does", func(ctx context.Context) error {
		p, err := c.promotions.last(ctx, billing, prod)
		switch {
		case err != nil:
			return err
		case p.Spec.Request == nil || p.Spec.Request.By != alice || p.Spec.Revision != revision || p.Status.Phase != capstanv1.PhaseAwaitingApproval:
			return fmt.Errorf("the newest Promotion, %s, is of %s, and is %s: %s", p.Name, p.Spec.Revision, p.Status.Phase, p.Status.Message)
		}
		return nil
	})
}

// mergeRollback waits for the pull request of a rollback of staging, and merges it. is returns whether the Promotion is the
// expected one.
func (c rollbackChapter) mergeRollback(ctx context.Context, s *stage, to string, is func(*capstanv1.Promotion) bool) error {
	return c.billing.mergeOf(ctx, s, fmt.Sprintf("a pull request puts %s %s back in staging", billing, to), func(ctx context.Context) (*capstanv1.Promotion, error) {
		p, err := c.promotions.last(ctx, billing, staging)
		switch {
		case err != nil:
			return nil, err
		case p.Spec.RollbackOf == nil || p.Spec.Revision != to || !is(p) || p.Status.Phase != capstanv1.PhaseAwaitingMerge:
			return nil, fmt.Errorf("the newest Promotion, %s, is of %s, and is %s: %s", p.Name, p.Spec.Revision, p.Status.Phase, p.Status.Message)
		}
		return p, nil
	})
}

// rolledBack: staging runs the revision, verified by the newest Promotion.
func (c rollbackChapter) rolledBack(to string) check {
	return all(c.pipelines.runs(billing, to, staging), c.promotions.newest(billing, staging, to, capstanv1.PhaseSucceeded, string(decision.Verified)))
}

// failedOnce: the revision was promoted into staging once, failed, and was not promoted into prod.
func (c rollbackChapter) failedOnce(revision string) check {
	return func(ctx context.Context) error {
		if _, err := c.promotions.only(ctx, billing, staging, revision, capstanv1.PhaseFailed); err != nil {
			return err
		}
		return c.promotions.none(billing, prod, revision)(ctx)
	}
}

// requestPromotion creates a PromotionRequest for billing, as a user.
func requestPromotion(ctx context.Context, m *management, user, by string, spec capstanv1.PromotionRequestSpec) (*capstanv1.PromotionRequest, error) {
	c, err := m.as(user)
	if err != nil {
		return nil, err
	}
	spec.Pipeline, spec.By, spec.Reason = billing, by, requestReason
	request := &capstanv1.PromotionRequest{ObjectMeta: metav1.ObjectMeta{Namespace: appsNamespace, GenerateName: requestPrefix}, Spec: spec}
	return request, c.Create(ctx, request)
}

const requestPrefix, requestReason = "request-", "incident 4711"

// requestCommand is how alice requests a rollback with kubectl.
func requestCommand(files *files, pipeline, environment string) string {
	object := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"namespace":%q,"generateName":%q},`+
		`"spec":{"pipeline":%q,"environment":%q,"rollback":{},"by":%q,"reason":%q}}`,
		capstanv1.GroupVersion.String(), capstanv1.PromotionRequestKind, appsNamespace, requestPrefix, pipeline, environment, alice, requestReason)
	return "echo '" + object + "' | " + kubectlFor(files)(alice) + " create -f -"
}

// edit the verification and the rollback of billing in staging.
func (c rollbackChapter) edit(ctx context.Context, v *pipelinesv1.Verification, r *pipelinesv1.Rollback) error {
	p, err := c.pipelines.get(ctx, billing)
	if err != nil {
		return err
	}
	before := p.DeepCopy()
	for i := range p.Spec.Environments {
		if env := &p.Spec.Environments[i]; env.Name == staging {
			env.Verification, env.Rollback = v, r
		}
	}
	return c.management.Patch(ctx, p, client.MergeFrom(before))
}
