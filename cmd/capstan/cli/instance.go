package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/hub/instancestate"
	"github.com/capstan-hub/capstan/internal/capa"
)

const (
	// defaultHubNamespace is the namespace of the manifests and of the examples.
	defaultHubNamespace = "capstan-system"
	// standardInput is the value of --event for standard input.
	standardInput = "-"
	// mostEventBytes is more than SQS allows for a message.
	mostEventBytes = 2 << 20
	// mostInstances of a pool are printed.
	mostInstances = 5
)

// hubNamespace adds the flag for the namespace of the hub.
func hubNamespace(f *pflag.FlagSet, what string) *string {
	return f.String("hub-namespace", defaultHubNamespace, "namespace in which the hub runs: "+what)
}

func newExplainInstance(kind schema.GroupKind) *cobra.Command {
	var event string
	name, of := strings.ToLower(kind.Kind), "Auto Scaling group"
	switch kind {
	case capa.AWSMachine:
		of = "instance"
	case capa.ROSAMachinePool:
		of = "instances"
	}
	c := &cobra.Command{
		Use:   name + " NAMESPACE/NAME|NAME",
		Short: "Explain the label of an " + kind.Kind + " with the state of its " + of,
		Long: `Explain which label the hub has written on an ` + kind.Kind + `, by which event, and in one
sentence why it has this label or none: the source that delivered the event, the events
that the label hides, the account and region of the object, and the sources that can
deliver its events. With --event, it says what the hub would do with an event.

The command reads the object, its Events, its Cluster and what that references, and the
EventingBackends, which you need permission to read; what you may not read is named. It
calls neither AWS nor another cluster. For an object in a self-managed cluster, run it
with --kubeconfig or --context of that cluster; its sources are then not known. The exit
code is 0 when there is an explanation, 1 when there is not.`,
		Example: `  capstan explain ` + name + ` fleet/web-x7k2p
  aws sqs receive-message --queue-url=DEAD_QUEUE_URL --query='Messages[0].Body' --output=text | capstan explain ` + name + ` fleet/web-x7k2p --event=-`,
		Args: cobra.ExactArgs(1),
	}
	c.Flags().StringVar(&event, "event", "", "file with the body of a message or dead letter, - for standard input: an event of EventBridge, a notification of Auto Scaling, or one of both in an envelope of SNS; say what the hub would do with it")
	home := hubNamespace(c.Flags(), "its EventingBackends are read there, if you may not list those of all namespaces")
	f := newClusterFlags(c)
	explain := func(ctx context.Context, of *cluster, key client.ObjectKey, out, errOut io.Writer) error {
		o := instancestate.ExplainOptions{HubNamespace: *home, Now: time.Now()}
		var err error
		if o.Event, err = readEvent(event, c.InOrStdin()); err != nil {
			return err
		}
		return explainInstance(ctx, of, kind, key, o, out, errOut)
	}
	c.RunE, c.ValidArgsFunction = f.explaining(explain), f.oneName(kind)
	return c
}

