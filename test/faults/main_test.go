package faults

import (
	"fmt"
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/playground/leaks"
)

// patience is the timeout for conditions; a loaded machine is slow: on an Intel Xeon, with the race detector and three other packages,
// one condition needed more than a minute.
const patience = 2 * time.Minute

// polling is the interval between checks of a condition.
const polling = 50 * time.Millisecond

var (
	management *controlplane.ControlPlane
	// admin is the administrator's client of the management cluster.
	admin client.Client
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(polling)
	var err error
	management, err = controlplane.Start(controlplane.Options{CRDs: controlplane.CRDs(
		"capstan", "cluster-api", "cluster-controller", "helm-controller", "kustomize-controller")})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = management.Stop() }()
	scheme := hub.Scheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme} {
		if err := add(scheme); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	config := management.Config()
	config.QPS = -1 // The test declares whole fleets.
	if admin, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return leaks.Main(m.Run)
}
