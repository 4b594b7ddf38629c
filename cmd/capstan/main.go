// Capstan is the hub: one controller in a management cluster that serves every
// workload cluster.
package main

import (
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capstan-hub/capstan/cmd/capstan/cli"
)

func main() {
	os.Exit(cli.Program(ctrl.SetupSignalHandler(), os.Args, os.Stdout, os.Stderr))
}
