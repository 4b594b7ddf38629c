package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/hub/eventing/admission"
	"github.com/capstan-hub/capstan/hub/instancestate"
	"github.com/capstan-hub/capstan/hub/pipeline"
	"github.com/capstan-hub/capstan/hub/promotion/measure"
	"github.com/capstan-hub/capstan/index"
	"github.com/capstan-hub/capstan/internal/egress"
	"github.com/capstan-hub/capstan/watchers"
	"github.com/capstan-hub/capstan/watchers/apps"
)

const (
	// LeaseName is the name of the hub's lease. With several hubs in a management cluster, "-" and the
	// name of the hub follow.
	LeaseName = "capstan-hub"

	// DefaultLease is how long a lease is held without renewal. A spot notice is valid for
	// 120 s, so a failover must take less than that.
	DefaultLease = 30 * time.Second
)

// Options of a Hub. A zero field has the default that its comment names.
type Options struct {
	// Config of the management cluster.
	Config *rest.Config
	// Namespaces restrict what the hub reads in the management cluster; all if there are none.
	Namespaces []string
	// MetricsBindAddress, such as ":8080"; "0" or empty for none.
	MetricsBindAddress string
	// HealthAddress of /healthz and /readyz; "0" or empty for none.
	HealthAddress string
	// Hook is how /promotion and /approval are served.
	Hook Hook
	// Dashboard is how the dashboard is served.
	Dashboard Dashboard
	// Diagnostics is how profiles and the state of the process are served.
	Diagnostics Diagnostics
	// DryRun makes the hub observe and decide, and change nothing but what it shows: status.dryRun of Pipelines,
	// ClusterConnections and Events.
	DryRun bool
	// LeaderElect makes only the holder of a lease act.
	LeaderElect bool
	// WarmStandby makes replicas that do not hold the lease connect to the clusters and watch what Pipelines use, so
	// that one can take over without a list. It needs LeaderElect.
	WarmStandby bool
	// LeaderElectionLease is how long a lease is held; DefaultLease if 0.
	LeaderElectionLease time.Duration
	// ManagementMaxObjects of one kind of the management cluster are kept in memory;
	// watchers.DefaultMaxLocalObjects if 0.
	ManagementMaxObjects int
	// KubeAPIQPS is how many requests per second the reconcilers send to the API server of the
	// management cluster, watches aside; twice as many at once. 500 for each CPU if 0.
	KubeAPIQPS int
	// ClusterDials is how many connections to clusters are made at the same time; 32 for each CPU
	// if 0. ClusterLists is how many initial lists of clusters are read at the same time; 8 for
	// each CPU if 0.
	ClusterDials, ClusterLists int
	// LeaderElectionNamespace of the lease; the pod's own if empty.
	LeaderElectionNamespace string
	// EventsAddress to which Flux events are posted; none if empty.
	EventsAddress string
	// AppKinds that Pipelines may use; apps.DefaultKinds if nil.
	AppKinds []schema.GroupKind
	// NoCrossNamespaceRefs restricts a Pipeline to clusters of its own namespace, and to
	// its own namespace in the management cluster.
	NoCrossNamespaceRefs bool
	// ClusterSecretNamespaces are those whose Secrets may name clusters, if they have pipelinesv1.ClusterSecretLabel; none
	// if empty.
	ClusterSecretNamespaces []string
	// StallAfter is the age at which a promotion under way is stalled;
	// promotion.DefaultStallAfter if 0.
	StallAfter time.Duration
	// PullRequestDeadline bounds one attempt of a promotion by pull request;
	// pullrequest.DefaultDeadline if 0.
	PullRequestDeadline time.Duration
	// PromotionRetention is how long finished promotions are kept;
	// promotion.DefaultRetention if 0.
	PromotionRetention time.Duration
	// PromotionKeep is how many finished promotions into an environment are kept; no limit
	// by number if 0.
	PromotionKeep int
	// AllowLoopback permits loopback addresses in kubeconfigs, for a whole fleet on one
	// machine.
	AllowLoopback bool
	// Annotator is how node groups are annotated.
	Annotator Annotator
	// AWS is how queues of instances' events are read; nil for none.
	AWS *awsconfig.Config
	// Eventing is how events are published.
	Eventing Eventing
	// CloneDir is the folder for clones of Git repositories, which exist during an attempt;
	// the system's folder for temporary files if empty.
	CloneDir string
	// AllowLoopbackGit permits Git services on loopback addresses in Pipelines.
	AllowLoopbackGit bool
	// ClusterProxy is used for all connections to workload clusters, and GitProxy for all to Git
	// services; nil for none.
	ClusterProxy, GitProxy *egress.Proxy
	// RequireSecretHosts refuses Secrets of Git services and EventingBackends without the annotation
	// capstan.dev/allowed-hosts, where a user names the host.
	RequireSecretHosts bool
	// CheckEndpoints are what the checks of Pipelines may query.
	CheckEndpoints []measure.Endpoint
	// ClusterTimings and WatcherTimings that are not zero replace the defaults.
	ClusterTimings clusters.Timings
	WatcherTimings watchers.Timings
	// Handlers register what acts on events of instances in this process, by instancestate.Labeler.Handle. They are
	// called by New, if AWS is set. An error ends New.
	Handlers []func(*instancestate.Labeler) error
	// Registerer of the hub's metrics; controller-runtime's registry if nil.
	Registerer prometheus.Registerer
	Logger     logr.Logger
	Clock      clock.WithTicker
}

