package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/playground/leaks"
	"github.com/capstan-hub/capstan/playground/ports"
	"github.com/capstan-hub/capstan/watchers"
	"github.com/capstan-hub/capstan/watchers/apps"
)

const (
	namespace = "team"
	// stallTimeout of a condition that is waited for; a loaded machine is slow.
	patience = 2 * time.Minute
)

var (
	management, workload *controlplane.ControlPlane
	// c and remote are clients of administrators.
	c, remote client.Client
	logs      = &buffer{}
)

// buffer is a log that can be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	code, err := serve(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func serve(m *testing.M) (code int, err error) {
	// The hubs start before m.Run, and m.Run replaces os.Stderr under -test.v=test2json:
	// what runs by then must not write to it.
	klog.SetLogger(logger())
	ctrllog.SetLogger(logger())
	management, err = controlplane.Start(controlplane.Options{CRDs: controlplane.CRDs(
		"capstan", "cluster-api", "cluster-controller", "cluster-inventory-api", "helm-controller", "kustomize-controller", "argo-cd")})
	if err != nil {
		return 1, err
	}
	defer management.Stop() //nolint:errcheck // The process ends.
	workload, err = controlplane.Start(controlplane.Options{CRDs: controlplane.CRDs("helm-controller", "argo-cd")})
	if err != nil {
		return 1, err
	}
	defer workload.Stop() //nolint:errcheck // The process ends.

	scheme := hub.Scheme()
	for _, add := range []func(*runtime.Scheme) error{helmv2.AddToScheme, clusterv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return 1, err
		}
	}
	if c, err = client.New(management.Config(), client.Options{Scheme: scheme}); err != nil {
		return 1, err
	}
	if remote, err = client.New(workload.Config(), client.Options{Scheme: scheme}); err != nil {
		return 1, err
	}
	for _, to := range []client.Client{c, remote} {
		for _, name := range []string{namespace, "shop", "elsewhere"} {
			if err := to.Create(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
				return 1, err
			}
		}
	}
	// Goroutines that are there before the hub are the test's own.
	before := goleak.IgnoreCurrent()
	stop, err := start()
	if err != nil {
		return 1, err
	}
	code = m.Run()
	if err := stop(); err != nil {
		return 1, err
	}
	if code == 0 {
		// Idle connections of the process's own clients, not the hub's.
		err = leaks.Find(before)
	}
	return code, err
}

// hookLeader and hookStandby are the addresses of the promotion hooks of the two
// replicas. The standby's takes weave's signatures, too.
var hookLeader, hookStandby string

// start the hub: a replica that leads and one that stands by. The function returned
// ends them.
func start() (func() error, error) {
	// The one that stands by sees that somebody else leads, for long.
	if err := c.Create(context.Background(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: hub.LeaseName},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("the-leader"), LeaseDurationSeconds: ptr.To[int32](3600), RenewTime: ptr.To(metav1.NowMicro()),
		},
	}); err != nil {
		return nil, err
	}
	var err error
	if hookLeader, err = ports.Free(); err != nil {
		return nil, err
	}
	if hookStandby, err = ports.Free(); err != nil {
		return nil, err
	}
	stopLeader, err := startReplica(hub.Options{Hook: hub.Hook{BindAddress: hookLeader}})
	if err != nil {
		return nil, err
	}
	stopStandby, err := startReplica(hub.Options{
		Hook:        hub.Hook{BindAddress: hookStandby, LegacySignatures: true},
		LeaderElect: true, LeaderElectionNamespace: namespace,
	})
	if err != nil {
		return nil, errors.Join(err, stopLeader())
	}
	stop := func() error { return errors.Join(stopStandby(), stopLeader()) }
	for _, hook := range []string{hookLeader, hookStandby} {
		if err := wait.PollUntilContextTimeout(context.Background(), 50*time.Millisecond, patience, true, func(context.Context) (bool, error) {
			connection, err := net.Dial("tcp", hook)
			if err != nil {
				return false, nil //nolint:nilerr // It does not listen yet.
			}
			return true, connection.Close()
		}); err != nil {
			return nil, errors.Join(fmt.Errorf("no promotion hook at %s: %w", hook, err), stop())
		}
	}
	return stop, nil
}

func logger() logr.Logger { return zap.New(zap.WriteTo(logs), zap.UseDevMode(true)) }

func startReplica(o hub.Options) (func() error, error) {
	o.Config = management.Config()
	o.AllowLoopback = true
	o.ClusterSecretNamespaces = []string{namespace}
	o.AppKinds = append(apps.DefaultKinds(), apps.Application)
	o.Registerer = prometheus.NewRegistry()
	o.Logger = logger()
	o.ClusterTimings = clusters.Timings{KindRetry: time.Second, AuthRetry: time.Second, WriteDelay: 50 * time.Millisecond}
	o.WatcherTimings = watchers.Timings{Check: 200 * time.Millisecond, Retry: time.Second}
	h, err := hub.New(o)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Start(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}, nil
}
