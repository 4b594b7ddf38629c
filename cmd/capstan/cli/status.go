package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/explain"
)

// Values of --output.
const (
	outputTable = "table"
	outputWide  = "wide"
	outputJSON  = "json"
	outputYAML  = "yaml"
	outputName  = "name"
)

var statusOutputs = []string{outputTable, outputWide, outputJSON, outputYAML}

// viewerRole is the ClusterRole of users who read.
const viewerRole = "capstan-viewer"

// statusQuestion is what the flags of status select.
type statusQuestion struct {
	namespace string
	// pipeline is the only one to show; empty for all.
	pipeline types.NamespacedName
	all      bool
	output   string
	failOn   []explain.Condition
}

func newStatus() *cobra.Command {
	var q statusQuestion
	var allNamespaces, watch bool
	var failOn []string
	c := &cobra.Command{
		Use:   "status [PIPELINE]",
		Short: "Show the clusters and Pipelines of the hub, and what waits",
		Long: `Show a verdict on the fleet, the state of the connection to each cluster, worst first,
what each environment of each Pipeline runs, and in one sentence each what waits and why.
If this has more than 40 lines, it shows one row for each cause instead, with the number of
objects, the longest time, three examples and a command that shows more; --all shows all rows.
With PIPELINE, which is NAMESPACE/NAME, or NAME with -n, it shows this Pipeline and its clusters.

--output=wide is a table with one row for each environment. json and yaml have the verdict,
one entry for each cause with all objects, and the environments: docs/cli.md has the fields.
--watch prints the rows of the environments, and then each row that changes, until it is
interrupted.

The command reads ClusterConnections, Pipelines, Promotions and EventingBackends, which you
need permission to list (and to watch, for --watch): the ClusterRole capstan-viewer has it, but
for EventingBackends. It connects to no workload cluster. With --namespace, it shows the
objects of that namespace and the clusters that its Pipelines name.

The exit code is 0 when the Pipelines could be read, independent of the state of the fleet; 1
when they could not; and 2 when a condition of --fail-on is met.`,
		Example: `  capstan status
  capstan status -n apps --context=management
  capstan status --all
  capstan status apps/shop --watch
  capstan status -o json | jq .clusters.causes
  capstan status -n apps --fail-on=failed,stalled,unreachable`,
		Args: cobra.MaximumNArgs(1),
	}
	flags := c.Flags()
	flags.BoolVarP(&allNamespaces, "all-namespaces", "A", false, "show all namespaces, which is the default")
	flags.BoolVar(&q.all, "all", false, "show all rows, also if they have more than 40 lines")
	flags.StringVarP(&q.output, "output", "o", outputTable, "output: "+strings.Join(statusOutputs, ", "))
	flags.BoolVarP(&watch, "watch", "w", false, "print the rows of all environments, then those that change")
	flags.StringSliceVar(&failOn, "fail-on", nil, "conditions on which the exit code is 2, comma-separated: "+strings.Join(conditionNames(), ", "))
	f := newClusterFlags(c)
	c.ValidArgsFunction = f.oneName(pipelineKind)
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(statusOutputs, cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("fail-on", cobra.FixedCompletions(conditionNames(), cobra.ShellCompDirectiveNoFileComp))
	c.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	c.MarkFlagsMutuallyExclusive("watch", "fail-on")
	c.MarkFlagsMutuallyExclusive("watch", "all")
	c.RunE = func(c *cobra.Command, args []string) error {
		if !slices.Contains(statusOutputs, q.output) {
			return fmt.Errorf("--output: %q is not one of %s", q.output, strings.Join(statusOutputs, ", "))
		}
		for _, name := range failOn {
			if !slices.Contains(conditionNames(), name) {
				return fmt.Errorf("--fail-on: %q is not one of %s", name, strings.Join(conditionNames(), ", "))
			}
			q.failOn = append(q.failOn, explain.Condition(name))
		}
		if len(args) > 0 && allNamespaces {
			return fmt.Errorf("--all-namespaces: %s is one Pipeline: omit one of the two", args[0])
		}
		of, err := f.connect()
		if err != nil {
			return err
		}
		if of.given {
			q.namespace = of.namespace
		}
		if len(args) > 0 {
			if q.pipeline, err = of.key(args[0]); err != nil {
				return err
			}
			q.namespace = q.pipeline.Namespace
		}
		if watch {
			return watchStatus(c.Context(), of, q, c.OutOrStdout(), c.ErrOrStderr())
		}
		ctx, cancel := context.WithTimeout(c.Context(), requestTimeout)
		defer cancel()
		return status(ctx, of, q, c.OutOrStdout())
	}
	return c
}

func conditionNames() []string {
	all := explain.Conditions()
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = string(c)
	}
	return names
}

