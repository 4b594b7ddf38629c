// Playground runs a whole fleet on this machine: real control planes, the hub, and a story
// whose steps are checked.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/playground/fleet"
)

func main() {
	// A second signal ends the process at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "\nError:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var (
		once, verbose, provideGitea bool
		dir                         string
	)
	c := &cobra.Command{
		Use:   "playground",
		Short: "Run a fleet on this machine: one management and three workload clusters, and the hub",
		Long: `Start real control planes (kube-apiserver and etcd), connect the hub to them, and
run a demo: revisions that are promoted from dev to prod, an approval, an
outage of a cluster and its recovery, a rotation of all tokens, node groups that can
scale from zero, and a spot instance with an interruption notice. EC2, SQS and a NATS
JetStream, to which the hub publishes events, run in this process. Each step is checked.

With --once it prints a summary and ends; the exit code is 0 when every step passed.
Without it, the fleet stays up until Ctrl-C.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			if dir == "" {
				dir = filepath.Join(controlplane.Root(), ".playground")
			}
			options := fleet.Options{Dir: dir, Out: c.OutOrStdout(), Verbose: verbose, SetLoggers: func(logger logr.Logger) {
				ctrl.SetLogger(logger)
				klog.SetLogger(logger) // client-go logs through klog.
			}}
			if provideGitea {
				options.ProvideGitea = filepath.Join(controlplane.Root(), "hack", "gitea", "provide.sh")
			}
			return fleet.Run(c.Context(), options, play(c.Context(), once))
		},
	}
	flags := c.Flags()
	flags.BoolVar(&once, "once", false, "play the story, print its summary, and end")
	flags.StringVar(&dir, "dir", "", "directory for kubeconfigs and the hub's log; what the playground writes is removed at the end (default: .playground in the repository)")
	flags.BoolVar(&provideGitea, "provide-gitea", false, "build Gitea, or use the one that CAPSTAN_GITEA names, while the first chapters are played")
	flags.BoolVarP(&verbose, "verbose", "v", false, "show the hub's log as well")
	return c
}

// play the story. Without once the fleet stays up until the caller's context ends, by a
// signal. That is not a failure, also not of a story that it interrupts.
func play(caller context.Context, once bool) func(context.Context, *fleet.Fleet) error {
	return func(ctx context.Context, f *fleet.Fleet) error {
		f.PrintAccess()
		err := f.Play(ctx)
		if once || over(ctx) {
			return unless(over(caller) && !once, err)
		}
		f.PrintNext(ctx)
		<-ctx.Done()
		// When a part of the fleet broke, it is the context's cause.
		return errors.Join(err, unless(over(caller), context.Cause(ctx)))
	}
}

func over(ctx context.Context) bool { return ctx.Err() != nil }

func unless(excused bool, err error) error {
	if excused {
		return nil
	}
	return err
}