// Hub is a wired hub.
type Hub struct {
	manager manager.Manager
	// pulls are closed when the hub ends; nil in dry run.
	pulls *pullRequests
	// Clusters and Index hold the present state of connections and observations.
	Clusters *clusters.Manager
	Index    *index.Index
}

// Scheme returns the types of all objects that the hub reads and writes.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, pipelinesv1.AddToScheme, capstanv1.AddToScheme, eventingv1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(fmt.Sprintf("hub: registering types: %v", err)) // Types conflict only by a programming error.
		}
	}
	return scheme
}

// New wires a hub. It requests only discovery and the identity from the management cluster.
func New(o Options) (*Hub, error) {
	o.defaults()
	if o.LeaderElect && len(o.Namespaces) > 1 && !o.SharesCluster() {
		return nil, errNameless
	}
	if o.DryRun {
		if err := o.restrict(); err != nil {
			return nil, err
		}
	}

	// 1. The manager: one process, one cache of the hub's own objects, one lease.
	sharing, err := newSharing(o)
	if err != nil {
		return nil, err
	}
	mgr, err := newManager(o, o.leaseName(), sharing)
	if err != nil {
		return nil, err
	}
	// 2. The stack: connections and watchers, of the management cluster and all others.
	observed := index.New()
	waker := pipeline.NewWaker(observed)
	fleet, err := newStack(mgr, o, stackOptions{readings: readings(o), index: observed, wake: waker.Observed, listener: waker})
	if err != nil {
		return nil, err
	}
	var pulls *pullRequests
	if o.DryRun {
		// Instead of 3 and 4: nothing that acts.
		err = addDryRun(mgr, fleet, waker, o)
	} else {
		pulls, err = addActing(mgr, fleet, waker, o)
	}
	if err != nil {
		return nil, err
	}
	// 5. The servers: the promotion hook, the dashboard and diagnostics.
	if err := addServers(mgr, fleet, waker, sharing, o); err != nil {
		return nil, err
	}
	return &Hub{manager: mgr, pulls: pulls, Clusters: fleet.connections, Index: fleet.index}, nil
}

func addActing(mgr manager.Manager, s *stack, waker *pipeline.Waker, o Options) (*pullRequests, error) {
	// 3. Eventing: what the reconcilers report to.
	events, err := addEventing(mgr, o)
	if err != nil {
		return nil, fmt.Errorf("wiring eventing: %w", err)
	}
	// 4. The reconcilers: node groups, instances, Pipelines and Promotions.
	return addReconcilers(mgr, s, events, waker, o)
}

func addReconcilers(mgr manager.Manager, s *stack, events *eventing, waker *pipeline.Waker, o Options) (*pullRequests, error) {
	if err := addAnnotator(s, o, reporter, events.nodeGroup); err != nil {
		return nil, fmt.Errorf("wiring the annotator: %w", err)
	}
	if err := addInstanceState(s, events, o); err != nil {
		return nil, fmt.Errorf("wiring instance state: %w", err)
	}
	return addPromotions(mgr, s, waker, o)
}

func addServers(mgr manager.Manager, s *stack, waker *pipeline.Waker, sharing *sharing, o Options) error {
	if err := addHook(mgr, o, waker); err != nil {
		return fmt.Errorf("wiring the promotion hook: %w", err)
	}
	if err := addDashboard(mgr, s, sharing, o); err != nil {
		return fmt.Errorf("wiring the dashboard: %w", err)
	}
	if err := addDiagnostics(mgr, s, o); err != nil {
		return fmt.Errorf("wiring diagnostics: %w", err)
	}
	return nil
}

// Start runs the hub until the context ends or the lease is lost. The latter is an error:
// the process must end. A Hub is started once.
func (h *Hub) Start(ctx context.Context) error {
	err := h.manager.Start(ctx)
	if h.pulls != nil && ctx.Err() != nil { // Else clones may be in use. The next process removes them.
		err = errors.Join(err, h.pulls.Close())
	}
	return err
}

// Elected returns a channel that is closed when this hub leads.
func (h *Hub) Elected() <-chan struct{} { return h.manager.Elected() }

func (o *Options) defaults() {
	if o.LeaderElectionLease == 0 {
		o.LeaderElectionLease = DefaultLease
	}
	if o.KubeAPIQPS == 0 {
		o.KubeAPIQPS = qpsForEachCPU * goruntime.GOMAXPROCS(0)
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
	if o.hubName() != DefaultName {
		o.Registerer = prometheus.WrapRegistererWith(prometheus.Labels{"hub": o.hubName()}, o.Registerer)
	}
	o.Eventing.Webhooks.Validation = cmp.Or(o.Eventing.Webhooks.Validation, admission.Warn)
	o.Eventing.Webhooks.Defaulting = cmp.Or(o.Eventing.Webhooks.Defaulting, admission.Required)
	for _, address := range []*string{&o.MetricsBindAddress, &o.HealthAddress, &o.Hook.BindAddress, &o.Eventing.APIBindAddress, &o.Dashboard.BindAddress} {
		if *address == "" {
			*address = "0"
		}
	}
}