func status(ctx context.Context, c *cluster, q statusQuestion, out io.Writer) error {
	fleet, _, err := readFleet(ctx, c, q)
	if err != nil {
		return err
	}
	if err := writeStatus(fleet, q, out); err != nil {
		return err
	}
	return failing(fleet, q.failOn)
}

func writeStatus(fleet *explain.Fleet, q statusQuestion, out io.Writer) error {
	switch q.output {
	case outputJSON:
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(fleet.Summary())
	case outputYAML:
		text, err := yaml.Marshal(fleet.Summary())
		if err != nil {
			return fmt.Errorf("encoding the summary: %w", err)
		}
		_, err = out.Write(text)
		return err
	case outputWide:
		return explain.WriteRows(out, fleet.Rows(), true, true, fleet.Now)
	}
	return fleet.Write(out, q.all)
}

// failing returns the error of the conditions that the fleet meets; nil if it meets none. A condition
// that cannot be judged is an error, too.
func failing(fleet *explain.Fleet, conditions []explain.Condition) error {
	summary := fleet.Summary()
	var met []string
	for _, c := range conditions {
		if c == explain.ConditionUnreachable && fleet.ClustersUnread || c == explain.ConditionBackend && fleet.BackendsUnread {
			return fmt.Errorf("--fail-on=%s cannot be judged: %s", c, strings.Join(fleet.Unread, "; "))
		}
		if n := summary.Met(c); n > 0 {
			met = append(met, fmt.Sprintf("%d %s", n, c))
		}
	}
	if len(met) > 0 {
		return conditionError{met}
	}
	return nil
}

// conditionError is the error of a command that worked, and whose conditions are met.
type conditionError struct{ met []string }

// Error implements error.
func (e conditionError) Error() string { return "--fail-on: " + strings.Join(e.met, ", ") }

// ExitCode is that of the process.
func (e conditionError) ExitCode() int { return conditionMet }

// listed are the resource versions of the lists of a fleet.
type listed struct{ pipelines, promotions string }

// readFleet reads what the question selects.
func readFleet(ctx context.Context, c *cluster, q statusQuestion) (*explain.Fleet, listed, error) {
	var (
		in         = client.InNamespace(q.namespace)
		pipelines  pipelinesv1.PipelineList
		promotions capstanv1.PromotionList
		backends   eventingv1.EventingBackendList
		at         listed
	)
	where, hint := "of namespace "+q.namespace, ""
	if q.namespace == "" {
		where, hint = "of all namespaces", "; or name a namespace that you may read with --namespace"
	}
	right := func(resource string) access {
		return access{doing: "listing " + resource + " " + where, verb: "list", resource: resource, namespace: q.namespace, role: viewerRole + hint}
	}
	if err := c.List(ctx, &pipelines, in); err != nil {
		return nil, at, c.failed(err, right("pipelines.pipelines.weave.works"))
	}
	if err := c.List(ctx, &promotions, in); err != nil {
		return nil, at, c.failed(err, right("promotions.capstan.dev"))
	}
	at = listed{pipelines.ResourceVersion, promotions.ResourceVersion}
	fleet := &explain.Fleet{Pipelines: pipelines.Items, Promotions: promotions.Items, Namespace: q.namespace, Now: time.Now()}
	// The rest is useful without the clusters and the backends.
	readClusters(ctx, c, fleet)
	if q.pipeline.Name != "" {
		if !fleet.Only(q.pipeline.Namespace, q.pipeline.Name) {
			return nil, at, noPipeline(c, q.pipeline)
		}
		return fleet, at, nil
	}
	if err := c.List(ctx, &backends, in); err != nil {
		fleet.Unread, fleet.BackendsUnread = append(fleet.Unread, fmt.Sprintf("EventingBackends: %v", err)), true
	}
	fleet.Backends = backends.Items
	return fleet, at, nil
}

func noPipeline(c *cluster, key types.NamespacedName) error {
	return fmt.Errorf("Pipeline %s does not exist at %s: `kubectl get pipelines.pipelines.weave.works -A` lists the Pipelines", key, c.config.Host)
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
