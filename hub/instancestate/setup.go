package instancestate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mccontroller "sigs.k8s.io/multicluster-runtime/pkg/controller"
	mchandler "sigs.k8s.io/multicluster-runtime/pkg/handler"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/hub/instancestate/owner"
	"github.com/capstan-hub/capstan/internal/capa"
	"github.com/capstan-hub/capstan/internal/memberwrite"
	"github.com/capstan-hub/capstan/watchers"
)

const (
	// reconcileWorkers of each kind. A reconciliation takes microseconds.
	reconcileWorkers = 2
	// minRetry doubles up to maxRetry.
	minRetry, maxRetry = 50 * time.Millisecond, 10 * time.Second
	// syncRetry is when an object is reconciled again whose kind is being listed or cannot
	// be listed.
	syncRetry = 500 * time.Millisecond
	// placeRetry is when an object is reconciled again for which facts wait, because its account
	// and region cannot be read.
	placeRetry = 5 * time.Second
)

// SetupWithManager adds the controllers, the workers and the queue consumers to a manager.
// The caller runs Options.Watchers on every replica.
func SetupWithManager(mgr mcmanager.Manager, o Options) (*Labeler, error) {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.DriftGrace == 0 {
		o.DriftGrace = DefaultDriftGrace
	}
	local := mgr.GetLocalManager()
	patches, err := memberwrite.LocalClient(local)
	if err != nil {
		return nil, err
	}
	r := &Labeler{
		Options: o, remediated: lru.New(maxRemediated), ring: &owner.Ring[arrival]{Clock: o.Clock}, lanes: newLanes(o.Clock),
		writer:  newWriter(memberwrite.Writer{FieldManager: fieldManager, Local: patches, Clusters: mgr.GetCluster}),
		metrics: newMetrics(), elected: local.Elected(), ready: make(chan struct{}),
	}
	r.events = newEventRecorder(o.Recorder, r.metrics, o.Clock, o.Watchers.Reader(clusters.LocalName))
	r.drift, r.sources = newDrift(r), newSources(r, local.GetClient())
	if err := r.metrics.register(o.Registerer, gauges{r}); err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	for _, kind := range labelled() {
		if err := r.addReconciler(mgr, kind); err != nil {
			return nil, err
		}
	}
	if err := r.sources.setup(local); err != nil {
		return nil, fmt.Errorf("wiring sources: %w", err)
	}
	return r, local.Add(r)
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica reads the
// queues.
func (*Labeler) NeedLeaderElection() bool { return false }

// Start runs workers and consumers until the context ends, and waits for them.
func (r *Labeler) Start(ctx context.Context) error {
	var running sync.WaitGroup
	for range workers {
		running.Go(func() { r.lanes.run(ctx, r.apply, fail) })
	}
	running.Go(func() {
		if r.fill(ctx) {
			close(r.ready)
		}
	})
	running.Go(func() { r.drift.run(ctx) })
	running.Go(func() { r.watchUnread(ctx) })
	running.Go(func() { r.sources.start(ctx) })
	running.Wait()
	return nil
}

// everyReplica is a controller that runs on every replica. (The controller of
// multicluster-runtime hides NeedLeaderElection of controller-runtime.)
type everyReplica struct{ mccontroller.Controller }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (everyReplica) NeedLeaderElection() bool { return false }

// addReconciler adds the reconciler of a kind, for the management cluster and for the
// clusters that the manager engages.
func (r *Labeler) addReconciler(mgr mcmanager.Manager, kind schema.GroupKind) error {
	c, err := mccontroller.NewUnmanaged("instancestate-"+kind.Kind, mgr, mccontroller.Options{
		Reconciler:              AWSInstanceStateReconciler{r, kind},
		MaxConcurrentReconciles: reconcileWorkers,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[mcreconcile.Request](minRetry, maxRetry),
		NeedLeaderElection:      ptr.To(false),
		SkipNameValidation:      ptr.To(true),
		RecoverPanic:            ptr.To(true),
		Logger:                  r.Logger,
		LogConstructor:          func(*mcreconcile.Request) logr.Logger { return r.Logger.WithValues("kind", kind.Kind) },
	})
	if err != nil {
		return fmt.Errorf("wiring the reconciler of %s: %w", kind.Kind, err)
	}
	members := []watchers.MemberSource{r.Watchers.Left(r.left(kind))}
	watch := func(kind schema.GroupKind, handle mchandler.TypedEventHandlerFunc[client.Object, mcreconcile.Request]) error {
		local, _, err := r.Watchers.Source(kind, handle).ForCluster(clusters.LocalName, mgr.GetLocalManager())
		if err == nil {
			err = c.Watch(local)
		}
		// Only the AWS identities of the management cluster are used.
		if !capa.Identity(kind) {
			members = append(members, r.Watchers.Source(kind, handle))
		}
		return err
	}
	errs := []error{watch(kind, watchers.Enqueue)}
	for _, other := range capa.PlaceKinds() {
		errs = append(errs, watch(other, demanded))
	}
	errs = append(errs, watchers.WatchMembers(mgr, c, members...))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("wiring the reconciler of %s: %w", kind.Kind, err)
	}
	return mgr.Add(everyReplica{c})
}

// demanded ignores events of kinds that are only read on demand.
func demanded(multicluster.ClusterName, cluster.Cluster) handler.TypedEventHandler[client.Object, mcreconcile.Request] {
	return handler.TypedFuncs[client.Object, mcreconcile.Request]{}
}

// left forgets the objects of a cluster that is no longer engaged or self-managed. It enqueues
// them, because a new engagement may have added them again in the meantime.
func (r *Labeler) left(kind schema.GroupKind) func(multicluster.ClusterName, memberwrite.Queue) {
	return func(name multicluster.ClusterName, q memberwrite.Queue) {
		for _, key := range r.index.In(string(name)) {
			if key.Kind == kind {
				r.forget(key, released)
				q.Add(mcreconcile.Request{ClusterName: name, Request: reconcile.Request{NamespacedName: nameOf(key)}})
			}
		}
	}
}

// newList returns an empty list of a kind.
func newList(kind schema.GroupKind) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	gvk := kind.WithVersion(capa.Version)
	gvk.Kind += "List"
	list.SetGroupVersionKind(gvk)
	return list
}
