package instancestate_test

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-hub/capstan/playground/controlplane"
)

// patience with real API servers on a busy machine.
const patience = 2 * time.Minute

// The management clusters with the newest and the oldest Cluster API and CAPA, and a
// workload cluster; started when a test first needs them.
var (
	newest   = started("capstan", "cluster-api", "cluster-api-provider-aws")
	oldest   = started("capstan", "cluster-api-old", "cluster-api-provider-aws-old")
	workload = started("cluster-api", "cluster-api-provider-aws")
)

type plane struct {
	once    sync.Once
	crds    []string
	running *controlplane.ControlPlane
	err     error
}

func started(products ...string) *plane { return &plane{crds: controlplane.CRDs(products...)} }

func (p *plane) get(t testing.TB) *controlplane.ControlPlane {
	t.Helper()
	p.once.Do(func() { p.running, p.err = controlplane.Start(controlplane.Options{CRDs: p.crds}) })
	if p.err != nil {
		t.Fatal(p.err)
	}
	return p.running
}

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard()) // It warns of the tests' own transport, and tells of leases.
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	code := m.Run()
	for _, p := range []*plane{newest, oldest, workload} {
		if p.running != nil {
			if err := p.running.Stop(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = max(code, 1)
			}
		}
	}
	os.Exit(code)
}
