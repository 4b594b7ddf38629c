package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/hub/dashboard"
	"github.com/capstan-hub/capstan/hub/eventing/admission"
	"github.com/capstan-hub/capstan/hub/pipeline"
	"github.com/capstan-hub/capstan/hub/promotion"
	"github.com/capstan-hub/capstan/index"
	"github.com/capstan-hub/capstan/strategy"
	"github.com/capstan-hub/capstan/strategy/notification"
	"github.com/capstan-hub/capstan/strategy/pullrequest"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo"
	"github.com/capstan-hub/capstan/strategy/pullrequest/manifest"
	"github.com/capstan-hub/capstan/watchers"
	"github.com/capstan-hub/capstan/watchers/apps"
)

const (
	// LeaseName is the name of the hub's lease.
	LeaseName = "capstan-hub"

	// DefaultLease is how long a lease is held without renewal. A spot notice lives
	// 120 s, so a failover must be short of that.
	DefaultLease = 30 * time.Second
	// A lease is renewed until two thirds of it have passed, every two fifteenths:
	// 20 s and 4 s of 30.
	renewNumerator, renewDenominator = 2, 3
	retryNumerator, retryDenominator = 2, 15

	// shutdownGrace is how long an act under way may take to end. All of them end with
	// their context.
	shutdownGrace = 20 * time.Second

	// qps and burst of the hub's client. Leader election has a client of its own, so
	// that a busy hub does not lose its lease.
	qps, burst = 200, 400
)

// Options of a Hub. The zero value of a field is its default where one is named.
type Options struct {
	// Config of the management cluster.
	Config *rest.Config
	// Namespace restricts what the hub reads in the management cluster; all when empty.
	Namespace string
	// MetricsBindAddress, such as ":8080"; "0" or empty for none.
	MetricsBindAddress string
	// HealthAddress of /healthz and /readyz; "0" or empty for none.
	HealthAddress string
	// Hook is how /promotion and /approval are served.
	Hook Hook
	// Dashboard is how the dashboard is served.
	Dashboard Dashboard
	// LeaderElect has only the holder of a lease act.
	LeaderElect bool
	// LeaderElectionLease is how long a lease is held; DefaultLease when 0.
	LeaderElectionLease time.Duration
	// LeaderElectionNamespace of the lease; the pod's own when empty.
	LeaderElectionNamespace string
	// EventsAddress that Flux events are posted to; none when empty.
	EventsAddress string
	// AppKinds that Pipelines may follow; apps.DefaultKinds when nil.
	AppKinds []schema.GroupKind
	// NoCrossNamespaceRefs keeps a Pipeline to clusters of its own namespace.
	NoCrossNamespaceRefs bool
	// StallAfter is when a promotion under way is called stalled;
	// promotion.DefaultStallAfter when 0.
	StallAfter time.Duration
	// PromotionRetention is how long finished promotions are kept;
	// promotion.DefaultRetention when 0.
	PromotionRetention time.Duration
	// AllowLoopback lets kubeconfigs name loopback addresses, as where a whole fleet
	// runs on one machine.
	AllowLoopback bool
	// Annotator is how node groups are annotated.
	Annotator Annotator
	// AWS is how queues of instances' events are read; nil for none.
	AWS *awsconfig.Config
	// Eventing is how events are told.
	Eventing Eventing
	// CloneDir is where clones of Git repositories live for as long as an act takes;
	// the system's folder for temporary files when empty.
	CloneDir string
	// AllowLoopbackGit lets Pipelines name Git services on this machine.
	AllowLoopbackGit bool
	// ClusterTimings and WatcherTimings replace the defaults where not zero.
	ClusterTimings clusters.Timings
	WatcherTimings watchers.Timings
	// Registerer of the hub's metrics; controller-runtime's registry when nil.
	Registerer prometheus.Registerer
	Logger     logr.Logger
	Clock      clock.WithTicker
}

// Hub is a wired hub.
type Hub struct {
	manager manager.Manager
	clones  *gitrepo.Workspace
	// pulls has connections that end with the hub.
	pulls *pullrequest.Strategy
	// Clusters and Index are the hub's live state, for what shows it.
	Clusters *clusters.Manager
	Index    *index.Index
}

