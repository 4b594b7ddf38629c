package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-hub/capstan/cmd/capstan/awsset"
)

// errMembers is the error of a command that cannot change a member.
var errMembers = errors.New("an account of --members cannot be changed")

// plannedChange is a Plan for users and programs.
type plannedChange struct {
	Account  string          `json:"account"`
	Region   string          `json:"region"`
	Caller   string          `json:"caller"`
	Stack    string          `json:"stack"`
	Create   bool            `json:"create,omitempty"`
	Changes  []awsset.Change `json:"changes"`
	Warnings []string        `json:"warnings,omitempty"`
	// Messages that are lost, by queue.
	Messages map[string]int `json:"messages,omitempty"`
}

func newAWSEventingApply() *cobra.Command {
	var a changeFlags
	c := &cobra.Command{
		Use:   "apply",
		Short: "Create or change the AWS resources, after showing the plan",
		Long: `Apply deploys the template that print shows, with your AWS credentials, as a CloudFormation stack in
each region of your account, and with --members and --member-role in those accounts, too. The
account with the queue is first. It shows the plan, which is that of CloudFormation's change sets,
and asks for confirmation; --yes confirms. If a stack fails, CloudFormation undoes its changes.
What was changed by hand is set back to the template. A stack that is not Capstan's is refused.

Pass all flags each time: what an option added is removed when the option is missing, and the plan
warns of it. The flag --caller-policy of print shows the permissions that you need.`,
		Example: `  capstan aws-eventing apply --regions=eu-west-1,us-east-1 --hub-role=capstan-hub --dry-run
  capstan aws-eventing apply --regions=eu-west-1 --hub-role=capstan-hub --members=444455556666 --member-role=admin
  capstan aws-eventing apply --regions=eu-west-1 --member-of=111122223333 --account=444455556666 --yes`,
		Args: cobra.NoArgs,
	}
	a.register(c, "show the plan, and change nothing")
	c.RunE = func(c *cobra.Command, _ []string) error {
		return a.change(c, "apply", a.apply)
	}
	return c
}

// apply shows the plans of the targets, and executes them when they are confirmed.
func (a *changeFlags) apply(ctx context.Context, c *cobra.Command, targets []*awsset.Target) error {
	var plans []*awsset.Plan
	defer func() {
		for _, p := range plans { // Those that were executed have nothing left.
			if err := p.Discard(ctx); err != nil {
				_, _ = fmt.Fprintf(c.ErrOrStderr(), "Warning: %v\n", err)
			}
		}
	}()
	for _, t := range targets {
		p, err := t.Plan(ctx)
		if err != nil {
			return err
		}
		plans = append(plans, p)
	}
	changes, err := writePlans(c.OutOrStdout(), a.output, plans)
	if err != nil || changes == 0 || a.dryRun {
		return err
	}
	if err := a.sure.ask(ctx, c.InOrStdin(), c.ErrOrStderr(), fmt.Sprintf("Change %d stacks?", changes)); err != nil {
		return err
	}
	plans = slices.DeleteFunc(plans, (*awsset.Plan).Empty)
	for _, p := range plans {
		if err := p.Prepare(ctx); err != nil {
			return err
		}
	}
	for _, p := range plans {
		if err := p.Execute(ctx, progress(c.ErrOrStderr(), p.Target)); err != nil {
			return err
		}
		_, _ = fmt.Fprintf(c.ErrOrStderr(), "Stack %s in %s is complete.\n", p.Stack, p.Target)
	}
	return nil
}

// changeFlags are the flags of a command that changes AWS.
type changeFlags struct {
	awsFlags
	sure   confirmation
	dryRun bool
}

func (a *changeFlags) register(c *cobra.Command, dryRun string) {
	a.awsFlags.register(c, changeTimeout)
	c.Flags().BoolVar(&a.dryRun, "dry-run", false, dryRun)
	a.sure.register(c.Flags())
}

// change runs a change of the targets. Without a way to confirm it, nothing is called.
func (a *changeFlags) change(c *cobra.Command, verb string, do func(ctx context.Context, c *cobra.Command, targets []*awsset.Target) error) error {
	if !a.dryRun {
		if err := a.sure.possible(c.InOrStdin()); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(c.Context(), a.timeout)
	defer cancel()
	session, targets, err := a.targets(ctx, c.ErrOrStderr(), verb)
	if err != nil {
		return err
	}
	defer session.Close()
	return do(ctx, c, targets)
}

// targets opens a session, and returns the targets of a change. A member for which there is no
// role is only reported; one whose role cannot be assumed is an error, before anything is changed.
func (a *awsFlags) targets(ctx context.Context, warnings io.Writer, verb string) (*awsset.Session, []*awsset.Target, error) {
	session, err := a.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	targets, rows := session.Targets(ctx)
	var errs []error
	for _, r := range rows {
		if r.Bad() {
			errs = append(errs, fmt.Errorf("%w: account %s, region %s: %s: %s", errMembers, r.Account, r.Region, r.Problem, r.Fix))
			continue
		}
		_, _ = fmt.Fprintf(warnings, "Account %s, region %s is not included, because --member-role is not set: run `%s` with its credentials.\n",
			r.Account, r.Region, strings.Replace(strings.TrimSuffix(r.Fix, " # with credentials of "+r.Account), " check ", " "+verb+" ", 1))
	}
	if len(errs) > 0 {
		session.Close()
		return nil, nil, errors.Join(errs...)
	}
	return session, targets, nil
}

// progress writes the events of a stack.
func progress(out io.Writer, t *awsset.Target) func(string) {
	return func(text string) {
		_, _ = fmt.Fprintf(out, "%s %s: %s\n", t.Account, t.Region, text)
	}
}

// writePlans writes the plans, and returns the number of those that change something.
func writePlans(out io.Writer, output string, plans []*awsset.Plan) (int, error) {
	changes := 0
	all := []plannedChange{}
	for _, p := range plans {
		if !p.Empty() {
			changes++
		}
		all = append(all, plannedChange{
			Account: p.Account, Region: p.Region, Caller: p.Caller, Stack: p.Stack, Create: p.Create, Changes: append([]awsset.Change{}, p.Changes...), Warnings: p.Warnings,
		})
	}
	if output == outputJSON {
		return changes, writeJSON(out, all)
	}
	for _, one := range all {
		what := "is changed"
		switch {
		case len(one.Changes) == 0:
			what = "has no changes"
		case one.Create:
			what = "is created"
		}
		if err := writeChanges(out, one, what); err != nil {
			return changes, err
		}
	}
	return changes, nil
}

// writeChanges writes one plan.
func writeChanges(out io.Writer, one plannedChange, what string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Account %s, region %s, as %s: stack %s %s", one.Account, one.Region, one.Caller, one.Stack, what)
	if len(one.Changes) == 0 {
		b.WriteString(".\n")
	} else {
		b.WriteString(":\n")
	}
	for _, c := range one.Changes {
		fmt.Fprintf(&b, "  %-6s  %-24s  %s", c.Action, c.Type, c.Logical)
		if c.Physical != "" {
			fmt.Fprintf(&b, " (%s)", c.Physical)
		}
		if c.Replacement != "" && c.Replacement != "False" {
			fmt.Fprintf(&b, "  Replacement: %s", c.Replacement)
		}
		b.WriteString("\n")
	}
	for _, w := range one.Warnings {
		fmt.Fprintf(&b, "  Warning: %s\n", w)
	}
	_, err := io.WriteString(out, b.String())
	return err
}
