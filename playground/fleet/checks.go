package fleet

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/strategy"
)

type check = func(context.Context) error

// all of the checks pass at one time.
func all(checks ...check) check {
	return func(ctx context.Context) error {
		for _, c := range checks {
			if err := c(ctx); err != nil {
				return err
			}
		}
		return nil
	}
}

func (f *Fleet) pipeline(ctx context.Context, name string) (*pipelinesv1.Pipeline, error) {
	p := &pipelinesv1.Pipeline{}
	return p, f.client.Get(ctx, client.ObjectKey{Namespace: appsNamespace, Name: name}, p)
}

// environment is the status of one environment with its one target.
func (f *Fleet) environment(ctx context.Context, pipeline, env string) (*pipelinesv1.EnvironmentStatus, pipelinesv1.TargetStatus, error) {
	p, err := f.pipeline(ctx, pipeline)
	if err != nil {
		return nil, pipelinesv1.TargetStatus{}, err
	}
	status := p.Status.Environments[env]
	if status == nil || len(status.Targets) != 1 {
		return nil, pipelinesv1.TargetStatus{}, fmt.Errorf("%s has no target status of %s", pipeline, env)
	}
	return status, status.Targets[0], nil
}

func (f *Fleet) pipelineReady(name string) check {
	return func(ctx context.Context) error {
		p, err := f.pipeline(ctx, name)
		if err != nil {
			return err
		}
		ready := meta.FindStatusCondition(p.Status.Conditions, pipelinesv1.ReadyCondition)
		switch {
		case ready == nil:
			return fmt.Errorf("%s has no condition Ready", name)
		case ready.Status != "True" || p.Status.ObservedGeneration != p.Generation:
			return fmt.Errorf("%s is Ready=%s: %s: %s", name, ready.Status, ready.Reason, ready.Message)
		}
		return nil
	}
}

// runs: the Pipeline's status shows the environment at the revision, healthy now.
func (f *Fleet) runs(pipeline, revision string, envs ...string) check {
	return func(ctx context.Context) error {
		for _, env := range envs {
			_, target, err := f.environment(ctx, pipeline, env)
			if err != nil {
				return err
			}
			if target.Revision != revision || !target.Ready || target.Stale {
				return fmt.Errorf("%s in %s shows revision %q, ready %t, stale %t %s",
					pipeline, env, target.Revision, target.Ready, target.Stale, target.Error)
			}
		}
		return nil
	}
}

// stale: the environment's target keeps what was last seen, and says so.
func (f *Fleet) stale(pipeline, env, revision string) check {
	return func(ctx context.Context) error {
		_, target, err := f.environment(ctx, pipeline, env)
		if err != nil {
			return err
		}
		if !target.Stale || target.Revision != revision {
			return fmt.Errorf("%s in %s shows revision %q, stale %t", pipeline, env, target.Revision, target.Stale)
		}
		return nil
	}
}

// agreed: the hub has taken the revision as what the environment runs.
func (f *Fleet) agreed(pipeline, env, revision string) check {
	return func(ctx context.Context) error {
		status, _, err := f.environment(ctx, pipeline, env)
		if err != nil {
			return err
		}
		if status.Agreed == nil || status.Agreed.Revision != revision {
			return fmt.Errorf("%s in %s agrees on %+v", pipeline, env, status.Agreed)
		}
		return nil
	}
}

// waitsForApproval: the Pipeline shows what weave's would.
func (f *Fleet) waitsForApproval(pipeline, env, revision string) check {
	return func(ctx context.Context) error {
		status, _, err := f.environment(ctx, pipeline, env)
		if err != nil {
			return err
		}
		if status.WaitingApproval.Revision != revision {
			return fmt.Errorf("%s in %s has waitingApproval.revision %q", pipeline, env, status.WaitingApproval.Revision)
		}
		return nil
	}
}

// promotions by Pipeline, environment and number.
func (f *Fleet) promotions(ctx context.Context) ([]capstanv1.Promotion, error) {
	var list capstanv1.PromotionList
	if err := f.client.List(ctx, &list, client.InNamespace(appsNamespace)); err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, func(a, b capstanv1.Promotion) int {
		return cmp.Or(
			strings.Compare(b.Spec.Pipeline.Name, a.Spec.Pipeline.Name),
			cmp.Compare(slices.Index(Environments, a.Spec.Environment), slices.Index(Environments, b.Spec.Environment)),
			cmp.Compare(a.Spec.Number, b.Spec.Number))
	})
	return list.Items, nil
}

