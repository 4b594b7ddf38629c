package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/hub/annotator"
	"github.com/capstan-hub/capstan/hub/annotator/annotation"
	"github.com/capstan-hub/capstan/hub/annotator/catalogue"
	"github.com/capstan-hub/capstan/hub/annotator/publication"
)

const (
	// mostEvents is how many Events of a node group are printed, newest first.
	mostEvents = 5

	columnGap = 2
)

// whose are the texts of the column WHOSE.
var whose = map[annotation.Whose]string{
	annotation.Ours:    "the hub's",
	annotation.Theirs:  "another writer's, which the hub keeps",
	annotation.Changed: "changed since the hub wrote it",
}

// nodeGroupOptions are the values of flags of the hub.
type nodeGroupOptions struct{ defaultRegion, hubNamespace, hubName string }

func newExplainNodeGroup(kind schema.GroupKind) *cobra.Command {
	var region string
	c := &cobra.Command{
		Use:   strings.ToLower(kind.Kind) + " NAMESPACE/NAME|NAME",
		Short: "Explain why a " + kind.Kind + " has capacity annotations or not",
		Long: `Explain which instance types and region a ` + kind.Kind + ` has, who wrote each of its
capacity annotations, and in one sentence why it has them or not. The command reads the
objects of Cluster API in the management cluster and their Events, and the ConfigMap
capstan-catalogue of the hub, which you need permission to read; it calls neither EC2 nor a workload cluster. The exit code is 0 when
there is an explanation, 1 when there is not.`,
		Example: `  capstan explain ` + strings.ToLower(kind.Kind) + ` fleet/workers`,
		Args:    cobra.ExactArgs(1),
	}
	c.Flags().StringVar(&region, "default-region", "", "value of the hub's flag --default-region")
	home := hubNamespace(c.Flags(), "the state of its catalogue of EC2 is read there")
	hubName := c.Flags().String("hub-name", hub.DefaultName, "value of --hub-name of the hub that serves the namespace, with several hubs in the management cluster")
	f := newClusterFlags(c)
	c.RunE, c.ValidArgsFunction = f.explaining(func(ctx context.Context, of *cluster, key client.ObjectKey, out, errOut io.Writer) error {
		return explainNodeGroup(ctx, of, kind, key, nodeGroupOptions{region, *home, *hubName}, out, errOut)
	}), f.oneName(kind)
	return c
}

func explainNodeGroup(ctx context.Context, c *cluster, kind schema.GroupKind, key client.ObjectKey, o nodeGroupOptions, out, errOut io.Writer) error {
	group, err := readAny(ctx, c, kind, key)
	if err != nil {
		return err
	}
	events, err := eventsOf(ctx, c, group)
	if err != nil {
		// The rest is useful without them.
		_, _ = fmt.Fprintf(errOut, "The Events of %s %s are missing: %v\n", kind.Kind, key, err)
	}
	e, err := annotator.Explain(ctx, c, group, o.defaultRegion, events)
	if err != nil {
		return fmt.Errorf("reading the objects that %s %s references: %w", kind.Kind, key, err)
	}
	return writeNodeGroup(out, kind.Kind+" "+key.String(), e, catalogueOf(ctx, c, e, o, time.Now()), events)
}

// catalogueOf returns what the hub's catalogue of EC2 knows of the region of a node group; empty without
// a region.
func catalogueOf(ctx context.Context, c client.Reader, e annotator.Explanation, o nodeGroupOptions, now time.Time) string {
	if e.Region == "" {
		return ""
	}
	at := o.hubNamespace + "/" + publication.NameOf(o.hubName)
	state, err := publication.Read(ctx, c, o.hubNamespace, o.hubName)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("not known: there is no ConfigMap %s; set --hub-namespace and --hub-name, or check that the hub runs with --annotator and has the Role capstan-catalogue", at)
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("not known: you need the verb get on ConfigMap %s", at)
	case err != nil:
		return fmt.Sprintf("not known: reading ConfigMap %s: %v", at, err)
	}
	region := slices.IndexFunc(state.Regions, func(r catalogue.RegionState) bool { return r.Name == e.Region })
	if region < 0 {
		return "the hub has not queried the region since it leads"
	}
	r := state.Regions[region]
	text := "never listed"
	if !r.Listed.IsZero() {
		text = fmt.Sprintf("listed %s ago, %d types", duration.HumanDuration(now.Sub(r.Listed)), r.Types)
	}
	for _, f := range r.Failing {
		// The hub falls back on its own identity, which has an empty ARN.
		if f.All || f.Role == e.RoleARN || f.Role == "" {
			text += fmt.Sprintf("; failing for %s: %s", duration.HumanDuration(now.Sub(f.Since)), f.Message)
		}
	}
	return text
}

// eventsOf returns the Events of an object, newest first.
func eventsOf(ctx context.Context, reader client.Reader, of *unstructured.Unstructured) ([]corev1.Event, error) {
	var list corev1.EventList
	if err := reader.List(ctx, &list, client.InNamespace(of.GetNamespace()), client.MatchingFields{"involvedObject.uid": string(of.GetUID())}); err != nil {
		return nil, err
	}
	slices.SortStableFunc(list.Items, func(a, b corev1.Event) int { return lastSeen(&b).Compare(lastSeen(&a)) })
	return list.Items, nil
}

// lastSeen is when an Event was created or last repeated, for both Event APIs.
func lastSeen(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	}
	return e.CreationTimestamp.Time
}

func writeNodeGroup(out io.Writer, name string, e annotator.Explanation, catalogue string, events []corev1.Event) error {
	b := &strings.Builder{}
	b.WriteString(name)
	if e.Cluster != "" {
		b.WriteString(" of Cluster " + e.Cluster)
	}
	b.WriteString("\n")
	if len(e.InstanceTypes) > 0 {
		fmt.Fprintf(b, "  made of  %s\n", strings.Join(e.InstanceTypes, ", "))
	}
	if e.Region != "" {
		fmt.Fprintf(b, "  region   %s, by %s\n", e.Region, e.RegionBy)
	}
	if catalogue != "" {
		fmt.Fprintf(b, "  catalogue of %s: %s\n", e.Region, catalogue)
	}
	switch {
	case e.RoleRefused != "":
		fmt.Fprintf(b, "  role     the hub's own identity: %s\n", e.RoleRefused)
	case e.Role != "":
		fmt.Fprintf(b, "  role     %s\n", e.Role)
	}
	if len(e.Values) > 0 {
		b.WriteString("\n")
		table := tabwriter.NewWriter(b, 0, 0, columnGap, ' ', 0)
		fmt.Fprintln(table, "ANNOTATION\tVALUE\tWHOSE")
		for _, v := range e.Values {
			fmt.Fprintf(table, "%s\t%s\t%s\n", v.Key, v.Value, whose[v.Whose])
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	fmt.Fprintf(b, "\nWhy: %s\n", e.Why)
	writeEvents(b, events)
	_, err := io.WriteString(out, b.String())
	return err
}
