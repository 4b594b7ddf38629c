package e2e

import (
	"fmt"
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capstan-hub/capstan/cmd/capstan/cli"
)

const (
	// asCapstan in the environment makes this test's binary the program itself.
	asCapstan = "CAPSTAN_E2E_AS_PROGRAM"

	// patience is the timeout of waits: a loaded machine is slow, and the hub waits a minute
	// before it retries an attempt that was killed.
	patience = 3 * time.Minute
	polling  = 50 * time.Millisecond
)

func TestMain(m *testing.M) {
	if os.Getenv(asCapstan) != "" {
		os.Exit(cli.Main(ctrl.SetupSignalHandler(), os.Args[1:], os.Stdout, os.Stderr))
	}
	if os.Getenv("CAPSTAN_E2E") == "" && os.Getenv("CAPSTAN_SOAK") == "" {
		fmt.Println("run by `make e2e`")
		os.Exit(0)
	}
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(polling)
	os.Exit(m.Run())
}

// The parts share one world, in this order: it takes longer to start than they do.
func TestEndToEnd(t *testing.T) {
	w := newWorld(t)
	w.part("a revision is promoted by pull requests", (*world).revisionIsPromoted)
	w.part("the hub is killed during promotions", (*world).hubIsKilled)
	w.part("a revision goes through the waves of a fleet", (*world).revisionGoesInWaves)
	w.part("a revision is promoted through proxies only", (*world).revisionGoesThroughProxies)
}
