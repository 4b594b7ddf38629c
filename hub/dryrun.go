package hub

import (
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/capstan-hub/capstan/hub/dryrun"
	"github.com/capstan-hub/capstan/hub/pipeline"
	"github.com/capstan-hub/capstan/internal/promotions"
)

// restrict limits the options to what a dry run does. All clients of the hub are made of Config, so the gate is in front
// of every request to the management cluster. What acts elsewhere, or has no purpose without acting, is disabled.
func (o *Options) restrict() error {
	log := o.Logger.WithName("dryrun")
	gated, err := dryrun.Gate(o.Config, func(refused *dryrun.RefusedError) {
		log.Error(refused, "a write was not sent: please report this, because no part of a hub in dry run should attempt it")
	})
	if err != nil {
		return fmt.Errorf("wiring the dry run: %w", err)
	}
	o.Config = gated
	o.AWS, o.Annotator.AWS = nil, nil
	o.Hook.BindAddress, o.Eventing.APIBindAddress = "0", "0"
	o.Eventing.Webhooks = Webhooks{}
	log.Info("dry run: the hub shows what it would promote, and promotes nothing",
		"written", []string{"status.dryRun of Pipelines", "ClusterConnections", "Events", "the leases"},
		"notStarted", []string{"promotions and their retention", "promotion windows", "the promotion hook", "annotations of node groups", "state of instances", "event backends", "webhooks", "actions on the dashboard"})
	return nil
}

// addDryRun adds the reconciler of Pipelines, which only announces.
func addDryRun(mgr manager.Manager, s *stack, waker *pipeline.Waker, o Options) error {
	measurer, err := newMeasurer(o) // It checks the names of endpoints, and queries none: it is not started.
	if err != nil {
		return err
	}
	_, err = addPipelines(mgr, s, waker, promotions.IndexedClient(mgr.GetClient()), measurer, o)
	return err
}
