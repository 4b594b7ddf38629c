package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
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

// workers bounds how many Pipelines are reconciled at a time. Each waits for the
// management cluster's API server only.
const workers = 8

// primeWait bounds how long the first look waits for the cluster objects. They take
// some 100 ms of a healthy API server.
const primeWait = 5 * time.Second

// Resolver finds the cluster that a reference means, without asking anybody.
type Resolver interface {
	Resolve(clusters.Ref) (multicluster.ClusterName, error)
	// WaitForObjects waits until the references can be resolved.
	WaitForObjects(ctx context.Context) error
}

// Demander is told what is to be watched.
type Demander interface {
	SetDemand(owner string, want []watchers.Demand)
}

// Options of the reconciler.
type Options struct {
	// Client reads from the hub's cache and writes.
	Client client.Client
	// APIReader reads from the API server, for the look before a Promotion is made.
	APIReader client.Reader
	// Clusters resolves references.
	Clusters Resolver
	// Watchers is told what is to be watched.
	Watchers Demander
	// Index knows what was seen.
	Index *index.Index
	// AppKinds are the kinds that the administrator allows.
	AppKinds []schema.GroupKind
	// NoCrossNamespaceRefs keeps a Pipeline to clusters of its own namespace.
	NoCrossNamespaceRefs bool
	// Recorder of Events.
	Recorder events.EventRecorder
	// Registerer of the metrics; not registered when nil.
	Registerer prometheus.Registerer
	Clock      clock.PassiveClock
}

// Reconciler reconciles Pipelines.
type Reconciler struct {
	Options
	metrics *metrics
	primed  sync.Once
	holds   holds
	// looked: Pipeline → UID of the one whose status this process has brought up to date.
	looked sync.Map
}

var _ reconcile.Reconciler = &Reconciler{}

// New makes a Reconciler.
func New(o Options) *Reconciler {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Reconciler{Options: o, metrics: newMetrics()}
}

// SetupWithManager adds the controller to the manager and registers the metrics. The waker brings what the
// watchers and the connections have to tell.
//
// The Pipeline's own status brings another look, too: one that found nothing to
// write may have compared with a cache that was older than the last write, and
// nobody else would ever say so.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, waker *Waker) error {
	if _, err := collectors.Register(r.Registerer, r.metrics.all()...); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("pipeline").
		For(&pipelinesv1.Pipeline{}).
		Watches(&capstanv1.Promotion{}, handler.EnqueueRequestsFromMapFunc(pipelineOf)).
		WatchesRawSource(waker).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
}

// pipelineOf maps a Promotion to its Pipeline.
func pipelineOf(_ context.Context, o client.Object) []reconcile.Request {
	p, ok := o.(*capstanv1.Promotion)
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: p.Namespace, Name: p.Spec.Pipeline.Name}}}
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	r.primed.Do(func() { r.prime(ctx) })
	key := request.NamespacedName
	p := &pipelinesv1.Pipeline{}
	if err := r.Client.Get(ctx, key, p); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(key)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("reading Pipeline %s: %w", key, err)
	}
	if !p.DeletionTimestamp.IsZero() {
		r.forget(key)
		return ctrl.Result{}, nil
	}

	cached, err := promotions.OfPipeline(ctx, r.Client, key, p.UID)
	if err != nil {
		return ctrl.Result{}, err
	}
	seen := r.observe(p)
	if wait := r.holds.wait(key, early(seen), r.Clock.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	if err := r.writeStatus(ctx, p, r.status(p, seen, cached)); err != nil {
		return r.again(ctx, err)
	}
	r.looked.Store(key, p.UID)
	return r.again(ctx, r.promote(ctx, p, seen, cached))
}

// prime tells the index and the watchers what all Pipelines need, before the first is
// looked at. A watch that begins when all that is demanded of it is known brings it
// in one list; what is demanded later takes a read of its own.
func (r *Reconciler) prime(ctx context.Context) {
	wait, cancel := context.WithTimeout(ctx, primeWait)
	defer cancel()
	if err := r.Clusters.WaitForObjects(wait); err != nil {
		logger(ctx).Info("the clusters are not known yet, beginning without", "cause", err.Error())
	}
	var all pipelinesv1.PipelineList
	if err := r.Client.List(ctx, &all); err != nil {
		logger(ctx).Info("the Pipelines cannot be listed yet, beginning with the first", "cause", err.Error())
	}
	for i := range all.Items {
		if all.Items[i].DeletionTimestamp.IsZero() {
			r.observe(&all.Items[i])
		}
	}
}

// again turns losing a race into another look, which is not an error.
func (r *Reconciler) again(ctx context.Context, err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) || errors.Is(err, errMovedOn) {
		log.FromContext(ctx).V(1).Info("somebody else was faster, looking again", "cause", err.Error())
		return ctrl.Result{RequeueAfter: raceDelay}, nil
	}
	return ctrl.Result{}, err
}

// Looked tells whether the status of a Pipeline is of what this process has seen, and
// not of what another one saw before it.
func (r *Reconciler) Looked(key types.NamespacedName, uid types.UID) bool {
	of, looked := r.looked.Load(key)
	return looked && of == uid
}

func (r *Reconciler) forget(key types.NamespacedName) {
	r.looked.Delete(key)
	r.Index.RemovePipeline(key)
	r.Watchers.SetDemand(owner(key), nil)
	r.holds.wait(key, 0, r.Clock.Now())
}

// owner is a Pipeline's name as an owner of demand.
func owner(key types.NamespacedName) string { return "Pipeline/" + key.String() }

// writeStatus writes the status if it changed, on the resourceVersion that was
// read, and tells of transitions. p carries the new resourceVersion afterwards.
func (r *Reconciler) writeStatus(ctx context.Context, p *pipelinesv1.Pipeline, status pipelinesv1.PipelineStatus) error {
	if equality.Semantic.DeepEqual(p.Status, status) {
		return nil
	}
	before := p.DeepCopy()
	p.Status = status
	if err := r.Client.Status().Patch(ctx, p, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("writing the status of Pipeline %s/%s: %w", p.Namespace, p.Name, err)
	}
	r.tell(ctx, before, p)
	return nil
}

func logger(ctx context.Context) logr.Logger { return log.FromContext(ctx) }
