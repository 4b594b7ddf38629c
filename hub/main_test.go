package hub_test

import (
	"os"
	"testing"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/playground/leaks"
)

// withAWS is a management cluster with Cluster API and its provider for AWS.
var withAWS = controlplane.Share("capstan", "cluster-api", "cluster-api-provider-aws")

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	os.Exit(leaks.Main(func() int { return controlplane.StopShared(m.Run(), os.Stderr, withAWS) }))
}
