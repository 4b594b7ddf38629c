package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/explain"
	"github.com/capstan-hub/capstan/hub/instancestate"
	"github.com/capstan-hub/capstan/internal/capa"
	"github.com/capstan-hub/capstan/internal/promotions"
)

func newExplain() *cobra.Command {
	c := &cobra.Command{
		Use:   "explain",
		Short: "Explain what the hub does, and why it does not continue",
		Args:  noCommand,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newExplainPipeline(), newExplainBackend())
	for _, kind := range []schema.GroupKind{capa.MachineDeployment, capa.MachineSet, capa.MachinePool} {
		c.AddCommand(newExplainNodeGroup(kind))
	}
	for _, kind := range instancestate.LabelledKinds() {
		c.AddCommand(newExplainInstance(kind))
	}
	return c
}

func newExplainPipeline() *cobra.Command {
	c := &cobra.Command{
		Use:   "pipeline NAMESPACE/NAME|NAME",
		Short: "Explain a Pipeline",
		Long: `Explain what each environment of a Pipeline runs, which promotions are in progress,
and in one sentence why the next step does not happen. The command reads the Pipeline,
its Promotions and the ClusterConnections, which you need permission to read; it
connects to no workload cluster. The exit code is 0 when there is an explanation, 1 when
there is not.`,
		Example: `  capstan explain pipeline apps/shop
  capstan explain pipeline shop -n apps --kubeconfig=$HOME/.kube/management`,
		Args: cobra.ExactArgs(1),
	}
	f := newClusterFlags(c)
	c.RunE, c.ValidArgsFunction = f.explaining(explainPipeline), f.oneName(pipelineKind)
	return c
}

func newExplainBackend() *cobra.Command {
	c := &cobra.Command{
		Use:   "eventingbackend NAMESPACE/NAME|NAME",
		Short: "Explain an EventingBackend",
		Long: `Explain whether an EventingBackend is ready, how many events wait and since when, when
the last one got through, how many were refused or given up, and in one sentence why it is
not ready. The command reads the EventingBackend, which you need permission to read; it
calls no broker and no queue. The exit code is 0 when there is an explanation, 1 when
there is not.`,
		Example: `  capstan explain eventingbackend capstan-system/instances`,
		Args:    cobra.ExactArgs(1),
	}
	f := newClusterFlags(c)
	c.RunE, c.ValidArgsFunction = f.explaining(explainBackend), f.oneName(eventingv1.GroupVersion.WithKind("EventingBackend").GroupKind())
	return c
}

func explainBackend(ctx context.Context, c *cluster, key client.ObjectKey, out, _ io.Writer) error {
	var o eventingv1.EventingBackend
	switch err := c.Get(ctx, key, &o); {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("EventingBackend %s does not exist at %s: `kubectl get eventingbackends -A` lists the EventingBackends", key, c.config.Host)
	case err != nil:
		return c.failed(err, access{"reading EventingBackend " + key.String(), "get", "eventingbackends.eventing.kyma-project.io", key.Namespace, "capstan-operator"})
	}
	return explain.WriteBackend(out, &o, time.Now())
}

// explaining returns a command that explains the object that its argument names, as read
// from the management cluster of the flags.
func (f *clusterFlags) explaining(explain func(ctx context.Context, c *cluster, key client.ObjectKey, out, errOut io.Writer) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		of, err := f.connect()
		if err != nil {
			return err
		}
		key, err := of.key(args[0])
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(c.Context(), requestTimeout)
		defer cancel()
		return explain(ctx, of, key, c.OutOrStdout(), c.ErrOrStderr())
	}
}

func explainPipeline(ctx context.Context, c *cluster, key client.ObjectKey, out, errOut io.Writer) error {
	f := explain.Facts{Pipeline: &pipelinesv1.Pipeline{}}
	err := c.Get(ctx, key, f.Pipeline)
	switch {
	case apierrors.IsNotFound(err):
		return noPipeline(c, key)
	case err != nil:
		return c.failed(err, access{"reading Pipeline " + key.String(), "get", "pipelines.pipelines.weave.works", key.Namespace, viewerRole})
	}
	if f.Promotions, err = promotions.OfName(ctx, c, key); err != nil {
		return c.failed(err, access{"reading Pipeline " + key.String(), "list", "promotions.capstan.dev", key.Namespace, viewerRole})
	}
	for _, namespace := range f.Namespaces() {
		var connections capstanv1.ClusterConnectionList
		if err := c.List(ctx, &connections, client.InNamespace(namespace)); err != nil {
			// The rest is useful without them.
			_, _ = fmt.Fprintf(errOut, "The states of the clusters in namespace %s are missing: %v\n", namespace, err)
			continue
		}
		f.Connections = append(f.Connections, connections.Items...)
	}
	f.Now = time.Now()
	report := explain.Explain(f)
	return report.Write(out)
}
