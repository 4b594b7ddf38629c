package fleet

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/strategy"
)

// promotions are those of the namespace apps, and what was done for them outside.
type promotions struct {
	reader client.Reader
	acts   acts
}

// acts are the notifications and pull requests of promotions.
type acts struct {
	team    *team
	billing *billingTeam
}

// count returns the number of notifications and pull requests of a promotion, by its identity.
func (a acts) count(ctx context.Context) (func(identity string) int, error) {
	opened, err := a.billing.pullRequests(ctx)
	if err != nil {
		return nil, err
	}
	return func(identity string) int {
		return a.team.deliveries(identity) + len(pullRequestsOf(opened, identity))
	}, nil
}

// list them by Pipeline, environment and number.
func (v promotions) list(ctx context.Context) ([]capstanv1.Promotion, error) {
	var list capstanv1.PromotionList
	if err := v.reader.List(ctx, &list, client.InNamespace(appsNamespace)); err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, func(a, b capstanv1.Promotion) int {
		return cmp.Or(
			strings.Compare(b.Spec.Pipeline.Name, a.Spec.Pipeline.Name),
			cmp.Compare(slices.Index(Environments, a.Spec.Environment), slices.Index(Environments, b.Spec.Environment)),
			strings.Compare(a.Spec.Environment, b.Spec.Environment), // Those of waves.
			cmp.Compare(a.Spec.Number, b.Spec.Number))
	})
	return list.Items, nil
}

// of a revision into an environment; there should be one.
func (v promotions) of(ctx context.Context, pipeline, env, revision string) ([]capstanv1.Promotion, error) {
	every, err := v.list(ctx)
	return slices.DeleteFunc(every, func(p capstanv1.Promotion) bool {
		return p.Spec.Pipeline.Name != pipeline || p.Spec.Environment != env || p.Spec.Revision != revision
	}), err
}

// only returns the one Promotion of a revision into an environment, in that phase.
func (v promotions) only(ctx context.Context, pipeline, env, revision string, phase capstanv1.PromotionPhase) (*capstanv1.Promotion, error) {
	found, err := v.of(ctx, pipeline, env, revision)
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

// last returns the Promotion with the highest number into an environment.
func (v promotions) last(ctx context.Context, pipeline, env string) (*capstanv1.Promotion, error) {
	every, err := v.list(ctx)
	if err != nil {
		return nil, err
	}
	for i := len(every) - 1; i >= 0; i-- { // They are in the order of their numbers.
		if p := &every[i]; p.Spec.Pipeline.Name == pipeline && p.Spec.Environment == env {
			return p, nil
		}
	}
	return nil, fmt.Errorf("there is no Promotion of %s into %s", pipeline, env)
}

// newest: the last Promotion into an environment is of the revision, and in that phase for that reason.
func (v promotions) newest(pipeline, env, revision string, phase capstanv1.PromotionPhase, reason string) check {
	return func(ctx context.Context) error {
		p, err := v.last(ctx, pipeline, env)
		if err == nil && (p.Spec.Revision != revision || p.Status.Phase != phase || p.Status.Reason != reason) {
			err = fmt.Errorf("the Promotion %s of %s is %s: %s: %s", p.Name, p.Spec.Revision, p.Status.Phase, p.Status.Reason, p.Status.Message)
		}
		return err
	}
}

// once: each environment has one Promotion of the revision, which succeeded, with one
// notification or pull request.
func (v promotions) once(pipeline, revision string, envs ...string) check {
	return func(ctx context.Context) error {
		acts, err := v.acts.count(ctx)
		if err != nil {
			return err
		}
		for _, env := range envs {
			p, err := v.only(ctx, pipeline, env, revision, capstanv1.PhaseSucceeded)
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

// none: there is no Promotion of the revision into the environment.
func (v promotions) none(pipeline, env, revision string) check {
	return func(ctx context.Context) error {
		found, err := v.of(ctx, pipeline, env, revision)
		if err == nil && len(found) > 0 {
			err = fmt.Errorf("the Promotion %s exists", found[0].Name)
		}
		return err
	}
}
