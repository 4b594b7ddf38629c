package promotions_test

import (
	"flag"
	"os"
	"testing"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/playground/leaks"
)

// management is the API server that all tests of this package share. Each test has a
// namespace of its own.
var management = controlplane.Share("capstan")

func TestMain(m *testing.M) {
	flag.Parse()
	// A history takes several seconds against a real API server.
	histories := "2"
	if soak() {
		histories = "200"
	}
	if set := flag.Lookup("rapid.checks"); set.Value.String() == set.DefValue {
		if err := set.Value.Set(histories); err != nil {
			panic(err)
		}
	}
	ctrllog.SetLogger(logr.Discard())
	os.Exit(leaks.Main(func() int { return controlplane.StopShared(stopGitea(m.Run()), os.Stderr, management) }))
}
