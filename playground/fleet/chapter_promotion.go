package fleet

import (
	"context"
	"errors"
	"fmt"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// upChapter checks the fleet before anything happens.
type upChapter struct {
	pipelines   pipelines
	promotions  promotions
	connections connections
}

func (c upChapter) play(ctx context.Context, s *stage) error {
	if err := s.await(ctx, "ClusterConnections of dev, staging and prod are Ready",
		c.connections.are(capstanv1.ConnectionReady, Environments...)); err != nil {
		return err
	}
	if err := s.await(ctx, shop+" is Ready and shows "+firstRevision+" in dev, staging and prod",
		all(c.pipelines.ready(shop), c.pipelines.runs(shop, firstRevision, Environments...))); err != nil {
		return err
	}
	return s.expect(ctx, "there is no Promotion", func(ctx context.Context) error {
		if every, err := c.promotions.list(ctx); err != nil || len(every) > 0 {
			return errors.Join(err, fmt.Errorf("there are %d", len(every)))
		}
		return nil
	})
}

// promotionChapter releases a revision of shop, which has no approvals.
type promotionChapter struct {
	pipelines  pipelines
	promotions promotions
	shop       developers
}

func (c promotionChapter) play(ctx context.Context, s *stage) error {
	const revision = "1.1.0"
	if err := releaseInDev(ctx, s, revision, c.shop); err != nil {
		return err
	}
	return s.await(ctx, "shop runs "+revision+" everywhere, promoted once to staging and once to prod",
		all(c.pipelines.runs(shop, revision, Environments...), c.promotions.once(shop, revision, staging, prod)))
}
