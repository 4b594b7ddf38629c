package fleet

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// rotationChapter replaces the hub's credentials for every cluster.
type rotationChapter struct {
	pipelines   pipelines
	promotions  promotions
	connections connections
	shop        developers
	billing     *billingTeam
	management  *management
	workloads   workloads
}

func (c rotationChapter) play(ctx context.Context, s *stage) error {
	const revision = "1.3.0"
	listed, err := lists()
	if err != nil {
		return err
	}
	connections := map[string]*capstanv1.ClusterConnection{}
	for _, name := range Environments {
		if connections[name], err = c.connections.get(ctx, name); err != nil {
			return err
		}
	}
	old, err := tokenConfigs(ctx, c.management)
	if err != nil {
		return err
	}
	for _, name := range Environments {
		if err := writeCredentials(ctx, c.management, c.workloads[name], nextCredentials); err != nil {
			return err
		}
	}
	s.note("new tokens are in the kubeconfig Secrets")
	if err := s.await(ctx, "the ClusterConnections show the new tokens' expiry", func(ctx context.Context) error {
		for name, was := range connections {
			is, err := c.connections.get(ctx, name)
			if err != nil {
				return err
			}
			if is.Status.CredentialExpiryTime.Equal(was.Status.CredentialExpiryTime) {
				return fmt.Errorf("ClusterConnection %s shows %v", is.Name, is.Status.CredentialExpiryTime)
			}
		}
		return nil
	}); err != nil {
		return err
	}
	for _, name := range Environments {
		if err := c.workloads[name].revoke(ctx, firstCredentials); err != nil {
			return err
		}
	}
	for _, name := range Environments {
		if err := s.await(ctx, "the old token of "+name+" is refused there", refused(old[name])); err != nil {
			return err
		}
	}
	if err := releaseInDev(ctx, s, revision, c.shop, c.billing.developers()); err != nil {
		return err
	}
	if err := s.await(ctx, "shop runs "+revision+" everywhere, promoted once to staging and once to prod",
		all(c.pipelines.runs(shop, revision, Environments...), c.promotions.once(shop, revision, staging, prod))); err != nil {
		return err
	}
	if err := c.billing.merge(ctx, s, c.promotions, staging, revision); err != nil {
		return err
	}
	if err := s.await(ctx, "billing runs "+revision+" in dev and staging, and waits for an approval",
		all(c.promotions.once(billing, revision, staging), c.pipelines.waitsForApproval(billing, prod, revision))); err != nil {
		return err
	}
	return s.expect(ctx, "the connections are the same as before, and no informer has listed again", func(ctx context.Context) error {
		for name, was := range connections {
			is, err := c.connections.get(ctx, name)
			if err != nil {
				return err
			}
			if is.Status.State != was.Status.State || !is.Status.LastTransitionTime.Equal(was.Status.LastTransitionTime) {
				return fmt.Errorf("ClusterConnection %s is %s since %v", is.Name, is.Status.State, is.Status.LastTransitionTime)
			}
		}
		now, err := lists()
		if err == nil && now != listed {
			err = fmt.Errorf("%g initial lists were made", now-listed)
		}
		return err
	})
}

// refused: the API server no longer accepts the configuration's credentials.
func refused(config *rest.Config) check {
	return func(ctx context.Context) error {
		set, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		_, err = set.Discovery().RESTClient().Get().AbsPath("/version").DoRaw(ctx)
		switch {
		case err == nil:
			return fmt.Errorf("%s still accepts the token (API servers cache a valid one for 10 s)", config.Host)
		case apierrors.IsUnauthorized(err):
			return nil
		default:
			return err
		}
	}
}

// listsMetric counts the lists of the hub's informers after their first: one for each watch
// that could not be resumed.
const listsMetric = "capstan_relists_total"

// lists so far, from the metrics that the hub shows.
func lists() (float64, error) {
	families, err := metrics.Registry.Gather()
	if err != nil {
		return 0, fmt.Errorf("gathering the hub's metrics: %w", err)
	}
	for _, family := range families {
		if family.GetName() != listsMetric {
			continue
		}
		total := 0.0
		for _, m := range family.GetMetric() {
			total += m.GetCounter().GetValue()
		}
		return total, nil
	}
	return 0, fmt.Errorf("the hub shows no metric %s", listsMetric)
}
