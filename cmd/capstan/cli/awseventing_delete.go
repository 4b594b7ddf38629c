package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-hub/capstan/cmd/capstan/awsset"
)

func newAWSEventingDelete() *cobra.Command {
	var a deleteFlags
	c := &cobra.Command{
		Use:   "delete",
		Short: "Delete the AWS resources, after showing them",
		Long: `Delete removes the CloudFormation stacks that apply created, with your AWS credentials: in each region
of your account, and with --members and --member-role in those accounts, which are first. It shows
the resources and how many messages are lost with the queues, and asks for confirmation; --yes
confirms.

It refuses while an EventingBackend of the management cluster reads the queue: delete that first, or
use --force. Without a management cluster it says that it did not check this. It refuses a stack
that is not Capstan's.`,
		Example: `  capstan aws-eventing delete --regions=eu-west-1 --dry-run
  capstan aws-eventing delete --regions=eu-west-1,us-east-1 --members=444455556666 --member-role=admin`,
		Args: cobra.NoArgs,
	}
	a.register(c, "show what would be deleted, and delete nothing")
	c.Flags().BoolVar(&a.force, "force", false, "also delete a queue that an EventingBackend reads")
	a.cluster = newClusterFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		return a.change(c, "delete", a.delete)
	}
	return c
}

// deleteFlags are the flags of delete.
type deleteFlags struct {
	changeFlags
	force   bool
	cluster *clusterFlags
}

// delete shows what the targets have, and deletes it when that is confirmed.
func (a *deleteFlags) delete(ctx context.Context, c *cobra.Command, targets []*awsset.Target) error {
	slices.Reverse(targets)
	var there []*awsset.Inventory
	var all []plannedChange
	for _, t := range targets {
		i, err := t.Inventory(ctx)
		if err != nil {
			return err
		}
		all = append(all, plannedChange{Account: t.Account, Region: t.Region, Caller: t.Caller, Stack: i.Stack, Changes: append([]awsset.Change{}, i.Resources...), Messages: i.Messages})
		if i.Exists {
			there = append(there, i)
		}
	}
	if err := writeDeletions(c.OutOrStdout(), a.output, all, there); err != nil || len(there) == 0 {
		return err
	}
	if !a.force {
		if err := unread(ctx, a.cluster.hub(), there, c.ErrOrStderr()); err != nil {
			return err
		}
	}
	if a.dryRun {
		return nil
	}
	if err := a.sure.ask(ctx, c.InOrStdin(), c.ErrOrStderr(), fmt.Sprintf("Delete %d stacks?", len(there))); err != nil {
		return err
	}
	for _, i := range there {
		if err := i.Delete(ctx, progress(c.ErrOrStderr(), i.Target)); err != nil {
			return err
		}
		_, _ = fmt.Fprintf(c.ErrOrStderr(), "Stack %s in %s is deleted.\n", i.Stack, i.Target)
	}
	return nil
}

// unread returns an error if an EventingBackend reads a queue that is to be deleted.
func unread(ctx context.Context, hub awsset.Hub, there []*awsset.Inventory, warnings io.Writer) error {
	for _, i := range there {
		backends, err := hub.Backends(ctx, i)
		if err != nil {
			_, _ = fmt.Fprintf(warnings, "Note: it was not checked whether an EventingBackend reads the queue: %v\n", err)
			return nil
		}
		if len(backends) > 0 {
			b := backends[0]
			return fmt.Errorf("EventingBackend %s/%s reads the queue of stack %s in %s: run `kubectl delete eventingbackend -n %s %s` first, or use --force", b.Namespace, b.Name, i.Stack, i.Target, b.Namespace, b.Name)
		}
	}
	return nil
}

// writeDeletions writes what is deleted.
func writeDeletions(out io.Writer, output string, all []plannedChange, there []*awsset.Inventory) error {
	if output == outputJSON {
		return writeJSON(out, all)
	}
	for _, one := range all {
		what := "does not exist"
		if slices.ContainsFunc(there, func(i *awsset.Inventory) bool { return i.Account == one.Account && i.Region == one.Region }) {
			what = "is deleted"
		}
		for _, queue := range slices.Sorted(maps.Keys(one.Messages)) {
			if n := one.Messages[queue]; n > 0 {
				one.Warnings = append(one.Warnings, fmt.Sprintf("%d messages in queue %s are lost", n, queue))
			}
		}
		if err := writeChanges(out, one, strings.TrimSpace(what)); err != nil {
			return err
		}
	}
	return nil
}
