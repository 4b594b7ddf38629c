package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/hub/explain"
	"github.com/capstan-hub/capstan/internal/capa"
	"github.com/capstan-hub/capstan/internal/promotions"
)

// explainTimeout bounds the reading of the objects.
const explainTimeout = 30 * time.Second

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
	return c
}

func newExplainPipeline() *cobra.Command {
	var s settings
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
	c.RunE = s.explaining(explainPipeline)
	s.registerObject(c.Flags())
	return c
}

func newExplainBackend() *cobra.Command {
	var s settings
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
	c.RunE = s.explaining(explainBackend)
	s.registerObject(c.Flags())
	return c
}

func explainBackend(ctx context.Context, config *rest.Config, key client.ObjectKey, out, _ io.Writer) error {
	reader, err := client.New(config, client.Options{Scheme: hub.Scheme()})
	if err != nil {
		return fmt.Errorf("calling the API server at %s: %w", config.Host, err)
	}
	var o eventingv1.EventingBackend
	switch err := reader.Get(ctx, key, &o); {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("EventingBackend %s does not exist at %s: `kubectl get eventingbackends -A` lists the EventingBackends", key, config.Host)
	case meta.IsNoMatchError(err):
		return fmt.Errorf("the cluster at %s does not serve EventingBackends: check that it is the management cluster and that config/crd is applied", config.Host)
	case err != nil:
		return fmt.Errorf("reading EventingBackend %s: %w", key, err)
	}
	return explain.WriteBackend(out, &o, time.Now())
}

// explaining returns a command that explains the object that its argument names, as read
// from the management cluster of the settings.
func (s *settings) explaining(explain func(ctx context.Context, config *rest.Config, key client.ObjectKey, out, errOut io.Writer) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		key, err := objectKey(args[0], s.objectNamespace)
		if err != nil {
			return err
		}
		config, err := s.config()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(c.Context(), explainTimeout)
		defer cancel()
		return explain(ctx, config, key, c.OutOrStdout(), c.ErrOrStderr())
	}
}

// objectKey parses NAMESPACE/NAME, or NAME where flag, the value of --namespace, is the
// namespace. Both together must name the same namespace.
func objectKey(given, flag string) (client.ObjectKey, error) {
	namespace, name, both := strings.Cut(given, "/")
	if !both && flag != "" {
		namespace, name = flag, given
	}
	if namespace == "" || name == "" || strings.Contains(name, "/") {
		return client.ObjectKey{}, fmt.Errorf("%q is neither NAMESPACE/NAME, such as apps/shop, nor NAME with --namespace", given)
	}
	if flag != "" && namespace != flag {
		return client.ObjectKey{}, fmt.Errorf("%q is in namespace %s, and --namespace is %s: omit one of the two", given, namespace, flag)
	}
	return client.ObjectKey{Namespace: namespace, Name: name}, nil
}

func explainPipeline(ctx context.Context, config *rest.Config, key client.ObjectKey, out, errOut io.Writer) error {
	reader, err := client.New(config, client.Options{Scheme: hub.Scheme()})
	if err != nil {
		return fmt.Errorf("calling the API server at %s: %w", config.Host, err)
	}
	f := explain.Facts{Pipeline: &pipelinesv1.Pipeline{}}
	err = reader.Get(ctx, key, f.Pipeline)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("Pipeline %s does not exist at %s: `kubectl get pipelines.pipelines.weave.works -A` lists the Pipelines", key, config.Host)
	case meta.IsNoMatchError(err):
		return fmt.Errorf("the cluster at %s does not serve Pipelines: check that it is the management cluster and that config/crd is applied", config.Host)
	case err != nil:
		return fmt.Errorf("reading Pipeline %s: %w", key, err)
	}
	if f.Promotions, err = promotions.OfName(ctx, reader, key); err != nil {
		return err
	}
	for _, namespace := range f.Namespaces() {
		var connections capstanv1.ClusterConnectionList
		if err := reader.List(ctx, &connections, client.InNamespace(namespace)); err != nil {
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