// Scheme of everything that the hub reads and writes by type.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, pipelinesv1.AddToScheme, capstanv1.AddToScheme, eventingv1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(fmt.Sprintf("hub: registering types: %v", err)) // Types clash only by a mistake in the code.
		}
	}
	return scheme
}

// New wires a hub. It asks the management cluster only for its discovery and identity.
func New(o Options) (*Hub, error) {
	o.defaults()
	mgr, err := newManager(o, LeaseName)
	if err != nil {
		return nil, err
	}

	known := index.New()
	connections, err := clusters.New(clusters.Options{
		Local:         mgr.GetConfig(),
		Namespace:     o.Namespace,
		AllowLoopback: o.AllowLoopback,
		Recorder:      mgr.GetEventRecorder(reporter),
		Registerer:    o.Registerer,
		Timings:       o.ClusterTimings,
		Clock:         o.Clock,
		Logger:        o.Logger.WithName("clusters"),
	})
	if err != nil {
		return nil, fmt.Errorf("wiring clusters: %w", err)
	}
	waker := pipeline.NewWaker(known)
	watching := watchers.New(watchers.Options{
		Clusters:        connections,
		Index:           known,
		Kinds:           kinds,
		Wake:            waker.Wake,
		SourcesIn:       connections.SelfManaged,
		SourceNamespace: o.Namespace,
		Registerer:      o.Registerer,
		Timings:         o.WatcherTimings,
		Clock:           o.Clock,
		Logger:          o.Logger.WithName("watchers"),
	})
	connections.AddListener(watching)
	connections.AddListener(waker)

	// The multicluster manager carries controllers that act in workload clusters;
	// connections engage it, and it starts nothing by itself.
	multi, err := mcmanager.WithMultiCluster(mgr, connections)
	if err != nil {
		return nil, fmt.Errorf("wiring the multicluster manager: %w", err)
	}
	connections.SetAware(multi)

	for _, runnable := range []manager.Runnable{connections, watching} {
		if err := mgr.Add(runnable); err != nil {
			return nil, fmt.Errorf("wiring %T: %w", runnable, err)
		}
	}

	told, err := addEventing(mgr, o)
	if err != nil {
		return nil, fmt.Errorf("wiring eventing: %w", err)
	}
	if err := addAnnotator(multi, watching, o, told.nodeGroup); err != nil {
		return nil, fmt.Errorf("wiring the annotator: %w", err)
	}
	local, err := watchLocal(mgr, o)
	if err != nil {
		return nil, err
	}
	if err := addInstanceState(multi, local, watching, o, told); err != nil {
		return nil, fmt.Errorf("wiring instance state: %w", err)
	}

	pipelines := pipeline.New(pipeline.Options{
		Client:               mgr.GetClient(),
		APIReader:            mgr.GetAPIReader(),
		Clusters:             connections,
		Watchers:             watching,
		Index:                known,
		AppKinds:             o.AppKinds,
		NoCrossNamespaceRefs: o.NoCrossNamespaceRefs,
		Recorder:             mgr.GetEventRecorder(reporter),
		Registerer:           o.Registerer,
		Clock:                o.Clock,
	})
	if err := pipelines.SetupWithManager(mgr, waker); err != nil {
		return nil, fmt.Errorf("wiring pipelines: %w", err)
	}

	clones, err := gitrepo.NewWorkspace(o.CloneDir, gitrepo.Limits{MaxFile: manifest.MaxBytes})
	if err != nil {
		return nil, fmt.Errorf("wiring clones: %w", err)
	}
	pulls := pullrequest.New(pullrequest.Options{
		Reader: mgr.GetAPIReader(), Workspace: clones, AllowLoopback: o.AllowLoopbackGit, Clock: o.Clock,
	})
	secrets, err := metadata.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("wiring the watch of Secrets: %w", err)
	}
	if err := promotion.New(promotion.Options{
		Client:    mgr.GetClient(),
		APIReader: mgr.GetAPIReader(),
		Looked:    pipelines.Looked,
		Metadata:  secrets,
		Strategies: strategy.Registry{
			pulls,
			notification.New(notification.Options{Client: mgr.GetClient(), Address: o.EventsAddress}),
		},
		Holder:     holder(),
		StallAfter: o.StallAfter,
		Retention:  o.PromotionRetention,
		Recorder:   mgr.GetEventRecorder(reporter),
		Registerer: o.Registerer,
		Clock:      o.Clock,
	}).SetupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("wiring promotions: %w", err)
	}
	if err := addHook(mgr, o, waker); err != nil {
		return nil, fmt.Errorf("wiring the promotion hook: %w", err)
	}
	if err := addDashboard(mgr, o, connections, local); err != nil {
		return nil, fmt.Errorf("wiring the dashboard: %w", err)
	}
	return &Hub{manager: mgr, clones: clones, pulls: pulls, Clusters: connections, Index: known}, nil
}

