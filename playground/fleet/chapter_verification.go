package fleet

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
)

// verificationChapter releases a revision of shop that fails some time after it was rolled out in staging,
// and then one that does not.
type verificationChapter struct {
	pipelines  pipelines
	promotions promotions
	shop       developers
	staging    *workload
	management *management
}

func (c verificationChapter) play(ctx context.Context, s *stage) error {
	const before, bad, good = "1.4.0", "1.5.0", "1.5.1"
	verification := &pipelinesv1.Verification{For: "4s", Tolerate: "1s"}
	if err := c.edit(ctx, verification); err != nil {
		return err
	}
	s.note("a revision of shop must be healthy for %s after its roll-out, before it is promoted further", verification.For)
	if err := releaseInDev(ctx, s, bad, c.shop); err != nil {
		return err
	}
	if err := s.await(ctx, "staging runs "+bad+", which is verified there", func(ctx context.Context) error {
		_, err := c.promotions.only(ctx, shop, staging, bad, capstanv1.PhaseVerifying)
		return err
	}); err != nil {
		return err
	}
	if err := c.staging.release(shop).Fail(ctx, bad, errors.New("the probe of web fails")); err != nil {
		return err
	}
	var failed *capstanv1.Promotion
	if err := s.await(ctx, "the application fails in staging, and the promotion with it", func(ctx context.Context) (err error) {
		failed, err = c.promotions.only(ctx, shop, staging, bad, capstanv1.PhaseFailed)
		return err
	}); err != nil {
		return err
	}
	s.note("%s: %s", failed.Status.Reason, failed.Status.Message)
	if err := s.expect(ctx, "prod does not get "+bad, all(c.promotions.none(shop, prod, bad), c.pipelines.runs(shop, before, prod))); err != nil {
		return err
	}
	if err := releaseInDev(ctx, s, good, c.shop); err != nil {
		return err
	}
	if err := s.await(ctx, "shop runs "+good+" everywhere, verified and promoted once to staging and once to prod",
		all(c.pipelines.runs(shop, good, Environments...), c.promotions.once(shop, good, staging, prod),
			c.promotions.newest(shop, staging, good, capstanv1.PhaseSucceeded, string(decision.Verified)))); err != nil {
		return err
	}
	return c.edit(ctx, nil)
}

// edit the verification of shop.
func (c verificationChapter) edit(ctx context.Context, v *pipelinesv1.Verification) error {
	p, err := c.pipelines.get(ctx, shop)
	if err != nil {
		return err
	}
	before := p.DeepCopy()
	p.Spec.Verification = v
	return c.management.Patch(ctx, p, client.MergeFrom(before))
}
