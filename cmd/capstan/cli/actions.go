package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/hub/useraction"
	"github.com/capstan-hub/capstan/internal/promotions"
)

// Values of --dry-run, as kubectl has them.
const (
	dryRunNone   = "none"
	dryRunServer = "server"
)

var (
	actionOutputs = []string{outputName, outputJSON, outputYAML}
	dryRuns       = []string{dryRunNone, dryRunServer}
)

// mostRevisions is how many revisions of a Pipeline are searched for the one to promote.
const mostRevisions = 100000

// actionCommand is a command that does an action of users.
type actionCommand struct {
	action *useraction.Action
	// use, long and example are the texts of the help; the effect and the record of the action follow long.
	use, long, example string
	// minArgs is 2 if the environment is required.
	minArgs, maxArgs int
}

// actionCommands are the commands of the actions. To override a gate is for the dashboard and kubectl: it is rare,
// and its page shows what the gate says.
func actionCommands() []*cobra.Command {
	const (
		onPromotion = `PIPELINE is NAMESPACE/NAME, or NAME with -n. ENVIRONMENT may be omitted where this is possible
for the newest promotion into one environment only.`
		onPipeline = `PIPELINE is NAMESPACE/NAME, or NAME with -n.`
	)
	var all []*cobra.Command
	for _, a := range []actionCommand{
		{action: useraction.Find(useraction.Approve), use: "PIPELINE [ENVIRONMENT]", minArgs: 1, maxArgs: 2,
			long:    "Approve the newest promotion of a Pipeline into an environment, in your own name. " + onPromotion,
			example: "  capstan approve apps/shop\n  capstan approve shop prod -n apps --revision=1.2.0 --comment=\"release board, 14 May\""},
		{action: useraction.Find(useraction.Reject), use: "PIPELINE [ENVIRONMENT] --comment=TEXT", minArgs: 1, maxArgs: 2,
			long:    "Reject the newest promotion of a Pipeline into an environment, in your own name. " + onPromotion,
			example: "  capstan reject apps/shop prod --comment=\"breaks the invoices\""},
		{action: useraction.Find(useraction.Retry), use: "PIPELINE [ENVIRONMENT]", minArgs: 1, maxArgs: 2,
			long:    "Start the newest promotion of a Pipeline into an environment again, after it ended without success. " + onPromotion,
			example: "  capstan retry apps/shop prod"},
		{action: useraction.Find(useraction.Suspend), use: "PIPELINE", minArgs: 1, maxArgs: 1,
			long: "Suspend a Pipeline. " + onPipeline, example: "  capstan suspend apps/shop"},
		{action: useraction.Find(useraction.Resume), use: "PIPELINE", minArgs: 1, maxArgs: 1,
			long: "Resume a suspended Pipeline. " + onPipeline, example: "  capstan resume apps/shop"},
		{action: useraction.Find(useraction.Promote), use: "PIPELINE ENVIRONMENT --revision=REVISION --reason=TEXT", minArgs: 2, maxArgs: 2,
			long:    "Request the promotion of a revision of a Pipeline into an environment, in your own name. " + onPipeline,
			example: "  capstan promote apps/shop prod --revision=1.2.1 --reason=\"hotfix for incident 4711\""},
		{action: useraction.Find(useraction.Rollback), use: "PIPELINE ENVIRONMENT --reason=TEXT", minArgs: 2, maxArgs: 2,
			long:    "Request that an environment of a Pipeline returns to the revision that succeeded there before, in your own name. " + onPipeline,
			example: "  capstan rollback apps/shop prod --reason=\"errors since 1.2.0\""},
	} {
		all = append(all, a.command())
	}
	return all
}

// actionFlags are the values of the flags of an action.
type actionFlags struct {
	comment, revision string
	output, dryRun    string
}

