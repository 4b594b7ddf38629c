package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/index"
	"github.com/capstan-hub/capstan/internal/collectors"
	"github.com/capstan-hub/capstan/internal/promotions"
	"github.com/capstan-hub/capstan/watchers"
)

// workers is how many Pipelines are reconciled at a time. Each waits only for the API
// server of the management cluster.
const workers = 8

// primeWait bounds how long the first reconcile waits for the cluster objects. A healthy
// API server delivers them in about 100 ms.
const primeWait = 5 * time.Second

// Resolver finds the cluster of a reference, without a call to an API server.
type Resolver interface {
	Resolve(clusters.Ref) (multicluster.ClusterName, error)
	// Select returns the clusters of a kind in a namespace, or in all, by their labels.
	Select(kind, namespace string, selector labels.Selector) ([]clusters.Ref, error)
	// Labels returns the labels of a cluster object.
	Labels(clusters.Ref) (labels.Set, error)
	// WaitForObjects waits until the references can be resolved.
	WaitForObjects(ctx context.Context) error
}

// Demander receives what has to be watched.
type Demander interface {
	SetDemand(owner string, want []watchers.Demand)
	SetDemands(want map[string][]watchers.Demand)
	// Confirm makes an observation not fresh until its object was read again.
	Confirm(watchers.Demand)
}

// Options of the reconciler.
type Options struct {
	// Client reads from the hub's cache and writes.
	Client client.Client
	// APIReader reads from the API server, uncached, before a Promotion is created.
	APIReader client.Reader
	// Clusters resolves references.
	Clusters Resolver
	// Watchers receives what has to be watched.
	Watchers Demander
	// Index holds the observations.
	Index *index.Index
	// AppKinds are the kinds that the administrator allows.
	AppKinds []schema.GroupKind
	// NoCrossNamespaceRefs restricts a Pipeline to clusters of its own namespace, and to
	// its own namespace in the management cluster.
	NoCrossNamespaceRefs bool
	// DryRun makes the reconciler write nothing but status.dryRun of Pipelines.
	DryRun bool
	// Elected is closed when this process leads; nil if it needs no lease.
	Elected <-chan struct{}
	// WarmStandby makes a process with Elected pass the demand of Pipelines on before the election, too.
	WarmStandby bool
	// CheckEndpoint returns why a namespace may not use an endpoint of checks; nil if it may. Without
	// it, endpoints are not looked at.
	CheckEndpoint func(endpoint, namespace string) error
	// Recorder of Events.
	Recorder events.EventRecorder
	// Registerer of the metrics; not registered if nil.
	Registerer prometheus.Registerer
	Clock      clock.PassiveClock
}

// Reconciler reconciles Pipelines.
type Reconciler struct {
	Options
	metrics *metrics
	// began is when the Reconciler was made, at the start of the process.
	began  time.Time
	primed sync.Once
	// demanded is set when the demand of all Pipelines was passed on, with the clusters known; without WarmStandby, only if
	// they are known in time.
	demanded atomic.Bool
	// led is when this process began to lead; nil before that.
	led    atomic.Pointer[time.Time]
	holds  holds
	soaks  soaks
	fleets fleets
	dry    dryRuns
	// outdated are the Pipelines that are served by another CRD.
	outdated sync.Map
	// observed: Pipeline → observedAs, of those whose status this process has updated.
	observed sync.Map
	// wake enqueues other Pipelines, and connected counts the clusters that were connected. Both are those of the Waker (attach).
	wake      func([]types.NamespacedName)
	connected func() int64
}

var _ reconcile.Reconciler = &Reconciler{}

// New makes a Reconciler.
func New(o Options) *Reconciler {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	r := &Reconciler{Options: o, began: o.Clock.Now(), wake: func([]types.NamespacedName) {}, connected: func() int64 { return 0 }}
	if o.Elected == nil {
		r.led.Store(&r.began)
	}
	r.metrics = newMetrics(o.DryRun, r.dry.due)
	return r
}

