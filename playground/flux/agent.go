package flux

import (
	"context"
	"fmt"
	"net"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// concurrent is the number of releases of one agent at once; each mostly waits.
	concurrent = 8
	// shutdown is the time in which an agent's reconciliations must end.
	shutdown = 5 * time.Second
)

// AgentOptions has the options of an Agent.
type AgentOptions struct {
	// Config of the cluster that the agent runs in.
	Config *rest.Config
	// Pause between the steps of a release.
	Pause time.Duration
	// Logger of the agent.
	Logger logr.Logger
}

// Agent simulates helm-controller in one cluster: when the spec of a HelmRelease changes,
// it updates the status to the chart version of the spec.
type Agent struct {
	manager ctrl.Manager
	// dialer has the agent's connections, including watches. They end with the agent.
	dialer *connrotation.Dialer
	// client reads without the cache: directly after a reconciliation, the cache can still
	// have the old status, and the release would be made twice.
	client client.Client
	pause  time.Duration
}

// NewAgent returns an agent; Start runs it.
func NewAgent(o AgentOptions) (*Agent, error) {
	m, dialer, direct, err := newManager(o.Config, o.Logger)
	if err != nil {
		return nil, err
	}
	a := &Agent{manager: m, dialer: dialer, client: direct, pause: o.Pause}
	err = ctrl.NewControllerManagedBy(m).
		Named("helm-controller").
		For(&helmv2.HelmRelease{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrent}).
		Complete(a)
	if err != nil {
		return nil, fmt.Errorf("creating a Flux agent: %w", err)
	}
	return a, nil
}

// newManager returns the manager of an agent, the dialer of its connections, and a client
// that reads without the cache.
func newManager(config *rest.Config, logger logr.Logger) (ctrl.Manager, *connrotation.Dialer, client.Client, error) {
	scheme, err := Scheme()
	if err != nil {
		return nil, nil, nil, err
	}
	cluster, dialer := rest.CopyConfig(config), connrotation.NewDialer((&net.Dialer{}).DialContext)
	cluster.Dial = dialer.DialContext
	m, err := ctrl.NewManager(cluster, ctrl.Options{
		Scheme:                  scheme,
		Logger:                  logger,
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		GracefulShutdownTimeout: ptr.To(shutdown),
		// One process has an agent for each cluster.
		Controller: ctrlconfig.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		return nil, nil, nil, fmt.Errorf("creating a Flux agent: %w", err)
	}
	direct, err := client.New(cluster, client.Options{Scheme: scheme, HTTPClient: m.GetHTTPClient()})
	if err != nil {
		return nil, nil, nil, fmt.Errorf("creating a Flux agent: %w", err)
	}
	return m, dialer, direct, nil
}

// Start runs the agent until the context ends.
func (a *Agent) Start(ctx context.Context) error {
	defer a.dialer.CloseAll()
	return a.manager.Start(ctx)
}

// Reconcile simulates the controller for one HelmRelease.
func (a *Agent) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	obj := &helmv2.HelmRelease{}
	if err := a.client.Get(ctx, request.NamespacedName, obj); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	settled := obj.Status.ObservedGeneration == obj.Generation
	if settled || obj.Spec.Suspend || !obj.DeletionTimestamp.IsZero() || !obj.HasChartTemplate() {
		return ctrl.Result{}, nil
	}
	version := obj.Spec.Chart.Spec.Version
	if err := exact(version); err != nil {
		return ctrl.Result{}, reconcile.TerminalError(fmt.Errorf("HelmRelease %s: %w: %q", request, err, version))
	}
	release := Release{Client: a.client, Key: request.NamespacedName, Pause: a.pause}
	return ctrl.Result{}, release.reconcile(ctx, version, nil)
}

// Scheme returns a scheme with HelmReleases and the kinds of Kubernetes.
func Scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, helmv2.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building a scheme: %w", err)
		}
	}
	return scheme, nil
}
