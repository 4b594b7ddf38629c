package fleet

import (
	"context"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/event"
	"github.com/capstan-hub/capstan/playground/controlplane"
)

// outageChapter cuts the network to prod and repairs it.
type outageChapter struct {
	pipelines   pipelines
	promotions  promotions
	connections connections
	shop        developers
	// network is the hub's way to prod.
	network *controlplane.Proxy
	bus     *bus
}

func (c outageChapter) play(ctx context.Context, s *stage) error {
	const before, revision = "1.1.0", "1.2.0"
	c.network.Set(controlplane.Refuse)
	defer c.network.Set(controlplane.Pass)
	s.note("the network to prod is cut")
	if err := s.await(ctx, "the ClusterConnection of prod is Unreachable", c.connections.are(capstanv1.ConnectionUnreachable, prod)); err != nil {
		return err
	}
	if err := s.await(ctx, "prod of shop is stale, and still shows "+before, c.pipelines.stale(shop, prod, before)); err != nil {
		return err
	}
	if err := releaseInDev(ctx, s, revision, c.shop); err != nil {
		return err
	}
	if err := s.await(ctx, "shop runs "+revision+" in dev and staging, promoted once to staging, while prod is unreachable",
		all(c.pipelines.runs(shop, revision, dev, staging), c.promotions.once(shop, revision, staging), c.pipelines.agreed(shop, staging, revision))); err != nil {
		return err
	}
	if err := s.expect(ctx, "nothing is promoted into prod", all(
		c.promotions.none(shop, prod, revision), c.pipelines.stale(shop, prod, before), c.connections.are(capstanv1.ConnectionReady, dev, staging))); err != nil {
		return err
	}
	// Of states that last less than half a minute, only the last is published.
	if err := s.await(ctx, "the bus has the event that prod is unreachable", func(ctx context.Context) error {
		return c.bus.hasOfCluster(ctx, prod, event.ClusterUnreachable)
	}); err != nil {
		return err
	}
	c.network.Set(controlplane.Pass)
	s.note("the network to prod is repaired")
	if err := s.await(ctx, "the ClusterConnection of prod is Ready again", c.connections.are(capstanv1.ConnectionReady, prod)); err != nil {
		return err
	}
	return s.await(ctx, "shop runs "+revision+" everywhere, promoted once to prod",
		all(c.pipelines.runs(shop, revision, Environments...), c.promotions.once(shop, revision, prod)))
}
