// Capa-annotator is the annotator of the hub alone: it writes on node groups what a
// node of them would be, so that cluster-autoscaler can scale them from zero.
package main

import (
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capstan-hub/capstan/cmd/capstan/cli"
)

func main() {
	os.Exit(cli.CapaAnnotator(ctrl.SetupSignalHandler(), os.Args[1:], os.Stdout, os.Stderr))
}
