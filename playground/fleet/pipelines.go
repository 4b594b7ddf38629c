package fleet

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
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

// pipelines are those of the namespace apps, as their status shows them.
type pipelines struct{ client.Reader }

// get a Pipeline of the namespace apps.
func (v pipelines) get(ctx context.Context, name string) (*pipelinesv1.Pipeline, error) {
	p := &pipelinesv1.Pipeline{}
	return p, v.Reader.Get(ctx, client.ObjectKey{Namespace: appsNamespace, Name: name}, p)
}

// environment returns the status of an environment and of its only target.
func (v pipelines) environment(ctx context.Context, pipeline, env string) (*pipelinesv1.EnvironmentStatus, pipelinesv1.TargetStatus, error) {
	p, err := v.get(ctx, pipeline)
	if err != nil {
		return nil, pipelinesv1.TargetStatus{}, err
	}
	status := p.Status.Environments[env]
	if status == nil || len(status.Targets) != 1 {
		return nil, pipelinesv1.TargetStatus{}, fmt.Errorf("%s has no target status of %s", pipeline, env)
	}
	return status, status.Targets[0], nil
}

// ready: the Pipeline is Ready, in its newest generation.
func (v pipelines) ready(name string) check {
	return func(ctx context.Context) error {
		p, err := v.get(ctx, name)
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

// runs: the Pipeline's status shows the revision in the environments, ready and not stale.
func (v pipelines) runs(pipeline, revision string, envs ...string) check {
	return func(ctx context.Context) error {
		for _, env := range envs {
			_, target, err := v.environment(ctx, pipeline, env)
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

// stale: the environment's target keeps the last known revision and is marked stale.
func (v pipelines) stale(pipeline, env, revision string) check {
	return func(ctx context.Context) error {
		_, target, err := v.environment(ctx, pipeline, env)
		if err != nil {
			return err
		}
		if !target.Stale || target.Revision != revision {
			return fmt.Errorf("%s in %s shows revision %q, stale %t", pipeline, env, target.Revision, target.Stale)
		}
		return nil
	}
}

// agreed: the hub has accepted the revision as the one that the environment runs.
func (v pipelines) agreed(pipeline, env, revision string) check {
	return func(ctx context.Context) error {
		status, _, err := v.environment(ctx, pipeline, env)
		if err != nil {
			return err
		}
		if status.Agreed == nil || status.Agreed.Revision != revision {
			return fmt.Errorf("%s in %s agrees on %+v", pipeline, env, status.Agreed)
		}
		return nil
	}
}

// waitsForApproval: the Pipeline shows the revision as weave's controller does.
func (v pipelines) waitsForApproval(pipeline, env, revision string) check {
	return func(ctx context.Context) error {
		status, _, err := v.environment(ctx, pipeline, env)
		if err != nil {
			return err
		}
		if status.WaitingApproval.Revision != revision {
			return fmt.Errorf("%s in %s has waitingApproval.revision %q", pipeline, env, status.WaitingApproval.Revision)
		}
		return nil
	}
}