// promotionsOf a revision into an environment; there should be one.
func (f *Fleet) promotionsOf(ctx context.Context, pipeline, env, revision string) ([]capstanv1.Promotion, error) {
	every, err := f.promotions(ctx)
	return slices.DeleteFunc(every, func(p capstanv1.Promotion) bool {
		return p.Spec.Pipeline.Name != pipeline || p.Spec.Environment != env || p.Spec.Revision != revision
	}), err
}

// only is the one Promotion of a revision into an environment, in that phase.
func (f *Fleet) only(ctx context.Context, pipeline, env, revision string, phase capstanv1.PromotionPhase) (*capstanv1.Promotion, error) {
	found, err := f.promotionsOf(ctx, pipeline, env, revision)
	switch {
	case err != nil:
		return nil, err
	case len(found) != 1:
		return nil, fmt.Errorf("%d Promotions of %s %s into %s", len(found), pipeline, revision, env)
	case found[0].Status.Phase != phase:
		return nil, fmt.Errorf("the Promotion %s is %s: %s: %s", found[0].Name, found[0].Status.Phase, found[0].Status.Reason, found[0].Status.Message)
	}
	return &found[0], nil
}

// acts counts what was done outside for a promotion, by its identity: notifications of
// it, or pull requests.
func (f *Fleet) acts(ctx context.Context) (func(identity string) int, error) {
	opened, err := f.repository.PullRequests(ctx)
	if err != nil {
		return nil, err
	}
	return func(identity string) int {
		return f.team.deliveries(identity) + len(pullRequests(opened, identity))
	}, nil
}

// promotedOnce: one Promotion, which succeeded, and one notification or pull request
// of it.
func (f *Fleet) promotedOnce(pipeline, revision string, envs ...string) check {
	return func(ctx context.Context) error {
		acts, err := f.acts(ctx)
		if err != nil {
			return err
		}
		for _, env := range envs {
			p, err := f.only(ctx, pipeline, env, revision, capstanv1.PhaseSucceeded)
			if err != nil {
				return err
			}
			if n := acts(strategy.Identity(p)); n != 1 {
				return fmt.Errorf("the Promotion %s was carried out %d times", p.Name, n)
			}
		}
		return nil
	}
}

// notPromoted: no Promotion of the revision into the environment.
func (f *Fleet) notPromoted(pipeline, env, revision string) check {
	return func(ctx context.Context) error {
		found, err := f.promotionsOf(ctx, pipeline, env, revision)
		if err == nil && len(found) > 0 {
			err = fmt.Errorf("the Promotion %s exists", found[0].Name)
		}
		return err
	}
}

// connection of a workload cluster.
func (f *Fleet) connection(ctx context.Context, cluster string) (*capstanv1.ClusterConnection, error) {
	var list capstanv1.ClusterConnectionList
	if err := f.client.List(ctx, &list, client.InNamespace(fleetNamespace)); err != nil {
		return nil, err
	}
	for i, c := range list.Items {
		if c.Spec.ClusterRef.Kind == pipelinesv1.ClusterKindCluster && c.Spec.ClusterRef.Name == cluster {
			return &list.Items[i], nil
		}
	}
	return nil, fmt.Errorf("no ClusterConnection of Cluster %s/%s", fleetNamespace, cluster)
}

func (f *Fleet) connected(state capstanv1.ConnectionState, clusters ...string) check {
	return func(ctx context.Context) error {
		for _, name := range clusters {
			c, err := f.connection(ctx, name)
			if err != nil {
				return err
			}
			if c.Status.State != state {
				return fmt.Errorf("ClusterConnection %s is %s: %s: %s", c.Name, c.Status.State, c.Status.Reason, c.Status.Message)
			}
		}
		return nil
	}
}

// refused: the API server takes the configuration's credentials no more.
func refused(config *rest.Config) check {
	return func(ctx context.Context) error {
		set, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		_, err = set.Discovery().RESTClient().Get().AbsPath("/version").DoRaw(ctx)
		switch {
		case err == nil:
			return fmt.Errorf("%s still takes the token (API servers remember a good one for 10 s)", config.Host)
		case apierrors.IsUnauthorized(err):
			return nil
		default:
			return err
		}
	}
}

// listsMetric counts the lists that the hub's informers ask for after their first:
// one whenever a watch could not be resumed.
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
