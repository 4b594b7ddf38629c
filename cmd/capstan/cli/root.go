package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/hub/awsconfig"
)

// conditionMet is the exit code of a command that worked, and whose condition (--fail-on) is met.
const conditionMet = 2

// hubCommand is the name of the command that runs the hub.
const hubCommand = "hub"

// Names under which kubectl finds its plugins: `kubectl capstan` runs the first, and the shell's completion of
// it the second.
const (
	pluginName     = "kubectl-capstan"
	completionName = "kubectl_complete-capstan"
)

// Program runs the command of a process with its arguments, the first of which is the name by which it was
// started, and returns the exit code. The names of a kubectl plugin make it one.
func Program(ctx context.Context, argv []string, out, errOut io.Writer) int {
	root, args := newRoot(), []string{}
	if len(argv) > 0 {
		args = argv[1:]
		switch strings.TrimSuffix(filepath.Base(argv[0]), ".exe") {
		case completionName:
			args = append([]string{cobra.ShellCompRequestCmd}, args...)
			fallthrough
		case pluginName:
			root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl capstan"}
		}
	}
	return execute(ctx, root, args, out, errOut)
}

// Main runs the capstan command that the arguments name and returns the exit code.
func Main(ctx context.Context, args []string, out, errOut io.Writer) int {
	return execute(ctx, newRoot(), args, out, errOut)
}

// CapaAnnotator runs capa-annotator with the arguments and returns the exit code.
func CapaAnnotator(ctx context.Context, args []string, out, errOut io.Writer) int {
	return execute(ctx, newCapaAnnotator(), args, out, errOut)
}

func execute(ctx context.Context, root *cobra.Command, args []string, out, errOut io.Writer) int {
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		if name := unknownCommand(c, args); name != "" {
			return unknown(c, name)
		}
		if flag := hubFlag(c, err); flag != "" {
			return fmt.Errorf("--%s is a flag of the command hub: the hub is started by `%s hub --%s`", flag, c.DisplayName(), flag)
		}
		return fmt.Errorf("%w (see %s --help)", err, c.Root().DisplayName())
	})
	root.SetVersionTemplate("{{.DisplayName}} {{.Version}}\n")
	root.SetArgs(append([]string{}, args...)) // When the arguments are nil, cobra reads os.Args.
	root.SetOut(out)
	root.SetErr(errOut)
	if err := root.ExecuteContext(ctx); err != nil {
		_, _ = fmt.Fprintf(errOut, "Error: %v\n", err)
		var coded interface{ ExitCode() int }
		if errors.As(err, &coded) {
			return coded.ExitCode()
		}
		return 1
	}
	return 0
}

// unknownCommand returns the argument that stands where a command has the name of a
// subcommand, and names none; empty if there is none. cobra parses the flags first, and a flag
// of the subcommand is unknown without the subcommand.
func unknownCommand(c *cobra.Command, args []string) string {
	_, rest, err := c.Root().Find(args)
	if err != nil || !c.HasSubCommands() || len(rest) == 0 || strings.HasPrefix(rest[0], "-") {
		return ""
	}
	return rest[0]
}

// hubFlag returns the name of the unknown flag that err reports, if no command was given and it is a
// flag of the command hub; else it is empty. Deployments of earlier versions started the hub by the
// flags alone.
func hubFlag(c *cobra.Command, err error) string {
	var unknown *pflag.NotExistError
	if c.HasParent() || !errors.As(err, &unknown) {
		return ""
	}
	of, _, findErr := c.Find([]string{hubCommand})
	if findErr != nil || of.Flags().Lookup(unknown.GetSpecifiedName()) == nil {
		return ""
	}
	return unknown.GetSpecifiedName()
}

// suggestionDistance is the number of letters by which a misspelt command may differ from a suggested one.
const suggestionDistance = 2

// unknown is the error of a name that is no command of c. It suggests similar ones.
func unknown(c *cobra.Command, name string) error {
	c.SuggestionsMinimumDistance = suggestionDistance
	suggestion := ""
	if similar := c.SuggestionsFor(name); len(similar) > 0 {
		suggestion = ": did you mean " + strings.Join(similar, " or ") + "?"
	}
	return fmt.Errorf("unknown command %q for %q%s (see %s --help)", name, c.CommandPath(), suggestion, c.CommandPath())
}

// noCommand accepts no argument: where a command has commands, it is a command that does not exist.
func noCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return unknown(c, args[0])
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "capstan",
		Short: "Promote applications across the clusters of a Cluster API management cluster",
		Long: `Capstan is one controller, the hub, in a Cluster API management cluster that serves every
workload cluster. The command hub runs it; the other commands show and change what it does.`,
		Version:       version(),
		Args:          noCommand,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.AddCommand(newHub(), newStatus(), newExplain(), newAnnotator("capstan annotator"), newSign(), newAWSEventing(), newVersion())
	root.AddCommand(actionCommands()...)
	return root
}

// newHub returns the command that runs the hub.
func newHub() *cobra.Command {
	s := defaultSettings()
	c := &cobra.Command{
		Use:   hubCommand + " [flags]",
		Short: "Run the hub in a Cluster API management cluster",
		Long: `Run the hub until SIGTERM or SIGINT. It serves the workload clusters of one management
cluster. The exit code is 0 after a signal, and 1 when the hub could not start or failed.`,
		Example: `  capstan hub --leader-elect --events-addr=http://notification-controller.flux-system/
  capstan hub --kubeconfig=$HOME/.kube/management --namespace=team-a --log-encoding=console`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return run(c.Context(), "capstan", s, c.ErrOrStderr(), func(o hub.Options) (program, error) { return hub.New(o) })
		},
	}
	s.register(c.Flags())
	return c
}

// program runs until its context ends.
type program interface{ Start(context.Context) error }

// run starts the program that wire returns and waits until it ends.
func run(ctx context.Context, name string, s *settings, logs io.Writer, wire func(hub.Options) (program, error)) error {
	options, err := s.options()
	if err != nil {
		return err
	}
	logger := s.logger(logs)
	ctrl.SetLogger(logger)
	// client-go logs through klog.
	klog.SetLogger(logger)
	options.Logger, options.Diagnostics.Level = logger, s.logLevel

	if options.Config, err = s.config(); err != nil {
		return err
	}
	rest.AddUserAgent(options.Config, name+"/"+version())
	aws, err := awsconfig.Load(ctx, awsconfig.Options{Auth: s.annotator.parsedAuth, Version: version()})
	if err != nil {
		return err
	}
	defer aws.Close()
	options.AWS = aws
	if s.annotator.on {
		options.Annotator.AWS = aws
	}
	p, err := wire(options)
	if err != nil {
		return fmt.Errorf("starting %s: %w", name, err)
	}
	logger.Info("starting", "program", name, "version", version(), "server", options.Config.Host)
	if err := p.Start(ctx); err != nil {
		return fmt.Errorf("running %s: %w", name, err)
	}
	logger.Info("stopped")
	return nil
}
