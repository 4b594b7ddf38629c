package hub

import (
	"context"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline"
	"github.com/capstan-hub/capstan/hub/promotion"
	"github.com/capstan-hub/capstan/hub/promotion/measure"
	"github.com/capstan-hub/capstan/hub/promotionwindow"
	"github.com/capstan-hub/capstan/internal/promotions"
	"github.com/capstan-hub/capstan/strategy"
	"github.com/capstan-hub/capstan/strategy/notification"
	"github.com/capstan-hub/capstan/strategy/pullrequest"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo"
	"github.com/capstan-hub/capstan/strategy/pullrequest/manifest"
)

// pullRequests holds what the hub closes at shutdown.
type pullRequests struct {
	clones   *gitrepo.Workspace
	strategy *pullrequest.Strategy
}

// Close ends the connections to Git services and removes the clones.
func (p *pullRequests) Close() error {
	p.strategy.Close()
	return p.clones.Close()
}

// addPipelines adds the reconciler of Pipelines, which acts on the leader. cached reads from the indexed cache.
func addPipelines(mgr manager.Manager, s *stack, waker *pipeline.Waker, cached client.Client, measurer *measure.Measurer, o Options) (*pipeline.Reconciler, error) {
	if err := promotions.AddIndexes(context.Background(), mgr.GetFieldIndexer()); err != nil { //nolint:forbidigo // A hub is wired without one.
		return nil, err
	}
	// The cache lists Pipelines at the same time as Promotions, which it lists for their indexes
	// before the controllers start.
	if _, err := mgr.GetCache().GetInformer(context.Background(), &pipelinesv1.Pipeline{}, cache.BlockUntilSynced(false)); err != nil { //nolint:forbidigo // A hub is wired without one.
		return nil, fmt.Errorf("watching Pipelines: %w", err)
	}
	pipelines := pipeline.New(pipeline.Options{
		Client:               cached,
		APIReader:            mgr.GetAPIReader(),
		Clusters:             s.connections,
		Watchers:             s.watchers,
		Index:                s.index,
		AppKinds:             o.AppKinds,
		NoCrossNamespaceRefs: o.NoCrossNamespaceRefs,
		DryRun:               o.DryRun,
		Elected:              mgr.Elected(),
		WarmStandby:          o.WarmStandby,
		CheckEndpoint:        measurer.Knows,
		Recorder:             mgr.GetEventRecorder(reporter),
		Registerer:           o.Registerer,
		Clock:                o.Clock,
	})
	if err := pipelines.SetupWithManager(mgr, waker); err != nil {
		return nil, fmt.Errorf("wiring pipelines: %w", err)
	}
	if o.WarmStandby {
		if err := mgr.AddReadyzCheck("warm", isWarm(o.Clock, pipelines.Warm)); err != nil {
			return nil, fmt.Errorf("wiring the check of readiness: %w", err)
		}
	}
	return pipelines, nil
}

// newMeasurer returns what queries the endpoints of checks when it is added to a manager.
func newMeasurer(o Options) (*measure.Measurer, error) {
	measurer, err := measure.New(measure.Options{
		// The administrator names the endpoints: one may be a proxy in the hub's own pod.
		Endpoints: o.CheckEndpoints, AllowLoopback: true, Clock: o.Clock, Registerer: o.Registerer,
	})
	if err != nil {
		return nil, fmt.Errorf("wiring the endpoints of checks: %w", err)
	}
	return measurer, nil
}

// addPromotions adds the reconcilers of Pipelines and Promotions, on the leader.
func addPromotions(mgr manager.Manager, s *stack, waker *pipeline.Waker, o Options) (*pullRequests, error) {
	measurer, err := newMeasurer(o)
	if err != nil {
		return nil, err
	}
	if err := mgr.Add(measurer); err != nil {
		return nil, fmt.Errorf("wiring the endpoints of checks: %w", err)
	}
	cached := promotions.IndexedClient(mgr.GetClient())
	pipelines, err := addPipelines(mgr, s, waker, cached, measurer, o)
	if err != nil {
		return nil, err
	}
	clones, err := gitrepo.NewWorkspace(o.CloneDir, gitrepo.Limits{MaxFile: manifest.MaxBytes})
	if err != nil {
		return nil, fmt.Errorf("wiring clones: %w", err)
	}
	pulls := pullrequest.New(pullrequest.Options{
		Reader: mgr.GetAPIReader(), Workspace: clones, AllowLoopback: o.AllowLoopbackGit, Proxy: o.GitProxy, RequireSecretHosts: o.RequireSecretHosts,
		Deadline: o.PullRequestDeadline, Clock: o.Clock,
	})
	secrets, err := metadata.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("wiring the watch of Secrets: %w", err)
	}
	if err := promotion.New(promotion.Options{
		Client:    cached,
		APIReader: mgr.GetAPIReader(),
		Ledger:    cached,
		Observed:  pipelines.Observed,
		Metadata:  secrets,
		Strategies: strategy.Registry{
			pulls,
			notification.New(notification.Options{Client: mgr.GetClient(), Address: o.EventsAddress}),
		},
		Holder:     holder(),
		Measurer:   measurer,
		StallAfter: o.StallAfter,
		Retention:  o.PromotionRetention,
		Keep:       o.PromotionKeep,
		Recorder:   mgr.GetEventRecorder(reporter),
		Registerer: o.Registerer,
		Clock:      o.Clock,
	}).SetupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("wiring promotions: %w", err)
	}
	if err := promotionwindow.New(promotionwindow.Options{
		Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder(reporter), Registerer: o.Registerer, Shared: o.SharesCluster(), Clock: o.Clock,
	}).SetupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("wiring promotion windows: %w", err)
	}
	return &pullRequests{clones: clones, strategy: pulls}, nil
}

// holder names this process in attempts.
func holder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "hub"
	}
	return host + "_" + string(uuid.NewUUID())
}
