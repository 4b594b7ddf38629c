package hub_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/capstan-hub/capstan/playground/controlplane"
)

// management is the API server that the tests of this package share; each test has
// a namespace of its own.
var management *rest.Config

func TestMain(m *testing.M) {
	flag.Parse()
	if set := flag.Lookup("rapid.checks"); set.Value.String() == set.DefValue {
		// A history takes a second or two against a real API server. `make soak` asks
		// for many more.
		if err := set.Value.Set("12"); err != nil {
			panic(err)
		}
	}
	os.Exit(controlplane.StopShared(run(m), os.Stderr, withAWS))
}

func run(m *testing.M) int {
	plane, err := controlplane.Start(controlplane.Options{CRDs: controlplane.CRDs("capstan")})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := plane.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	management = plane.Config()
	return m.Run()
}
