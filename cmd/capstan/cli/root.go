package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capstan-hub/capstan/hub"
)

// Main runs the command that the arguments name; it returns the exit code.
func Main(ctx context.Context, args []string, out, errOut io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errOut)
	if err := root.ExecuteContext(ctx); err != nil {
		_, _ = fmt.Fprintf(errOut, "Error: %v\n", err)
		return 1
	}
	return 0
}

func newRoot() *cobra.Command {
	s := defaultSettings()
	root := &cobra.Command{
		Use:   "capstan [flags]",
		Short: "Run the hub in a Cluster API management cluster",
		Long: `Capstan is one controller, installed once in a Cluster API management cluster,
that looks after every workload cluster from there. Without a command it runs the
hub until it is told to stop (SIGTERM, SIGINT).`,
		Example: `  capstan --leader-elect --events-addr=http://notification-controller.flux-system/
  capstan --kubeconfig=$HOME/.kube/management --namespace=team-a --log-encoding=console`,
		Version:       version(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			return run(c.Context(), s, c.ErrOrStderr())
		},
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return fmt.Errorf("%w (see capstan --help)", err)
	})
	root.SetVersionTemplate("capstan {{.Version}}\n")
	s.register(root.Flags())
	root.AddCommand(newSign(), newExplain(), newVersion())
	return root
}

// run is the hub's life.
func run(ctx context.Context, s *settings, logs io.Writer) error {
	options, err := s.options()
	if err != nil {
		return err
	}
	logger := s.logger(logs)
	ctrl.SetLogger(logger)
	// client-go logs through klog.
	klog.SetLogger(logger)
	options.Logger = logger

	if options.Config, err = s.config(); err != nil {
		return err
	}
	h, err := hub.New(options)
	if err != nil {
		return fmt.Errorf("starting the hub: %w", err)
	}
	logger.Info("starting", "version", version(), "server", options.Config.Host)
	if err := h.Start(ctx); err != nil {
		return fmt.Errorf("running the hub: %w", err)
	}
	logger.Info("stopped")
	return nil
}
