package conformance

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/watchers"
)

const (
	namespace = "team"
	// stallTimeout of a condition that is waited for; a loaded machine is slow.
	patience = 60 * time.Second
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
	management, err = controlplane.Start(controlplane.Options{CRDs: controlplane.CRDs(
		"capstan", "cluster-api", "cluster-controller", "helm-controller", "kustomize-controller")})
	if err != nil {
		return 1, err
	}
	defer management.Stop() //nolint:errcheck // The process ends.
	workload, err = controlplane.Start(controlplane.Options{CRDs: controlplane.CRDs("helm-controller")})
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
		err = goleak.Find(before, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
			goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
			goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*clientConnReadLoop).run"),
			goleak.IgnoreAnyFunction("net/http/internal/http2.(*clientConnReadLoop).run"),
			goleak.IgnoreAnyFunction("net/http.(*http2clientConnReadLoop).run"))
	}
	return code, err
}

// start the hub; the function returned ends it.
func start() (func() error, error) {
	h, err := hub.New(hub.Options{
		Config:         management.Config(),
		AllowLoopback:  true,
		Registerer:     prometheus.NewRegistry(),
		Logger:         zap.New(zap.WriteTo(logs), zap.UseDevMode(true)),
		ClusterTimings: clusters.Timings{KindRetry: time.Second, AuthRetry: time.Second, WriteDelay: 50 * time.Millisecond},
		WatcherTimings: watchers.Timings{Check: 200 * time.Millisecond, Retry: time.Second},
	})
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
