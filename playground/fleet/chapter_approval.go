package fleet

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/strategy"
)

// approvalChapter releases a revision of billing, whose prod waits for an approval.
type approvalChapter struct {
	pipelines  pipelines
	promotions promotions
	billing    *billingTeam
	management *management
	files      *files
}

func (c approvalChapter) play(ctx context.Context, s *stage) error {
	const revision = "1.1.0"
	if err := s.await(ctx, billing+" is Ready and shows "+firstRevision+" in dev, staging and prod",
		all(c.pipelines.ready(billing), c.pipelines.runs(billing, firstRevision, Environments...))); err != nil {
		return err
	}
	if err := releaseInDev(ctx, s, revision, c.billing.developers()); err != nil {
		return err
	}
	if err := c.billing.merge(ctx, s, c.promotions, staging, revision); err != nil {
		return err
	}
	if err := s.await(ctx, "billing runs "+revision+" in dev and staging, promoted once to staging",
		all(c.pipelines.runs(billing, revision, dev, staging), c.promotions.once(billing, revision, staging))); err != nil {
		return err
	}
	return c.approve(ctx, s, revision)
}

// approve the Promotion into prod: the API server refuses those who must not.
func (c approvalChapter) approve(ctx context.Context, s *stage, revision string) error {
	var waiting *capstanv1.Promotion
	if err := s.await(ctx, "the Promotion of billing into prod is AwaitingApproval, and waitingApproval.revision says "+revision,
		func(ctx context.Context) (err error) {
			if waiting, err = c.promotions.only(ctx, billing, prod, revision, capstanv1.PhaseAwaitingApproval); err != nil {
				return err
			}
			return c.pipelines.waitsForApproval(billing, prod, revision)(ctx)
		}); err != nil {
		return err
	}
	if err := s.expect(ctx, "there is no pull request of it", func(ctx context.Context) error {
		acts, err := c.promotions.acts.count(ctx)
		if err == nil && acts(strategy.Identity(waiting)) != 0 {
			err = fmt.Errorf("there are %d", acts(strategy.Identity(waiting)))
		}
		return err
	}); err != nil {
		return err
	}
	for _, attempt := range []struct{ user, by, why string }{
		{mallory, mallory, "mallory, who lacks the verb approve, is refused"},
		{alice, "bob", "alice, who writes another's name, is refused"},
	} {
		if err := s.expect(ctx, attempt.why, func(ctx context.Context) error {
			err := approve(ctx, c.management, waiting.Name, attempt.user, attempt.by)
			if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
				return fmt.Errorf("the API server answered: %w", errors.Join(err, errNotRefused))
			}
			s.note("%v", err)
			return nil
		}); err != nil {
			return err
		}
	}
	s.note("%s", approveCommand(c.files, waiting.Name))
	if err := s.expect(ctx, "alice is not refused", func(ctx context.Context) error {
		return approve(ctx, c.management, waiting.Name, alice, alice)
	}); err != nil {
		return err
	}
	if err := c.billing.merge(ctx, s, c.promotions, prod, revision); err != nil {
		return err
	}
	if err := s.await(ctx, "billing runs "+revision+" everywhere, promoted once to prod",
		all(c.pipelines.runs(billing, revision, Environments...), c.promotions.once(billing, revision, prod), c.pipelines.waitsForApproval(billing, prod, ""))); err != nil {
		return err
	}
	return s.expect(ctx, "the Promotion says that alice approved it", func(ctx context.Context) error {
		p, err := c.promotions.only(ctx, billing, prod, revision, capstanv1.PhaseSucceeded)
		if err == nil && (p.Status.Approval == nil || p.Status.Approval.By != alice) {
			err = fmt.Errorf("it says %+v", p.Status.Approval)
		}
		return err
	})
}

var errNotRefused = errors.New("this must be refused")

// approve a Promotion as a user.
func approve(ctx context.Context, m *management, name, user, by string) error {
	return patchAs(ctx, m, user, name, approvalPatch(by))
}

// as returns a client of a user.
func (m *management) as(user string) (client.Client, error) {
	config, err := m.plane.UserConfig(user)
	if err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: m.Scheme()})
}

// patchAs patches a Promotion as a user.
func patchAs(ctx context.Context, m *management, user, name, patch string) error {
	c, err := m.as(user)
	if err != nil {
		return err
	}
	p := &capstanv1.Promotion{}
	p.Namespace, p.Name = appsNamespace, name
	return c.Patch(ctx, p, client.RawPatch(types.MergePatchType, []byte(patch)))
}

func approvalPatch(by string) string { return fmt.Sprintf(`{"spec":{"approval":{"by":%q}}}`, by) }