// shorts are the one-line helps.
var shorts = map[string]string{
	useraction.Approve:  "Approve a promotion that waits for an approval",
	useraction.Reject:   "Reject a promotion that has not begun",
	useraction.Retry:    "Start a promotion again that failed or was rejected",
	useraction.Suspend:  "Suspend the promotions of a Pipeline",
	useraction.Resume:   "Resume the promotions of a Pipeline",
	useraction.Promote:  "Request the promotion of a revision into an environment",
	useraction.Rollback: "Request that an environment returns to the revision before",
}

func (a actionCommand) command() *cobra.Command {
	var given actionFlags
	c := &cobra.Command{
		Use:   a.action.Name + " " + a.use,
		Short: shorts[a.action.Name],
		Long: a.long + "\n\n" + a.action.Effect + "\nIt writes " + a.action.Record + ".\n\n" +
			fmt.Sprintf("You need the rights of the ClusterRole %s in the namespace; docs/cli.md has the table.\n", a.action.Role) +
			"The exit code is 0 when it was written, 1 when it was refused or failed.",
		Example: a.example,
		Args:    cobra.RangeArgs(a.minArgs, a.maxArgs),
	}
	if a.minArgs == a.maxArgs {
		c.Args = cobra.ExactArgs(a.minArgs)
	}
	flags := c.Flags()
	if a.action.OnPromotion {
		flags.StringVar(&given.revision, "revision", "", "revision that you expect: the action is refused if the newest promotion is for another one")
	}
	if a.action.Name == useraction.Promote {
		flags.StringVar(&given.revision, "revision", "", "revision to promote; the Pipeline must know it")
	}
	if a.action.Comment.Label != "" {
		name, text := "comment", "comment for the record, at most %d characters"
		if !a.action.OnPromotion {
			name, text = "reason", "reason for the record, at most %d characters"
		}
		if a.action.Comment.Required {
			text += "; required"
		}
		flags.StringVar(&given.comment, name, "", fmt.Sprintf(text, a.action.Comment.Max))
	}
	flags.StringVarP(&given.output, "output", "o", "", "print the written object in place of the sentences: "+strings.Join(actionOutputs, ", "))
	flags.StringVar(&given.dryRun, "dry-run", dryRunNone, "none, or server: the API server judges the request, and does not store it")
	f := newClusterFlags(c)
	c.ValidArgsFunction = f.subjects(a.action)
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(actionOutputs, cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("dry-run", cobra.FixedCompletions(dryRuns, cobra.ShellCompDirectiveNoFileComp))
	c.RunE = func(c *cobra.Command, args []string) error {
		if given.output != "" && !slices.Contains(actionOutputs, given.output) {
			return fmt.Errorf("--output: %q is not one of %s", given.output, strings.Join(actionOutputs, ", "))
		}
		if !slices.Contains(dryRuns, given.dryRun) {
			return fmt.Errorf("--dry-run: %q is not one of %s", given.dryRun, strings.Join(dryRuns, ", "))
		}
		given.comment = strings.TrimSpace(given.comment)
		if a.action.Comment.Required && given.comment == "" {
			flag := "--reason"
			if a.action.OnPromotion {
				flag = "--comment"
			}
			return fmt.Errorf("%s is required: it is part of the record", flag)
		}
		of, err := f.connect()
		if err != nil {
			return err
		}
		key, err := of.key(args[0])
		if err != nil {
			return err
		}
		environment := ""
		if len(args) > 1 {
			environment = args[1]
		}
		ctx, cancel := context.WithTimeout(c.Context(), requestTimeout)
		defer cancel()
		return of.act(ctx, a.action, key, environment, given, c.OutOrStdout())
	}
	return c
}

// act does an action and prints what it did.
func (c *cluster) act(ctx context.Context, a *useraction.Action, key types.NamespacedName, environment string, given actionFlags, out io.Writer) error {
	of, err := promotions.OfName(ctx, c, key)
	if err != nil && (a.OnPromotion || a.Parts > 0) {
		return c.failed(err, access{a.Name + " " + key.String(), "list", "promotions.capstan.dev", key.Namespace, roleToRead(a)})
	}
	o := &useraction.Order{Action: a, Input: useraction.Input{Comment: given.comment, Revision: given.revision}}
	if a.OnPromotion {
		o.Subject, err = promotionOf(a, of, key, environment, given.revision)
	} else {
		o.Subject, err = c.pipelineOf(ctx, a, key, environment)
	}
	if err != nil {
		return err
	}
	if r := a.Refuse(of, o.Subject); r != nil {
		if !a.OnPromotion && a.Parts == 0 && r.Done { // It is suspended or resumed already.
			if given.output != "" {
				return printObject(out, o.Subject.Pipeline, given.output)
			}
			_, err := fmt.Fprintf(out, "Nothing to do for Pipeline %s: %s\n", key, r.Text)
			return err
		}
		return refusal(a, key, r)
	}
	o.Input.Newest = useraction.NewestNumber(of, o.Subject)
	if err := check(a, of, o); err != nil {
		return err
	}
	if o.By, err = c.user(ctx); err != nil {
		return err
	}
	var own client.Client = c.WithWatch
	if given.dryRun == dryRunServer {
		own = client.NewDryRunClient(own)
	}
	written, err := useraction.Do(ctx, own, o, func(fresh *useraction.Subject, another bool) error {
		if another {
			return refusedError{fmt.Sprintf("cannot %s: %s was deleted and created again meanwhile: check it and try again", a.Name, key)}
		}
		if r := a.Refuse(of, fresh); r != nil {
			return refusal(a, key, r)
		}
		return nil
	})
	if err != nil {
		return c.notWritten(a, key, err)
	}
	if given.output != "" {
		return printObject(out, written, given.output)
	}
	_, err = io.WriteString(out, saidOf(o, of, key, written, given.dryRun == dryRunServer))
	return err
}

// roleToRead returns the ClusterRole that reads what an action needs.
func roleToRead(a *useraction.Action) string {
	if a.OnPromotion {
		return a.Role
	}
	return viewerRole
}

// newestInto returns the newest promotion into each environment, by the names of the environments.
func newestInto(of []capstanv1.Promotion) []*capstanv1.Promotion {
	var newest []*capstanv1.Promotion
	for i := range of {
		p := &of[i]
		if useraction.NewestInto(of, p.Namespace, p.Spec.Pipeline.Name, p.Spec.Environment) == p {
			newest = append(newest, p)
		}
	}
	slices.SortFunc(newest, func(a, b *capstanv1.Promotion) int { return cmp.Compare(a.Spec.Environment, b.Spec.Environment) })
	return newest
}

// promotionOf returns the newest promotion into an environment; without an environment the only one to which the
// action can be done.
func promotionOf(a *useraction.Action, of []capstanv1.Promotion, key types.NamespacedName, environment, revision string) (*useraction.Subject, error) {
	newest := newestInto(of)
	if len(newest) == 0 {
		return nil, fmt.Errorf("cannot %s: there is no promotion of a Pipeline %s: `capstan status -n %s` lists the Pipelines", a.Name, key, key.Namespace)
	}
	var possible []*capstanv1.Promotion
	var names, why []string
	for _, p := range newest {
		name := p.Spec.Environment
		names = append(names, name)
		if name == environment {
			possible = []*capstanv1.Promotion{p}
			break
		}
		if environment != "" {
			continue
		}
		if r := a.Refuse(of, &useraction.Subject{Promotion: p}); r != nil {
			why = append(why, name+": "+r.Text)
		} else {
			possible = append(possible, p)
		}
	}
	switch {
	case environment != "" && len(possible) == 0:
		return nil, fmt.Errorf("cannot %s: Pipeline %s has no promotion into environment %q: it has promotions into %s", a.Name, key, environment, strings.Join(names, ", "))
	case len(possible) == 0:
		return nil, fmt.Errorf("cannot %s a promotion of Pipeline %s:\n  %s", a.Name, key, strings.Join(why, "\n  "))
	case len(possible) > 1:
		names = names[:0]
		for _, p := range possible {
			names = append(names, p.Spec.Environment)
		}
		return nil, fmt.Errorf("cannot %s: it is possible for %d environments of Pipeline %s; name one of %s", a.Name, len(possible), key, strings.Join(names, ", "))
	}
	p := possible[0]
	if revision != "" && p.Spec.Revision != revision {
		return nil, fmt.Errorf("cannot %s: the newest promotion of Pipeline %s into %s is for %s, not for %s: check it with `capstan explain pipeline %s`",
			a.Name, key, p.Spec.Environment, p.Spec.Revision, revision, key)
	}
	return &useraction.Subject{Promotion: p}, nil
}

// pipelineOf reads the Pipeline of an action on it, or on an environment of it.
func (c *cluster) pipelineOf(ctx context.Context, a *useraction.Action, key types.NamespacedName, environment string) (*useraction.Subject, error) {
	p := &pipelinesv1.Pipeline{}
	switch err := c.Get(ctx, key, p); {
	case apierrors.IsNotFound(err):
		return nil, noPipeline(c, key)
	case err != nil:
		return nil, c.failed(err, access{a.Name + " " + key.String(), "get", "pipelines.pipelines.weave.works", key.Namespace, viewerRole})
	}
	s := &useraction.Subject{Pipeline: p, Environment: environment}
	if a.Parts == 0 {
		return s, nil
	}
	s.Pipeline = p.Shown() // A wave is an environment.
	if s.Index() < 0 {
		var names []string
		for i := range s.Pipeline.Spec.Environments {
			names = append(names, s.Pipeline.Spec.Environments[i].Name)
		}
		return nil, fmt.Errorf("cannot %s: Pipeline %s has no environment %q: it has %s", a.Name, key, environment, strings.Join(names, ", "))
	}
	return s, nil
}

// check returns why the input cannot be used; nil if it can.
func check(a *useraction.Action, of []capstanv1.Promotion, o *useraction.Order) error {
	var revisions []useraction.Revision
	if a.Name == useraction.Promote {
		revisions = useraction.Revisions(of, o.Subject, mostRevisions)
		if !slices.ContainsFunc(revisions, func(r useraction.Revision) bool { return r.Revision == o.Input.Revision }) {
			const shown = 10
			var names []string
			for _, r := range revisions[:min(len(revisions), shown)] {
				names = append(names, r.Revision)
			}
			return fmt.Errorf("--revision: %q is not a revision that the Pipeline knows and does not reject: set it to one of %s", o.Input.Revision, strings.Join(names, ", "))
		}
	}
	if why := a.Check(revisions, o.Input); why != "" {
		return errors.New(why)
	}
	return nil
}

// refusedError is the error of an action that was judged, and refused.
type refusedError struct{ text string }

// Error implements error.
func (e refusedError) Error() string { return e.text }

// refusal is the error of an action that is refused.
func refusal(a *useraction.Action, key types.NamespacedName, r *useraction.Refusal) error {
	text := fmt.Sprintf("cannot %s a promotion of Pipeline %s: %s", a.Name, key, r.Text)
	if !a.OnPromotion {
		text = fmt.Sprintf("cannot %s Pipeline %s: %s", a.Name, key, r.Text)
	}
	if r.Suspended {
		text += fmt.Sprintf(" `capstan resume %s` does that.", key)
	}
	return refusedError{text}
}

// notWritten explains why an action was not written.
func (c *cluster) notWritten(a *useraction.Action, key types.NamespacedName, err error) error {
	var requested useraction.RequestedError
	if errors.As(err, &requested) {
		return fmt.Errorf("cannot %s Pipeline %s: %s", a.Name, key, requested.Text())
	}
	if why, is := useraction.PolicyDenial(err); is {
		return fmt.Errorf("cannot %s: the API server refused it: %s", a.Name, why)
	}
	verb, resource := "patch", a.Resource
	if a.Parts > 0 {
		verb = "create"
	}
	if apierrors.IsConflict(err) {
		return fmt.Errorf("cannot %s: %s changes too often: try again: %w", a.Name, key, err)
	}
	var refused refusedError
	if errors.As(err, &refused) {
		return err
	}
	return c.failed(err, access{a.Name + " " + key.String(), verb, resource, key.Namespace, a.Role})
}

// printObject prints a written object.
func printObject(out io.Writer, written client.Object, output string) error {
	kind, err := apiutil.GVKForObject(written, hub.Scheme())
	if err != nil {
		return fmt.Errorf("printing the object: %w", err)
	}
	written.GetObjectKind().SetGroupVersionKind(kind)
	var printer printers.ResourcePrinter
	switch output {
	case outputJSON:
		printer = &printers.JSONPrinter{}
	case outputYAML:
		printer = &printers.YAMLPrinter{}
	default:
		printer = &printers.NamePrinter{}
	}
	return (&printers.OmitManagedFieldsPrinter{Delegate: printer}).PrintObj(written, out)
}

// saidOf returns the sentences about an action: what was done, and what happens next.
func saidOf(o *useraction.Order, of []capstanv1.Promotion, key types.NamespacedName, written client.Object, dryRun bool) string {
	what, next := "", fmt.Sprintf("`capstan explain pipeline %s` shows what it waits for", key)
	s := o.Subject
	if p := s.Promotion; p != nil {
		what = fmt.Sprintf("%s into %s of Pipeline %s (Promotion %s)", p.Spec.Revision, p.Spec.Environment, key, p.Name)
	}
	switch o.Action.Name {
	case useraction.Approve:
		what = "Approved " + what
		if s.Promotion.Status.Phase == capstanv1.PhaseAwaitingGates {
			next = "the hub promotes it as soon as its gates are open; " + next
		} else {
			next = "the hub promotes it; " + next
		}
	case useraction.Reject:
		what = "Rejected " + what
		next = fmt.Sprintf("the revision is not promoted there again, unless a user types `capstan retry %s %s` or requests it", key, s.Promotion.Spec.Environment)
	case useraction.Retry:
		what = "Retried " + what
		if next = "its gates are judged again, then the hub promotes it; " + next; s.Promotion.Spec.Manual {
			next = fmt.Sprintf("it waits for a new approval: `capstan approve %s %s`", key, s.Promotion.Spec.Environment)
		}
	case useraction.Suspend:
		what = "Suspended Pipeline " + key.String()
		next = fmt.Sprintf("the hub takes no further step of its promotions until `capstan resume %s`", key)
	case useraction.Resume:
		what = "Resumed Pipeline " + key.String()
		next = "its promotions continue, and new revisions are promoted"
	case useraction.Promote:
		what = fmt.Sprintf("Requested %s into %s of Pipeline %s (PromotionRequest %s)", o.Input.Revision, s.Environment, key, written.GetName())
		next = "the hub creates the promotion, and judges its gates" + thenApproval(s, key)
	case useraction.Rollback:
		to := "the revision before"
		if r, err := useraction.ResolveRollback(of, s); err == nil {
			to = r.Revision
		}
		what = fmt.Sprintf("Requested the rollback of %s of Pipeline %s to %s (PromotionRequest %s)", s.Environment, key, to, written.GetName())
		next = "the hub creates the promotion" + thenApproval(s, key)
	}
	if dryRun {
		return fmt.Sprintf("%s, as %s (server dry run: nothing was stored)\n", what, o.By)
	}
	return fmt.Sprintf("%s, as %s.\nNext: %s.\n", what, o.By, next)
}

// thenApproval says that a requested promotion needs an approval; empty if it needs none.
func thenApproval(s *useraction.Subject, key types.NamespacedName) string {
	if p := s.Pipeline.PromotionFor(&s.Pipeline.Spec.Environments[s.Index()]); p != nil && p.Manual {
		return fmt.Sprintf("; it needs an approval: `capstan approve %s %s`", key, s.Environment)
	}
	return ""
}
