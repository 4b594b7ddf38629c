package promotion

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/internal/collectors"
	"github.com/capstan-hub/capstan/internal/promotions"
	"github.com/capstan-hub/capstan/internal/secretwatch"
	"github.com/capstan-hub/capstan/strategy"
)

const (
	// workers bounds how many Promotions are carried out at a time. A strategy may
	// wait for a slow receiver until its deadline, so there are more than for Pipelines.
	workers = 16

	// raceDelay lets the cache catch up with what won a race.
	raceDelay = 200 * time.Millisecond

	// lookDelay is how long to wait for the first look at a Pipeline.
	lookDelay = time.Second

	// DefaultStallAfter is when a promotion under way is called stalled.
	DefaultStallAfter = 30 * time.Minute

	// withoutSecrets is what it means when a Secret cannot be watched.
	withoutSecrets = "promotions that failed for it begin again only by hand; apply config/rbac/pipeline-secrets to the namespace"

	// DefaultRetention is how long finished promotions are kept.
	DefaultRetention = 30 * 24 * time.Hour
)

// Options of the reconciler.
type Options struct {
	// Client reads from the hub's cache and writes.
	Client client.Client
	// APIReader reads from the API server, for the look before each outside step.
	APIReader client.Reader
	// Looked tells whether the status of a Pipeline is of what this process has seen.
	Looked func(pipeline types.NamespacedName, uid types.UID) bool
	// Metadata watches the Secrets that failed promotions wait for; nil for none, so
	// that their change is only seen when the promotion is looked at.
	Metadata metadata.Interface
	// Strategies carry promotions out.
	Strategies strategy.Registry
	// Holder names this process in attempts; no two processes have the same.
	Holder string
	// StallAfter is when a promotion under way is called stalled;
	// DefaultStallAfter when 0.
	StallAfter time.Duration
	// Retention of finished promotions; DefaultRetention when 0.
	Retention time.Duration
	// Recorder of Events.
	Recorder events.EventRecorder
	// Registerer of the metrics; not registered when nil.
	Registerer prometheus.Registerer
	Clock      clock.PassiveClock
}

// Reconciler reconciles Promotions.
type Reconciler struct {
	Options
	metrics *metrics
	follows *follows
	secrets *secretwatch.Source
}

var _ reconcile.Reconciler = &Reconciler{}

// New makes a Reconciler.
func New(o Options) *Reconciler {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.StallAfter == 0 {
		o.StallAfter = DefaultStallAfter
	}
	if o.Retention == 0 {
		o.Retention = DefaultRetention
	}
	return &Reconciler{Options: o, metrics: newMetrics(), follows: newFollows(o.Clock), secrets: secretwatch.NewSource(o.Metadata, withoutSecrets)}
}

// SetupWithManager adds the controller to the manager and registers the metrics, those of
// the promotions under way included.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	collector := &Collector{Reader: mgr.GetCache(), Clock: r.Clock}
	if _, err := collectors.Register(r.Registerer, append(r.metrics.all(), collector)...); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("promotion").
		For(&capstanv1.Promotion{}).
		Watches(&pipelinesv1.Pipeline{}, handler.EnqueueRequestsFromMapFunc(r.unfinishedOf)).
		WatchesRawSource(r.secrets).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
}

