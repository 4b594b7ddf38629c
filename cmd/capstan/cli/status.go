package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/hub/explain"
)

func newStatus() *cobra.Command {
	var s settings
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the clusters and Pipelines of the hub, and what waits",
		Long: `Show the state of the connection to each cluster, worst first, what each environment
of each Pipeline runs, and in one sentence each what waits and why. The command reads
ClusterConnections, Pipelines and Promotions, which you need permission to list; it
connects to no workload cluster. The exit code is 0 when the objects could be read,
independent of the state of the fleet.`,
		Example: `  capstan status
  capstan status --namespace=apps --kubeconfig=$HOME/.kube/management`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			config, err := s.config()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context(), explainTimeout)
			defer cancel()
			return status(ctx, config, s.hub.Namespace, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	s.registerReading(c.Flags())
	c.Flags().StringVar(&s.hub.Namespace, "namespace", "", "the only namespace to show; when empty, all namespaces")
	return c
}

func status(ctx context.Context, config *rest.Config, namespace string, out, errOut io.Writer) error {
	reader, err := client.New(config, client.Options{Scheme: hub.Scheme()})
	if err != nil {
		return fmt.Errorf("calling the API server at %s: %w", config.Host, err)
	}
	var (
		in          = client.InNamespace(namespace)
		connections capstanv1.ClusterConnectionList
		pipelines   pipelinesv1.PipelineList
		promotions  capstanv1.PromotionList
	)
	switch err := reader.List(ctx, &pipelines, in); {
	case meta.IsNoMatchError(err):
		return fmt.Errorf("the cluster at %s does not serve Pipelines: check that it is the management cluster and that config/crd is applied", config.Host)
	case err != nil:
		return fmt.Errorf("listing Pipelines: %w", err)
	}
	if err := reader.List(ctx, &promotions, in); err != nil {
		return fmt.Errorf("listing Promotions: %w", err)
	}
	if err := reader.List(ctx, &connections, in); err != nil {
		// The rest is useful without them.
		_, _ = fmt.Fprintf(errOut, "The states of the clusters are missing: %v\n", err)
	}
	fleet := explain.Fleet{Connections: connections.Items, Pipelines: pipelines.Items, Promotions: promotions.Items, Now: time.Now()}
	return fleet.Write(out)
}
