package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/hub/explain"
)

// Values of --output of status.
const (
	outputTable = "table"
	outputJSON  = "json"
)

// statusQuestion is what the flags of status select.
type statusQuestion struct {
	namespace string
	all       bool
	output    string
}

func newStatus() *cobra.Command {
	var s settings
	var q statusQuestion
	var allNamespaces bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the clusters and Pipelines of the hub, and what waits",
		Long: `Show a verdict on the fleet, the state of the connection to each cluster, worst first,
what each environment of each Pipeline runs, and in one sentence each what waits and why.
If this has more than 40 lines, it shows one row for each cause instead, with the number of
objects, the longest time, three examples and a command that shows more; --all shows all rows.

The command reads ClusterConnections, Pipelines, Promotions and EventingBackends, which you
need permission to list; it connects to no workload cluster. With --namespace, it shows the
objects of that namespace and the clusters that its Pipelines name. The exit code is 0 when
the Pipelines could be read, independent of the state of the fleet.`,
		Example: `  capstan status
  capstan status -n apps --context=management
  capstan status --all
  capstan status -o json | jq .clusters.causes`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if q.output != outputTable && q.output != outputJSON {
				return fmt.Errorf("--output: %q is not %s or %s", q.output, outputTable, outputJSON)
			}
			config, err := s.config()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context(), explainTimeout)
			defer cancel()
			return status(ctx, config, q, c.OutOrStdout())
		},
	}
	s.registerReading(c.Flags())
	c.Flags().StringVarP(&q.namespace, "namespace", "n", "", "the only namespace to show; when empty, all namespaces")
	c.Flags().BoolVarP(&allNamespaces, "all-namespaces", "A", false, "show all namespaces, which is the default")
	c.Flags().BoolVar(&q.all, "all", false, "show all rows, also if they have more than 40 lines")
	c.Flags().StringVarP(&q.output, "output", "o", outputTable, "output: table, or json, which has one entry for each cause and all objects")
	c.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	return c
}

func status(ctx context.Context, config *rest.Config, q statusQuestion, out io.Writer) error {
	reader, err := client.New(config, client.Options{Scheme: hub.Scheme()})
	if err != nil {
		return fmt.Errorf("calling the API server at %s: %w", config.Host, err)
	}
	var (
		in         = client.InNamespace(q.namespace)
		pipelines  pipelinesv1.PipelineList
		promotions capstanv1.PromotionList
		backends   eventingv1.EventingBackendList
	)
	switch err := reader.List(ctx, &pipelines, in); {
	case meta.IsNoMatchError(err):
		return fmt.Errorf("the cluster at %s does not serve Pipelines: check that it is the management cluster and that config/crd is applied", config.Host)
	case apierrors.IsForbidden(err) && q.namespace == "":
		return fmt.Errorf("listing Pipelines of all namespaces: %w: name one that you may read with --namespace", err)
	case err != nil:
		return fmt.Errorf("listing Pipelines: %w", err)
	}
	if err := reader.List(ctx, &promotions, in); err != nil {
		return fmt.Errorf("listing Promotions: %w", err)
	}
	fleet := explain.Fleet{Pipelines: pipelines.Items, Promotions: promotions.Items, Namespace: q.namespace, Now: time.Now()}
	// The rest is useful without the clusters and the backends.
	readClusters(ctx, reader, &fleet)
	if err := reader.List(ctx, &backends, in); err != nil {
		fleet.Unread = append(fleet.Unread, fmt.Sprintf("EventingBackends: %v", err))
	}
	fleet.Backends = backends.Items
	if q.output == outputJSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(fleet.Summary())
	}
	return fleet.Write(out, q.all)
}

// readClusters reads the connections of the clusters: all, or those of a namespace and those that its Pipelines
// name.
func readClusters(ctx context.Context, reader client.Reader, fleet *explain.Fleet) {
	namespaces, named := []string{fleet.Namespace}, fleet.Named()
	if fleet.Namespace != "" {
		for cluster := range named {
			namespaces = append(namespaces, cluster.Namespace)
		}
		slices.Sort(namespaces)
		namespaces = slices.Compact(namespaces)
	}
	for _, namespace := range namespaces {
		var connections capstanv1.ClusterConnectionList
		if err := reader.List(ctx, &connections, client.InNamespace(namespace)); err != nil {
			what := "the clusters"
			if namespace != "" {
				what = "the clusters of namespace " + namespace
			}
			fleet.Unread, fleet.ClustersUnread = append(fleet.Unread, fmt.Sprintf("%s: %v", what, err)), true
			continue
		}
		for i := range connections.Items {
			c := &connections.Items[i]
			ref := c.Spec.ClusterRef
			named := named[pipelinesv1.CrossNamespaceClusterReference{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}]
			if fleet.Namespace == "" || namespace == fleet.Namespace || named {
				fleet.Connections = append(fleet.Connections, *c)
			}
		}
	}
}