// SetupWithManager adds the controller to the manager and registers the metrics. The waker
// delivers the events of the watchers and the connections.
//
// A write of the Pipeline's own status triggers a reconcile, too. A reconcile that found
// nothing to write may have compared with a cache that was older than the last write, and
// no other event would correct that.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, waker *Waker) error {
	if _, err := collectors.Register(r.Registerer, r.metrics.all()...); err != nil {
		return err
	}
	r.attach(waker)
	if r.Elected != nil {
		if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return r.takeOver(ctx, waker) })); err != nil {
			return err
		}
	}
	if r.WarmStandby {
		if err := mgr.Add(everyReplica(r.primeReplica)); err != nil {
			return err
		}
	}
	if !r.DryRun {
		if err := mgr.Add(manager.RunnableFunc(r.StoreSoaks)); err != nil {
			return err
		}
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("pipeline").
		For(&pipelinesv1.Pipeline{}).
		Watches(&capstanv1.Promotion{}, handler.EnqueueRequestsFromMapFunc(pipelineOf), builder.WithPredicates(predicate.Funcs{UpdateFunc: changed})).
		Watches(&capstanv1.PromotionRequest{}, handler.EnqueueRequestsFromMapFunc(requestedPipeline)).
		WatchesRawSource(waker).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, NeedLeaderElection: ptr.To(!r.WarmStandby)}).
		Complete(r)
}

// attach makes the Waker and the Reconciler use each other.
func (r *Reconciler) attach(waker *Waker) {
	r.wake = func(pipelines []types.NamespacedName) { waker.Wake(pipelines, false) }
	waker.waits, r.connected = r.waits, waker.connected.Load
}

// pipelineOf maps a Promotion to its Pipeline.
func pipelineOf(_ context.Context, o client.Object) []reconcile.Request {
	pipeline, ok := promotions.PipelineOf(o)
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: pipeline}}
}

func changed(e event.UpdateEvent) bool { return !promotions.Unchanged(e.ObjectOld, e.ObjectNew) }

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	r.primed.Do(func() { r.prime(ctx) })
	key := request.NamespacedName
	p := &pipelinesv1.Pipeline{}
	if !r.leads() {
		return ctrl.Result{}, r.follow(ctx, key, p)
	}
	if err := r.Client.Get(ctx, key, p); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(key)
			if r.DryRun {
				return ctrl.Result{}, nil
			}
			expires, err := r.withoutPipeline(ctx, key)
			return ctrl.Result{RequeueAfter: expires}, err
		}
		return ctrl.Result{}, fmt.Errorf("reading Pipeline %s: %w", key, err)
	}
	if !p.DeletionTimestamp.IsZero() {
		r.forget(key)
		return ctrl.Result{}, nil
	}

	if !p.ServedInFull() {
		return r.pruned(ctx, p), nil
	}
	r.served(key)
	cached, err := promotions.OfName(ctx, r.Client, key)
	if err != nil {
		return ctrl.Result{}, err
	}
	if r.DryRun {
		return r.reconcileDry(ctx, p, cached)
	}
	p, seen, found := r.observe(p)
	left := r.stand(p, seen)
	_, written := r.Observed(key, p.UID)
	if wait := r.hold(p, early(seen), written); wait > 0 && !r.soaks.counts(key) {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	stands := r.standing(p, seen) // Before the status is made: what it shows until then may stand.
	status, next := r.status(p, seen, cached, found)
	next = sooner(next, left)
	if err := r.writeStatus(ctx, p, status, seen.clusterFault()); err != nil {
		return r.requeueOnConflict(ctx, p, err)
	}
	r.observed.Store(key, observedAs{p.UID, stands})
	expires, err := r.promote(ctx, p, seen, cached, found)
	result, err := r.requeueOnConflict(ctx, p, err)
	if err != nil || !result.IsZero() {
		return result, err
	}
	next = sooner(next, expires)
	result.RequeueAfter = next
	if early(seen) > 0 && (next == 0 || next > nextHold) {
		result.RequeueAfter = nextHold // See waits.
	}
	return result, nil
}

// waits reports whether a reconcile of a Pipeline would do nothing for a new observation: on a standby, and
// while its status is held. It is reconciled when the hold ends: each reconcile of a held Pipeline asks for that.
func (r *Reconciler) waits(key types.NamespacedName) bool {
	return !r.leads() || r.holds.holding(key, r.Clock.Now()) && !r.soaks.counts(key) && r.Index.Any(key, isEarly)
}

// primeReplica is prime, before a Pipeline is reconciled. If the clusters were not known in time, it waits for them: the
// Pipelines that name them are then reconciled again, with their demand.
func (r *Reconciler) primeReplica(ctx context.Context) {
	r.primed.Do(func() { r.prime(ctx) })
	if !r.demanded.Load() && r.Clusters.WaitForObjects(ctx) == nil {
		r.demanded.Store(true)
	}
}