// readEvent reads the value of --event; nil when it is not set.
func readEvent(from string, in io.Reader) ([]byte, error) {
	if from == "" {
		return nil, nil
	}
	if from != standardInput {
		file, err := os.Open(from)
		if err != nil {
			return nil, fmt.Errorf("--event: %w: name a file with the body of a message, or - for standard input", err)
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	body, err := io.ReadAll(io.LimitReader(in, mostEventBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("--event: reading %s: %w", from, err)
	case len(body) > mostEventBytes:
		return nil, fmt.Errorf("--event: %s has more than %d bytes: give the body of one message", from, mostEventBytes)
	case strings.TrimSpace(string(body)) == "":
		return nil, errors.New("--event: " + from + " is empty: give the body of one message")
	}
	return body, nil
}

func explainInstance(ctx context.Context, c *cluster, kind schema.GroupKind, key client.ObjectKey, o instancestate.ExplainOptions, out, errOut io.Writer) error {
	object, err := readAny(ctx, c, kind, key)
	if err != nil {
		return err
	}
	events, err := eventsOf(ctx, c, object)
	if err != nil {
		// The rest is useful without them.
		_, _ = fmt.Fprintf(errOut, "The Events of %s %s are missing: %v\n", kind.Kind, key, err)
	}
	return writeInstance(out, kind.Kind+" "+key.String(), instancestate.Explain(ctx, c, object, o), events, o.Now)
}

// readAny reads an object of Cluster API, in the version that is served.
func readAny(ctx context.Context, c *cluster, kind schema.GroupKind, key client.ObjectKey) (*unstructured.Unstructured, error) {
	doing := fmt.Sprintf("reading %s %s", kind.Kind, key)
	served, err := c.RESTMapper().RESTMapping(kind)
	if err != nil {
		return nil, c.failed(err, access{doing: doing})
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(served.GroupVersionKind)
	switch err := c.Get(ctx, key, object); {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("%s %s does not exist at %s: `kubectl get %s -A` lists the objects of this kind", kind.Kind, key, c.config.Host, served.Resource.GroupResource())
	case err != nil:
		return nil, c.failed(err, access{doing, "get", served.Resource.GroupResource().String(), key.Namespace, "view, if that includes Cluster API's kinds"})
	}
	return object, nil
}

func writeInstance(out io.Writer, name string, e instancestate.Explanation, events []corev1.Event, now time.Time) error {
	b := &strings.Builder{}
	b.WriteString(name)
	if e.Cluster != "" {
		b.WriteString(" of Cluster " + e.Cluster)
	}
	b.WriteString("\n")
	describeInstance(b, e, now)
	if len(e.Held) > 0 {
		b.WriteString("\n")
		rows := [][]string{{"EVENT", "TIME", "ID", "DUE", "SHOWN"}}
		for _, r := range e.Held {
			shown := "yes"
			if r.Hidden != "" {
				shown = "no: " + r.Hidden
			}
			due := "-"
			if !r.Due.IsZero() {
				due = r.Due.Format(time.RFC3339)
			}
			rows = append(rows, []string{r.Label, r.Time.Format(time.RFC3339), r.ID, due, shown})
		}
		writeAligned(b, rows)
	}
	if len(e.Sources) > 0 {
		b.WriteString("\n")
		rows := [][]string{{"SOURCE", "DELIVERS", "READY", "WHY"}}
		for _, s := range e.Sources {
			why := s.Why
			if s.Message != "" {
				why += "; " + strings.TrimSuffix(s.Message, ".")
			}
			rows = append(rows, []string{s.Name, yes(s.Delivers), yes(s.Ready), strings.TrimPrefix(why, "; ")})
		}
		writeAligned(b, rows)
	}
	if e.NoSources != "" {
		fmt.Fprintf(b, "\nSources: %s.\n", strings.TrimSuffix(e.NoSources, "."))
	}
	fmt.Fprintf(b, "\nWhy: %s\n", e.Why)
	for _, note := range e.Notes {
		fmt.Fprintf(b, "Note: %s\n", note)
	}
	for _, effect := range e.Effects {
		fmt.Fprintf(b, "Event: %s\n", effect)
	}
	writeEvents(b, events)
	_, err := io.WriteString(out, b.String())
	return err
}

func describeInstance(b *strings.Builder, e instancestate.Explanation, now time.Time) {
	table := tabwriter.NewWriter(b, 0, 0, columnGap, ' ', 0)
	row := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(table, "  %s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	if e.Label == "" {
		row("label", "%s is not set", e.LabelKey)
	} else {
		row("label", "%s=%s", e.LabelKey, e.Label)
	}
	if e.Group != "" {
		row("group", "%s", e.Group)
	}
	switch n := len(e.Instances); {
	case n > mostInstances:
		row("instances", "%s and %d more", strings.Join(e.Instances[:mostInstances], ", "), n-mostInstances)
	case n > 0:
		row("instances", "%s", strings.Join(e.Instances, ", "))
	default:
		row("instances", "none yet")
	}
	if v := e.Event; v != nil {
		ago := ""
		if at, err := time.Parse(time.RFC3339, v.Time); err == nil {
			ago = ", " + duration.HumanDuration(now.Sub(at)) + " ago"
		}
		what := v.DetailType + " of " + v.Source
		if v.DetailType == "" {
			what = "its content is no longer known"
		}
		row("event", "%s: %s, %s%s", v.ID, what, v.Time, ago)
		if v.Account != "" || v.Region != "" {
			row("event of", "account %s, region %s", cmp.Or(v.Account, "-"), cmp.Or(v.Region, "-"))
		}
		source := e.Source
		if source == "" {
			source = "not known: a repair from status.instanceState, or an event from before this annotation"
		}
		row("source", "%s", source)
	}
	row("region", "%s", known(e.Region, e.RegionBy))
	row("account", "%s", known(e.Account, e.AccountBy))
	_ = table.Flush() // A strings.Builder does not fail.
}

func writeAligned(b *strings.Builder, rows [][]string) {
	table := tabwriter.NewWriter(b, 0, 0, columnGap, ' ', 0)
	for _, row := range rows {
		_, _ = fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	_ = table.Flush() // A strings.Builder does not fail.
}

// writeEvents prints the newest Events.
func writeEvents(b *strings.Builder, events []corev1.Event) {
	for i := range events[:min(len(events), mostEvents)] {
		event := &events[i]
		fmt.Fprintf(b, "  %s ago  %s  %s\n", duration.HumanDuration(time.Since(lastSeen(event))), event.Reason, event.Message)
	}
}

// known returns a value and who names it, or why it is not known.
func known(value, by string) string {
	if value == "" {
		return "not known: " + by
	}
	return value + ", by " + by
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}
