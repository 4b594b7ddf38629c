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
// pull request. Then alice requests the promotion of the revision before into prod.
type rollbackChapter struct {
	pipelines  pipelines
	promotions promotions
	billing    *billingTeam
	management *management
}

func (c rollbackChapter) play(ctx context.Context, s *stage) error {
	const good, bad = "1.3.0", "1.4.0"
	if err := c.edit(ctx, &pipelinesv1.Verification{For: "1s", Checks: []pipelinesv1.Check{{
		Name: "not-recalled", Interval: "1s", Failures: 2,
		CEL: &pipelinesv1.CELCheck{Expression: fmt.Sprintf("targets.all(t, !(t.revision in [%q, \"1.4.1\"]))", bad)},
	}}}, &pipelinesv1.Rollback{Mode: pipelinesv1.RollbackPromote}); err != nil {
		return err
	}
	if err := s.await(ctx, "what staging runs is verified there", c.promotions.newest(billing, staging, good, capstanv1.PhaseSucceeded, string(decision.Verified))); err != nil {
		return err
	}
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
	if err := c.billing.mergeOf(ctx, s, fmt.Sprintf("a pull request puts %s %s back in staging", billing, good), func(ctx context.Context) (*capstanv1.Promotion, error) {
		p, err := c.promotions.last(ctx, billing, staging)
		switch {
		case err != nil:
			return nil, err
		case p.Spec.RollbackOf == nil || p.Spec.RollbackOf.Name != failed.Name || p.Spec.Revision != good || p.Status.Phase != capstanv1.PhaseAwaitingMerge:
			return nil, fmt.Errorf("the newest Promotion, %s, is of %s, and is %s", p.Name, p.Spec.Revision, p.Status.Phase)
		}
		return p, nil
	}); err != nil {
		return err
	}
	if err := s.await(ctx, "staging runs "+good+" again, which is verified, and "+bad+" stays out",
		all(c.pipelines.runs(billing, good, staging), c.promotions.newest(billing, staging, good, capstanv1.PhaseSucceeded, string(decision.Verified)),
			c.promotions.none(billing, prod, bad))); err != nil {
		return err
	}
	if err := c.request(ctx, s, good); err != nil {
		return err
	}
	return c.edit(ctx, nil, nil)
}

// request the promotion of a revision into prod: the API server refuses those who must not.
func (c rollbackChapter) request(ctx context.Context, s *stage, revision string) error {
	for _, attempt := range []struct{ user, by, why string }{
		{mallory, mallory, "mallory, who may not create PromotionRequests, is refused"},
		{alice, "bob", "alice, who writes another's name, is refused"},
	} {
		if err := s.expect(ctx, attempt.why, func(ctx context.Context) error {
			err := requestPromotion(ctx, c.management, attempt.user, attempt.by, revision)
			if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
				return fmt.Errorf("the API server answered: %w", errors.Join(err, errNotRefused))
			}
			s.note("%v", err)
			return nil
		}); err != nil {
			return err
		}
	}
	if err := s.expect(ctx, "alice requests the promotion of "+revision+" into prod", func(ctx context.Context) error {
		return requestPromotion(ctx, c.management, alice, alice, revision)
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

// requestPromotion creates a PromotionRequest for billing in prod, as a user.
func requestPromotion(ctx context.Context, m *management, user, by, revision string) error {
	c, err := m.as(user)
	if err != nil {
		return err
	}
	return c.Create(ctx, &capstanv1.PromotionRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: appsNamespace, GenerateName: "hotfix-"},
		Spec:       capstanv1.PromotionRequestSpec{Pipeline: billing, Environment: prod, Revision: revision, By: by, Reason: "incident 4711"},
	})
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
