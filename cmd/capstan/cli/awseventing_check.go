package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/capstan-hub/capstan/cmd/capstan/awsset"
)

// Time limits of the commands that call AWS.
const (
	checkTimeout  = 5 * time.Minute
	changeTimeout = 30 * time.Minute
	// testWait is how long a check waits for the hub to receive its test event.
	testWait = 30 * time.Second
)

// oneOf returns an error if the value of a flag is not among those that are allowed.
func oneOf(flag, value string, allowed []string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return fmt.Errorf("--%s: %q is not one of %s", flag, value, strings.Join(allowed, ", "))
}

func newAWSEventingCheck() *cobra.Command {
	var a awsFlags
	var test bool
	var wait time.Duration
	c := &cobra.Command{
		Use:   "check",
		Short: "Compare the AWS resources with the template, and send a test event through them",
		Long: `Check reads the resources with your AWS credentials and compares them with the template: in each
region of your account, and with --members and --member-role in those accounts. Pass the flags
that the resources were created with. It prints one row for each item, with the problem and the
command that fixes it. It changes nothing.

Then it sends a test event through EventBridge and waits until the hub has received it: the status
of the EventingBackend that reads the queue shows it. This needs permission to list
EventingBackends in the management cluster; --test-event=false omits it.

The exit code is 0 when nothing is wrong, missing or denied, and 1 otherwise. Rows with the state
skipped do not change it.`,
		Example: `  capstan aws-eventing check --regions=eu-west-1,us-east-1 --hub-role=capstan-hub
  capstan aws-eventing check --members=444455556666 --member-role=admin
  capstan aws-eventing check --member-of=111122223333 --test-event=false`,
		Args: cobra.NoArgs,
	}
	a.register(c, checkTimeout)
	c.Flags().BoolVar(&test, "test-event", true, "send a test event in each account and region")
	c.Flags().DurationVar(&wait, "wait", testWait, "how long to wait for the hub to receive a test event")
	f := newClusterFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if wait <= 0 {
			return fmt.Errorf("--wait: %s must be a positive duration", wait)
		}
		ctx, cancel := context.WithTimeout(c.Context(), a.timeout)
		defer cancel()
		session, err := a.open(ctx)
		if err != nil {
			return err
		}
		defer session.Close()
		targets, rows := session.Targets(ctx)
		for _, t := range targets {
			more, err := t.Check(ctx)
			if err != nil {
				return err
			}
			rows = append(rows, more...)
		}
		if test {
			hub := f.hub()
			for _, t := range targets {
				rows = append(rows, t.TestEvent(ctx, hub, wait))
			}
		}
		sortRows(rows, targets)
		return writeFindings(c.OutOrStdout(), a.output, rows)
	}
	return c
}

// hub returns the management cluster of the flags.
func (f *clusterFlags) hub() awsset.Hub {
	of, err := f.connect()
	if err != nil {
		return awsset.Hub{Reason: err.Error()}
	}
	hub := awsset.Hub{Reader: of}
	if of.given {
		hub.Namespace = of.namespace
	}
	return hub
}

// sortRows puts the rows of an account and region together, in the order of the targets.
func sortRows(rows []awsset.Row, targets []*awsset.Target) {
	position := func(r awsset.Row) int {
		i := slices.IndexFunc(targets, func(t *awsset.Target) bool { return t.Account == r.Account && t.Region == r.Region })
		if i < 0 {
			return len(targets)
		}
		return i
	}
	slices.SortStableFunc(rows, func(a, b awsset.Row) int { return cmp.Compare(position(a), position(b)) })
}

// writeFindings writes the rows, and returns an error if one of them is bad.
func writeFindings(out io.Writer, output string, rows []awsset.Row) error {
	bad, skipped := 0, 0
	for _, r := range rows {
		if r.Bad() {
			bad++
		}
		if r.State == awsset.Skipped {
			skipped++
		}
	}
	var err error
	if output == outputJSON {
		err = writeJSON(out, rows)
	} else {
		err = writeTable(out, rows)
		if err == nil && bad == 0 {
			_, err = fmt.Fprintf(out, "\n%d items are ok, %d were not checked.\n", len(rows)-skipped, skipped)
		}
	}
	if err == nil && bad > 0 {
		return fmt.Errorf("%d of %d items are not ok", bad, len(rows))
	}
	return err
}

func writeJSON(out io.Writer, v any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

func writeTable(out io.Writer, rows []awsset.Row) error {
	const gap = 3
	table := tabwriter.NewWriter(out, 0, 0, gap, ' ', 0)
	line := func(cells ...string) {
		for i := range cells {
			cells[i] = cmp.Or(strings.Join(strings.Fields(cells[i]), " "), "-")
		}
		_, _ = fmt.Fprintln(table, strings.Join(cells, "\t")) // Flush returns its error.
	}
	line("ACCOUNT", "REGION", "ITEM", "STATE", "PROBLEM", "FIX")
	manifests := ""
	for _, r := range rows {
		line(r.Account, r.Region, r.Item, string(r.State), r.Problem, r.Fix)
		if r.Manifest != "" && !strings.Contains(manifests, r.Manifest) {
			manifests += "---\n" + r.Manifest
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if manifests == "" {
		return nil
	}
	_, err := fmt.Fprintf(out, "\n%s", manifests)
	return err
}
