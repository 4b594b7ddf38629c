package instancestate_test

import (
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/playground/leaks"
)

// patience is the timeout of waits, for real API servers on a busy machine.
const patience = 2 * time.Minute

// The management clusters with the newest and the oldest Cluster API and CAPA, and a
// workload cluster; started when a test first needs them.
var (
	newest   = controlplane.Share("capstan", "cluster-api", "cluster-api-provider-aws")
	oldest   = controlplane.Share("capstan", "cluster-api-old", "cluster-api-provider-aws-old")
	workload = controlplane.Share("cluster-api", "cluster-api-provider-aws")
)

func TestMain(m *testing.M) {
	if name := os.Getenv(handlerName); name != "" {
		os.Exit(handle(name)) // This is the process of a handler.
	}
	ctrllog.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard()) // It warns of the tests' own transport, and logs leases.
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	os.Exit(leaks.Main(func() int {
		return controlplane.StopShared(m.Run(), os.Stderr, newest, oldest, workload)
	}))
}
