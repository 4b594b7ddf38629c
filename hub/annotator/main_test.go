package annotator_test

import (
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/playground/leaks"
)

// patience with real API servers on a busy machine.
const patience = 2 * time.Minute

// The management clusters of the newest and the oldest Cluster API and CAPA, and a
// workload cluster; started when a test first needs them.
var (
	newest   = controlplane.Share("capstan", "cluster-api", "cluster-api-provider-aws")
	oldest   = controlplane.Share("capstan", "cluster-api-old", "cluster-api-provider-aws-old")
	workload = controlplane.Share("cluster-api", "cluster-api-provider-aws")
)

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	os.Exit(leaks.Main(func() int {
		return controlplane.StopShared(m.Run(), os.Stderr, newest, oldest, workload)
	}))
}