// unfinishedOf maps a Pipeline to those of its Promotions that are under way. Its
// status carries the facts that they wait for.
func (r *Reconciler) unfinishedOf(ctx context.Context, o client.Object) []reconcile.Request {
	all, err := promotions.OfPipeline(ctx, r.Client, client.ObjectKeyFromObject(o), o.GetUID())
	if err != nil {
		log.FromContext(ctx).Error(err, "listing the Promotions of a Pipeline", "pipeline", client.ObjectKeyFromObject(o))
		return nil
	}
	var requests []reconcile.Request
	for i := range all {
		if p := &all[i]; !p.Status.Phase.Finished() || r.mayBeOpen(p) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(p)})
		}
	}
	return requests
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	p := &capstanv1.Promotion{}
	if err := r.Client.Get(ctx, request.NamespacedName, p); err != nil {
		if apierrors.IsNotFound(err) {
			r.secrets.Drop(request.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !p.DeletionTimestamp.IsZero() {
		r.follows.forget(p.UID)
		return ctrl.Result{}, nil
	}
	v, err := r.view(ctx, r.Client, p)
	if err != nil {
		return ctrl.Result{}, err
	}
	if v.pipeline != nil && !r.Looked(client.ObjectKeyFromObject(v.pipeline), v.pipeline.UID) {
		return ctrl.Result{RequeueAfter: lookDelay}, nil // What an earlier process saw decides nothing.
	}
	before := p.DeepCopy()
	r.live(p, v, decision.OutcomeNone, "", "")
	if p.Status.Phase.Finished() && (!before.Status.Phase.Finished() || p.Status.Retry != before.Status.Retry) {
		// The caches of Pipelines and Promotions are filled apart: what seems to end
		// this promotion may be a Pipeline as it was before it. An end is for good, so
		// it is looked at again.
		if before, v, err = r.lookAgain(ctx, p); err != nil {
			return again(ctx, err)
		}
	}
	if err := r.write(ctx, before, p); err != nil {
		return again(ctx, err)
	}
	r.want(p)
	switch {
	case p.Status.Phase.Finished():
		return r.end(ctx, p, v)
	case v.suspended():
		return r.wait(p), nil
	case p.Status.Phase == capstanv1.PhaseAwaitingMerge:
		return r.follow(ctx, p, v)
	case p.Status.Phase == capstanv1.PhasePromoting:
		return r.try(ctx, p, func() error { return r.act(ctx, p, capstanv1.PhasePromoting) })
	default:
		return r.wait(p), nil
	}
}

// end takes back what a promotion left open that nobody wants any more, and deletes old ones.
func (r *Reconciler) end(ctx context.Context, p *capstanv1.Promotion, v view) (ctrl.Result, error) {
	r.follows.forget(p.UID)
	result, err := r.retire(ctx, p, v)
	if _, left := r.leftOpen(p, v); err != nil || !left || v.suspended() {
		return result, err
	}
	return r.try(ctx, p, func() error { return r.withdraw(ctx, p) })
}

// try an attempt when its time has come.
func (r *Reconciler) try(ctx context.Context, p *capstanv1.Promotion, attempt func() error) (ctrl.Result, error) {
	if early := r.untilNextAttempt(p); early > 0 {
		return ctrl.Result{RequeueAfter: early}, nil
	}
	if err := attempt(); err != nil {
		return again(ctx, err)
	}
	// The write of the outcome brings the next look; this is for when it is lost.
	return ctrl.Result{RequeueAfter: raceDelay}, nil
}

// lookAgain reads a promotion and what is around it uncached, and asks the table anew.
func (r *Reconciler) lookAgain(ctx context.Context, p *capstanv1.Promotion) (before *capstanv1.Promotion, v view, err error) {
	now := &capstanv1.Promotion{}
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(p), now); err != nil {
		return nil, v, err
	}
	if v, err = r.view(ctx, r.APIReader, now); err != nil {
		return nil, v, err
	}
	before = now.DeepCopy()
	r.live(now, v, decision.OutcomeNone, "", "")
	*p = *now
	return before, v, nil
}

// want has a failed promotion woken by the Secret that it failed with.
func (r *Reconciler) want(p *capstanv1.Promotion) {
	key := client.ObjectKeyFromObject(p)
	if p.Status.Phase != capstanv1.PhaseFailed || p.Status.Secret == nil {
		r.secrets.Drop(key)
		return
	}
	r.secrets.Want(key, types.NamespacedName{Namespace: p.Namespace, Name: p.Status.Secret.Name})
}

// wait until the promotion would be called stalled. Everything else that it waits
// for comes as an event.
func (r *Reconciler) wait(p *capstanv1.Promotion) ctrl.Result {
	if p.Status.StartTime == nil || stalledAlready(p) {
		return ctrl.Result{}
	}
	left := p.Status.StartTime.Add(r.StallAfter).Sub(r.Clock.Now())
	return ctrl.Result{RequeueAfter: max(left, time.Second)}
}

// again turns losing a race into another look, which is not an error.
func again(ctx context.Context, err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) {
		log.FromContext(ctx).V(1).Info("somebody else was faster, looking again", "cause", err.Error())
		return ctrl.Result{RequeueAfter: raceDelay}, nil
	}
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

// write the status if it changed, on the resourceVersion that was read, and tell
// of transitions. p carries the new resourceVersion afterwards.
func (r *Reconciler) write(ctx context.Context, before, p *capstanv1.Promotion) error {
	p.Status.DropFormerNames()
	if equality.Semantic.DeepEqual(before.Status, p.Status) {
		return nil
	}
	patch := client.MergeFromWithOptions(before.PatchBase(), client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, p, patch); err != nil {
		return fmt.Errorf("writing the status of Promotion %s/%s: %w", p.Namespace, p.Name, err)
	}
	r.tell(ctx, before, p)
	return nil
}
