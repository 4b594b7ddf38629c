package hub

import (
	"context"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/dashboard"
	"github.com/capstan-hub/capstan/hub/pipeline"
	"github.com/capstan-hub/capstan/internal/eventnote"
	"github.com/capstan-hub/capstan/internal/promotions"
)

const (
	// shutdownGrace is how long an attempt under way may take to end. All end with their
	// context.
	shutdownGrace = 20 * time.Second

	// qpsForEachCPU is the default of Options.KubeAPIQPS for each CPU: more than a hub sends with
	// the workers that it has, so that it is not the limit of a first start, which writes every
	// status. burstFactor is how many seconds of it may be sent at once. Leader election has its own
	// client, so that a busy hub does not lose its lease.
	qpsForEachCPU, burstFactor = 500, 2
)

// newManager makes a manager with the lease and the health checks. sharing is nil for a
// hub that does not share the management cluster.
func newManager(o Options, lease string, sharing *sharing) (manager.Manager, error) {
	cfg := rest.CopyConfig(o.Config)
	// One for all kinds: else each kind has a limiter of its own.
	cfg.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(float32(o.KubeAPIQPS), burstFactor*o.KubeAPIQPS)
	// Compression takes more time than the transfer in a cluster. Watches have none either.
	cfg.DisableCompression = true
	options := ctrl.Options{
		Scheme:                  Scheme(),
		MapperProvider:          newMapper,
		Logger:                  o.Logger,
		Metrics:                 metricsserver.Options{BindAddress: o.MetricsBindAddress},
		HealthProbeBindAddress:  o.HealthAddress,
		PprofBindAddress:        "0",
		LeaderElection:          o.LeaderElect,
		LeaderElectionID:        lease, // Of its metrics.
		LeaseDuration:           &o.LeaderElectionLease,
		RenewDeadline:           ptr.To(o.LeaderElectionLease * renewNumerator / renewDenominator),
		RetryPeriod:             ptr.To(o.retryPeriod()),
		GracefulShutdownTimeout: ptr.To(shutdownGrace),
		Controller: config.Controller{
			RecoverPanic: ptr.To(true),
			// Names need to be unique in a process only for controller-runtime's own
			// metrics; tests run two hubs in one.
			SkipNameValidation: ptr.To(true),
			// Live changes are reconciled before the objects of a first list.
			UsePriorityQueue: ptr.To(true),
		},
	}
	lock, err := newLock(o, lease)
	if err != nil {
		return nil, err
	}
	var led *leased
	if lock != nil {
		led = newLeased(lock, o.LeaderElectionLease, sharing, &options)
	}
	if options.Cache, err = cacheOptions(cfg, o.Namespaces); err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(cfg, options)
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	if lock != nil { // Events say who leads. client-go's leader election has only the former recorder.
		lock.LockConfig.EventRecorder = mgr.GetEventRecorderFor(lock.LockConfig.Identity) //nolint:staticcheck // See above.
	}
	if sharing != nil {
		sharing.recorder = eventnote.Bounded(mgr.GetEventRecorder(reporter))
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, err
	}
	if err := mgr.AddReadyzCheck("caches", cachesSynced(mgr)); err != nil {
		return nil, err
	}
	bounded := boundedManager{Manager: mgr, began: make(begun)}
	if err := mgr.Add(bounded.began); err != nil {
		return nil, err
	}
	if lock == nil {
		return bounded, nil
	}
	led.Manager = bounded
	return led, nil
}

// boundedManager is a manager that limits the length of its Events, as API servers require, and that ends with its context also
// before its caches are synced.
type boundedManager struct {
	manager.Manager

	began begun
}

// GetEventRecorder implements manager.Manager.
func (m boundedManager) GetEventRecorder(name string) recorder.EventRecorder {
	return eventnote.Bounded(m.Manager.GetEventRecorder(name))
}

// Start implements manager.Manager. controller-runtime waits for its caches, with all of a CPU, also when the context has ended.
// Nothing but servers has begun before they are synced, so nothing is awaited then: the process must end.
func (m boundedManager) Start(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- m.Manager.Start(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case <-m.began:
		return <-ended
	default:
		return nil
	}
}

// begun is closed when a manager starts what needs its caches.
type begun chan struct{}

// Start implements manager.Runnable.
func (b begun) Start(context.Context) error {
	close(b)
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (begun) NeedLeaderElection() bool { return false }

// cacheOptions returns what the cache keeps of the management cluster's objects, in some
// namespaces or in all.
func cacheOptions(cfg *rest.Config, namespaces []string) (cache.Options, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.APIPath, cfg.GroupVersion, cfg.NegotiatedSerializer = "/apis", &capstanv1.GroupVersion, scheme.Codecs.WithoutConversion()
	promotionClient, err := rest.RESTClientFor(cfg)
	if err != nil {
		return cache.Options{}, fmt.Errorf("making the client for Promotions: %w", err)
	}
	strip, others := promotions.NewStripper(clock.RealClock{}), cache.TransformStripManagedFields()
	options := cache.Options{
		// Not an option of Promotions: a manager of the annotator alone also runs where their
		// CRD is not installed.
		DefaultTransform: func(o any) (any, error) {
			switch kept := o.(type) {
			case *pipelinesv1.Pipeline:
				pipeline.Compact(kept)
			case *corev1.Namespace: // Only its labels are read.
				kept.Annotations, kept.Spec, kept.Status = nil, corev1.NamespaceSpec{}, corev1.NamespaceStatus{}
			default:
				if p, ok := strip.Transform(o); ok {
					return p, nil
				}
			}
			return others(o)
		},
		NewInformer: strip.Informer(promotions.Lister(promotionClient, namespaces)),
		ByObject:    dashboard.CacheOptions(reporter),
	}
	if len(namespaces) > 0 {
		options.DefaultNamespaces = map[string]cache.Config{}
	}
	for _, namespace := range namespaces {
		options.DefaultNamespaces[namespace] = cache.Config{}
	}
	return options, nil
}

// cachesSynced returns a check that succeeds when the hub's own caches are synced: the
// process leads, or could lead.
func cachesSynced(mgr manager.Manager) healthz.Checker {
	const patience = time.Second
	return func(request *http.Request) error {
		ctx, cancel := context.WithTimeout(request.Context(), patience)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return fmt.Errorf("the hub's caches are not synced yet")
		}
		return nil
	}
}
