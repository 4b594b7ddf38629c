package fleet

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// wavesChapter promotes a revision to ten stores in waves. One store is dead, and another joins meanwhile.
type wavesChapter struct {
	pipelines  pipelines
	promotions promotions
	clusters   edgeClusters
	management *management
}

func (c wavesChapter) play(ctx context.Context, s *stage) error {
	const next = "1.1.0"
	canary, first, second := pipelinesv1.StageName(stores, "canary"), pipelinesv1.StageName(stores, "rest-1"), pipelinesv1.StageName(stores, "rest-2")
	if err := s.await(ctx, "ten stores in three waves run "+firstRevision+", and "+deadStore+", which does not answer for a minute, is lost",
		all(c.counts(firstRevision, storeCount, storeCount-1, 1), c.left(second, deadStore))); err != nil {
		return err
	}
	if err := releaseInDev(ctx, s, next, developers{app: edge, release: func(_ context.Context, revision string) error {
		c.clusters[edgeDev].Deploy(0, revision)
		return nil
	}}); err != nil {
		return err
	}
	if err := s.await(ctx, "the two stores of ring 0 get it first; the next wave waits until they were healthy for 3s",
		all(c.promotions.once(edge, next, canary), c.waits(first, next), c.promotions.none(edge, second, next))); err != nil {
		return err
	}
	if err := s.await(ctx, "the first half of the rest gets it", c.promotions.once(edge, next, first)); err != nil {
		return err
	}
	if err := c.join(ctx); err != nil {
		return err
	}
	s.note("%s gets the label of the stores: its name puts it into the first half", newStore)
	if err := s.await(ctx, "it joins, and gets a Promotion of its own, because its manifest is its own", c.joined(first, next)); err != nil {
		return err
	}
	if err := s.await(ctx, "the second half succeeds without "+deadStore+", and says so", func(ctx context.Context) error {
		p, err := c.promotions.only(ctx, edge, second, next, capstanv1.PhaseSucceeded)
		if err == nil {
			s.note("%s: %s", p.Name, p.Status.Message)
		}
		return err
	}); err != nil {
		return err
	}
	return s.await(ctx, "ten of eleven stores run "+next, c.counts(next, storeCount+1, storeCount, 1))
}

// counts: the environment has so many stores, of which so many run the revision and so many are lost.
func (c wavesChapter) counts(revision string, targets, ready, lost int32) check {
	const environment = stores
	return func(ctx context.Context) error {
		fleet, err := c.fleet(ctx, environment)
		if err == nil && (fleet.Targets != targets || fleet.Revision != revision || fleet.Ready != ready || fleet.Lost != lost) {
			err = fmt.Errorf("%d of %d stores run %s, %d are lost: %s", fleet.Ready, fleet.Targets, fleet.Revision, fleet.Lost, fleet.Message)
		}
		return err
	}
}

func (c wavesChapter) fleet(ctx context.Context, env string) (*pipelinesv1.FleetStatus, error) {
	p, err := c.pipelines.get(ctx, edge)
	if err != nil {
		return nil, err
	}
	status := p.Status.Environments[env]
	if status == nil || status.Fleet == nil {
		return nil, fmt.Errorf("%s has no status of %s", edge, env)
	}
	return status.Fleet, nil
}

// left: a store of the wave is left out.
func (c wavesChapter) left(wave, store string) check {
	return func(ctx context.Context) error {
		p, err := c.pipelines.get(ctx, edge)
		if err != nil {
			return err
		}
		for _, t := range p.Status.Environments[wave].Targets {
			if t.ClusterAppRef.ClusterRef.Name == store && t.Standing == pipelinesv1.TargetLost {
				return nil
			}
		}
		return fmt.Errorf("%s is not lost in %s", store, wave)
	}
}

// waits: a Promotion into the wave waits for the soak of the wave before, or has done so.
func (c wavesChapter) waits(wave, revision string) check {
	return func(ctx context.Context) error {
		found, err := c.promotions.of(ctx, edge, wave, revision)
		if err == nil && len(found) != 1 {
			err = fmt.Errorf("%d Promotions of %s into %s", len(found), revision, wave)
		}
		return err
	}
}

// join labels the new store.
func (c wavesChapter) join(ctx context.Context) error {
	cluster := &clusterv1.Cluster{}
	if err := c.management.Get(ctx, client.ObjectKey{Namespace: fleetNamespace, Name: newStore}, cluster); err != nil {
		return err
	}
	before := cluster.DeepCopy()
	cluster.Labels = storeLabels
	return c.management.Patch(ctx, cluster, client.MergeFrom(before))
}

// joined: the newest Promotion into the wave is for the new store, too, and succeeded.
func (c wavesChapter) joined(wave, revision string) check {
	return func(ctx context.Context) error {
		p, err := c.promotions.last(ctx, edge, wave)
		switch {
		case err != nil:
			return err
		case !slices.Contains(p.Spec.Wave.Clusters, fleetNamespace+"/"+newStore) || p.Spec.Revision != revision || p.Status.Phase != capstanv1.PhaseSucceeded:
			return fmt.Errorf("the Promotion %s of %s is %s, and for %v: %s", p.Name, p.Spec.Revision, p.Status.Phase, p.Spec.Wave.Clusters, p.Status.Message)
		}
		return nil
	}
}