// prime passes the demand of all Pipelines to the index and the watchers, before the first
// Pipeline is reconciled. A watch that starts with its complete demand needs one list; an
// object that is demanded later needs a read of its own.
func (r *Reconciler) prime(ctx context.Context) {
	wait, cancel := context.WithTimeout(ctx, primeWait)
	defer cancel()
	unknown := r.Clusters.WaitForObjects(wait)
	if unknown != nil {
		logger(ctx).Info("the clusters are not known yet, starting without them", "cause", unknown.Error())
	}
	var all pipelinesv1.PipelineList
	if err := r.Client.List(ctx, &all); err != nil {
		logger(ctx).Info("the Pipelines cannot be listed yet, starting with the first", "cause", err.Error())
	}
	demands := make(map[string][]watchers.Demand, len(all.Items))
	for i := range all.Items {
		if p := &all.Items[i]; p.DeletionTimestamp.IsZero() {
			at, key := r.locate(p), client.ObjectKeyFromObject(p)
			r.wake(r.Index.SetPipeline(key, at.use))
			demands[owner(key)] = at.demands
		}
	}
	r.Watchers.SetDemands(demands)
	r.demanded.Store(unknown == nil)
}

// requeueOnConflict turns a conflict into a requeue: it is not an error.
func (r *Reconciler) requeueOnConflict(ctx context.Context, p *pipelinesv1.Pipeline, err error) (ctrl.Result, error) {
	if errors.Is(err, errPruned) {
		return r.pruned(ctx, p), nil
	}
	if apierrors.IsConflict(err) || errors.Is(err, errMovedOn) {
		log.FromContext(ctx).V(1).Info("the Pipeline changed meanwhile, reconciling again", "cause", err.Error())
		return ctrl.Result{RequeueAfter: raceDelay}, nil
	}
	return ctrl.Result{}, err
}

// observedAs says which Pipeline was observed, by its UID, except the environments whose stored status stands.
type observedAs struct {
	uid    types.UID
	stands []string
}

// Observed returns whether this process has written its observations to the status of the
// Pipeline. Otherwise the status has the observations of an earlier process, and so it has of
// the environments that stand.
func (r *Reconciler) Observed(key types.NamespacedName, uid types.UID) (stands []string, observed bool) {
	of, _ := r.observed.Load(key)
	if as, is := of.(observedAs); is && as.uid == uid {
		return as.stands, true
	}
	return nil, false
}

func (r *Reconciler) forget(key types.NamespacedName) {
	r.observed.Delete(key)
	r.wake(r.Index.RemovePipeline(key))
	r.Watchers.SetDemand(owner(key), nil)
	r.holds.wait(key, 0, start{}, r.Clock.Now())
	r.soaks.forget(key)
	r.fleets.forget(key)
	r.dry.Delete(key)
	r.served(key)
}

// owner returns the name of a Pipeline as an owner of demand.
func owner(key types.NamespacedName) string { return "Pipeline/" + key.String() }

// writeStatus writes the status if it changed, with the resourceVersion that was read, and
// reports transitions. p has the new resourceVersion afterwards.
func (r *Reconciler) writeStatus(ctx context.Context, p *pipelinesv1.Pipeline, status pipelinesv1.PipelineStatus, clusterFault bool) error {
	if equality.Semantic.DeepEqual(p.Status, status) {
		return nil
	}
	before := *p
	if err := r.patchStatus(ctx, p, &status); err != nil {
		return err
	}
	r.reportTransitions(ctx, &before, p, clusterFault)
	return nil
}

// patchStatus writes what differs from the status of p, with the resourceVersion that was read. p has the new status
// and resourceVersion afterwards.
func (r *Reconciler) patchStatus(ctx context.Context, p *pipelinesv1.Pipeline, status *pipelinesv1.PipelineStatus) error {
	patch, err := statusPatch(p.ResourceVersion, &p.Status, status)
	if err != nil {
		return fmt.Errorf("encoding the status of Pipeline %s/%s: %w", p.Namespace, p.Name, err)
	}
	// The answer is only the metadata.
	written := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}
	written.SetGroupVersionKind(pipelinesv1.GroupVersion.WithKind(pipelinesv1.PipelineKind))
	began := r.Clock.Now()
	if err := r.Client.Status().Patch(ctx, written, client.RawPatch(types.JSONPatchType, patch)); err != nil {
		if apierrors.IsInvalid(err) {
			if why := r.refused(ctx, p); why != nil {
				return why
			}
		}
		return fmt.Errorf("writing the status of Pipeline %s/%s: %w", p.Namespace, p.Name, err)
	}
	r.holds.wrote(r.Clock.Since(began))
	p.Status, p.ResourceVersion = *status, written.ResourceVersion
	return nil
}

func logger(ctx context.Context) logr.Logger { return log.FromContext(ctx) }
