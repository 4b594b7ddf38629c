package fleet

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/playground/flux"
	"github.com/capstan-hub/capstan/watchers"
)

const (
	managementName = "management"
	// planesAtOnce: starting one keeps a core busy for three seconds.
	planesAtOnce = 2
	loopback     = "127.0.0.1:0"
)

// The hub's default timings are for networks with short failures. The story detects an outage
// sooner: after 10 s of silence instead of 30. A status is stale after 15 s instead of 45.
var (
	clusterTimings = clusters.Timings{
		ProbeInterval:       8 * time.Second,
		Silence:             10 * time.Second,
		ProbeRetry:          2 * time.Second,
		UnreachableRetry:    2 * time.Second,
		UnreachableRetryMax: 10 * time.Second,
	}
	watcherTimings = watchers.Timings{FreshFor: 15 * time.Second}
)

// startPlanes starts all control planes, with a proxy before each workload cluster, and adds
// the workload clusters to started.
func startPlanes(ctx context.Context, started workloads, auditLog string, down *teardown) (*management, error) {
	scheme, err := scheme()
	if err != nil {
		return nil, err
	}
	crds := map[string][]string{managementName: controlplane.CRDs(
		"capstan", "cluster-api", "cluster-api-provider-aws", "cluster-controller", "helm-controller", "kustomize-controller")}
	for _, name := range Environments {
		crds[name] = controlplane.CRDs("helm-controller", "kustomize-controller")
	}

	planes := &startedPlanes{byName: map[string]*controlplane.ControlPlane{}}
	down.add(planes.stop)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(planesAtOnce)
	for _, name := range append([]string{managementName}, Environments...) {
		group.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			options := controlplane.Options{CRDs: crds[name]}
			if name == managementName {
				options.AuditLog = auditLog
			}
			plane, err := controlplane.Start(options)
			if err != nil {
				return fmt.Errorf("cluster %s: %w", name, err)
			}
			planes.add(name, plane)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}

	m := &management{plane: planes.byName[managementName]}
	if m.Client, err = client.New(m.plane.Config(), client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("client of the management cluster: %w", err)
	}
	for _, name := range Environments {
		w := &workload{name: name, plane: planes.byName[name]}
		if w.client, err = client.New(w.plane.Config(), client.Options{Scheme: scheme}); err != nil {
			return nil, fmt.Errorf("client of cluster %s: %w", name, err)
		}
		if w.proxy, err = controlplane.NewProxy(w.plane.Config().Host); err != nil {
			return nil, err
		}
		down.add(w.proxy.Close)
		started[name] = w
	}
	return m, nil
}

// startedPlanes are the running control planes, which stop together.
type startedPlanes struct {
	// mu guards byName.
	mu     sync.Mutex
	byName map[string]*controlplane.ControlPlane
}

func (s *startedPlanes) add(name string, plane *controlplane.ControlPlane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byName[name] = plane
}

func (s *startedPlanes) stop() error {
	var group errgroup.Group
	for name, plane := range s.byName {
		group.Go(func() error {
			if err := plane.Stop(); err != nil {
				return fmt.Errorf("stopping cluster %s: %w", name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// scheme of all kinds that the playground writes and checks.
func scheme() (*runtime.Scheme, error) {
	scheme, err := flux.Scheme()
	if err != nil {
		return nil, err
	}
	for _, add := range []func(*runtime.Scheme) error{pipelinesv1.AddToScheme, capstanv1.AddToScheme, clusterv1.AddToScheme, eventingv1.AddToScheme, eventsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building a scheme: %w", err)
		}
	}
	return scheme, nil
}

// startFlux simulates helm-controller in each workload cluster.
func startFlux(clusters workloads, parts *parts) error {
	for _, name := range Environments {
		agent, err := flux.NewAgent(flux.AgentOptions{
			Config: clusters[name].plane.Config(), Pause: fluxPause, Logger: logr.Discard(),
		})
		if err != nil {
			return err
		}
		parts.start("Flux in "+name, agent.Start)
	}
	return nil
}

// newLogger writes to the hub's log.
func newLogger(files *files, o Options) logr.Logger {
	logs := io.Writer(files.hubLog)
	if o.Verbose {
		logs = io.MultiWriter(files.hubLog, o.Out)
	}
	logger := zap.New(zap.WriteTo(logs), zap.UseDevMode(false), zap.ConsoleEncoder())
	if o.SetLoggers != nil {
		o.SetLoggers(logger)
	}
	return logger
}
