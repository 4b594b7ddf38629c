// Playground runs a whole fleet on this machine: real control planes, the hub,
// and a story that is played on them and checked.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/playground/fleet"
)

func main() {
	// The second signal ends the process at once, should the first not be enough.
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
		once, verbose bool
		dir           string
	)
	c := &cobra.Command{
		Use:   "playground",
		Short: "Run a fleet on this machine: one management and three workload clusters, and the hub",
		Long: `Starts real control planes (kube-apiserver and etcd), connects the hub to them,
and plays a story: revisions that travel from dev to prod, an approval, a cluster
that goes away and comes back, a rotation of all tokens, node groups that can scale
from zero and a spot instance that is taken away, by what an EC2 and an SQS in this
process say. What happened is told to a NATS JetStream in this process, too.
Each step is checked.

With --once it prints a summary and ends, with exit code 0 when every step came
out as expected. Without it, it stays up until Ctrl-C.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			if dir == "" {
				dir = filepath.Join(controlplane.Root(), ".playground")
			}
			return fleet.Run(c.Context(), fleet.Options{Dir: dir, Out: c.OutOrStdout(), Verbose: verbose}, play(c.Context(), once))
		},
	}
	flags := c.Flags()
	flags.BoolVar(&once, "once", false, "play the story, print its summary, and end")
	flags.StringVar(&dir, "dir", "", "directory for kubeconfigs and the hub's log; what is written is removed at the end (default: .playground in the repository)")
	flags.BoolVarP(&verbose, "verbose", "v", false, "show the hub's log as well")
	return c
}

// play the story. Without once the fleet stays up until asked ends, by a signal,
// which is no failure: not of a story that it cut short either.
func play(asked context.Context, once bool) func(context.Context, *fleet.Fleet) error {
	return func(ctx context.Context, f *fleet.Fleet) error {
		f.TellWhere()
		err := f.Play(ctx)
		if once || over(ctx) {
			return unless(over(asked) && !once, err)
		}
		f.TellWhat(ctx)
		<-ctx.Done()
		// When a part of the fleet broke, that is the context's cause.
		return errors.Join(err, unless(over(asked), context.Cause(ctx)))
	}
}

func over(ctx context.Context) bool { return ctx.Err() != nil }

func unless(excused bool, err error) error {
	if excused {
		return nil
	}
	return err
}