// Start runs the hub until the context ends or the lease is lost, which is an
// error: the process is to end. A Hub is started once.
func (h *Hub) Start(ctx context.Context) error {
	err := h.manager.Start(ctx)
	h.pulls.Close()
	return errors.Join(err, h.clones.Close())
}

// Elected is closed when this hub leads.
func (h *Hub) Elected() <-chan struct{} { return h.manager.Elected() }

func (o *Options) defaults() {
	if o.LeaderElectionLease == 0 {
		o.LeaderElectionLease = DefaultLease
	}
	if o.AppKinds == nil {
		o.AppKinds = apps.DefaultKinds()
	}
	if o.Registerer == nil {
		o.Registerer = metrics.Registry
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	o.Eventing.Name = cmp.Or(o.Eventing.Name, DefaultName)
	o.Eventing.Webhooks.Validation = cmp.Or(o.Eventing.Webhooks.Validation, admission.Warn)
	o.Eventing.Webhooks.Defaulting = cmp.Or(o.Eventing.Webhooks.Defaulting, admission.Required)
	for _, address := range []*string{&o.MetricsBindAddress, &o.HealthAddress, &o.Hook.BindAddress, &o.Eventing.APIBindAddress, &o.Dashboard.BindAddress} {
		if *address == "" {
			*address = "0"
		}
	}
}

func newManager(o Options, lease string) (manager.Manager, error) {
	cfg := rest.CopyConfig(o.Config)
	cfg.QPS, cfg.Burst = qps, burst
	options := ctrl.Options{
		Scheme:                        Scheme(),
		Logger:                        o.Logger,
		Metrics:                       metricsserver.Options{BindAddress: o.MetricsBindAddress},
		HealthProbeBindAddress:        o.HealthAddress,
		PprofBindAddress:              "0",
		LeaderElection:                o.LeaderElect,
		LeaderElectionID:              lease,
		LeaderElectionNamespace:       o.LeaderElectionNamespace,
		LeaderElectionConfig:          rest.CopyConfig(o.Config),
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &o.LeaderElectionLease,
		RenewDeadline:                 ptr.To(o.LeaderElectionLease * renewNumerator / renewDenominator),
		RetryPeriod:                   ptr.To(o.LeaderElectionLease * retryNumerator / retryDenominator),
		GracefulShutdownTimeout:       ptr.To(shutdownGrace),
		Controller: config.Controller{
			RecoverPanic: ptr.To(true),
			// Names need to be unique in a process only for controller-runtime's own
			// metrics; tests run two hubs in one.
			SkipNameValidation: ptr.To(true),
			// Live changes are reconciled before the objects of a first list.
			UsePriorityQueue: ptr.To(true),
		},
		Cache: cache.Options{DefaultTransform: cache.TransformStripManagedFields(), ByObject: dashboard.CacheOptions(reporter)},
	}
	if o.Namespace != "" {
		options.Cache.DefaultNamespaces = map[string]cache.Config{o.Namespace: {}}
	}
	mgr, err := ctrl.NewManager(cfg, options)
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, err
	}
	if err := mgr.AddReadyzCheck("caches", cachesSynced(mgr)); err != nil {
		return nil, err
	}
	return mgr, nil
}

// cachesSynced is ready when the hub's own caches hold what the management
// cluster has: the process could lead, or does.
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

// holder names this process in attempts.
func holder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "hub"
	}
	return host + "_" + string(uuid.NewUUID())
}
