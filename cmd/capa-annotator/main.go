// Capa-annotator runs only the hub's annotator: it annotates node groups with the
// capacity of one of their nodes, so that cluster-autoscaler can scale them from zero.
package main

import (
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capstan-hub/capstan/cmd/capstan/cli"
)

func main() {
	os.Exit(cli.CapaAnnotator(ctrl.SetupSignalHandler(), os.Args[1:], os.Stdout, os.Stderr))
}
