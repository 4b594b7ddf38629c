package promotion

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
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

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/internal/collectors"
	"github.com/capstan-hub/capstan/internal/promotions"
	"github.com/capstan-hub/capstan/internal/secretwatch"
	"github.com/capstan-hub/capstan/strategy"
)

const (
	// workers is how many Promotions are reconciled at a time. A strategy may wait for a
	// slow receiver until its deadline, so there are more workers than for Pipelines, and
	// a namespace has at most perTenant of them.
	workers = 16

	// raceDelay is the wait after a conflict, so that the cache receives the other write.
	raceDelay = 200 * time.Millisecond

	// observeDelay is how long to wait for the first observation of a Pipeline.
	observeDelay = time.Second

	// DefaultStallAfter is the age at which a promotion under way is stalled.
	DefaultStallAfter = 30 * time.Minute

	// withoutSecrets is the consequence when a Secret cannot be watched.
	withoutSecrets = "promotions that failed because of it start again only when spec.retry is raised; apply config/rbac/pipeline-secrets to the namespace"

	// DefaultRetention is how long finished promotions are kept.
	DefaultRetention = 30 * 24 * time.Hour

	// DefaultKeep is how many finished promotions into an environment are kept.
	DefaultKeep = 20
)

// Options of the reconciler.
type Options struct {
	// Client reads from the hub's cache and writes. In the cache, settled Promotions may be
	// stripped (internal/promotions).
	Client client.Client
	// APIReader reads from the API server, uncached, before each attempt.
	APIReader client.Reader
	// Ledger has the Promotions from which the delivery metrics are counted; not counted if nil.
	Ledger client.Reader
	// Observed returns whether this process has written its observations to the status of
	// the Pipeline, and the environments of which the status still has those of an earlier process.
	Observed func(pipeline types.NamespacedName, uid types.UID) (stands []string, observed bool)
	// Metadata watches the Secrets that failed promotions wait for. If nil, a change of a
	// Secret has an effect only when the promotion is reconciled.
	Metadata metadata.Interface
	// Strategies carry out promotions.
	Strategies strategy.Registry
	// Holder names this process in attempts. It is unique for each process.
	Holder string
	// StallAfter is the age at which a promotion under way is stalled;
	// DefaultStallAfter if 0.
	StallAfter time.Duration
	// Retention of finished promotions; DefaultRetention if 0.
	Retention time.Duration
	// Keep is how many finished promotions into an environment are kept, the newest first;
	// no limit if 0.
	Keep int
	// Recorder of Events.
	Recorder events.EventRecorder
	// Measurer of the queries of checks; without one they cannot be measured.
	Measurer Measurer
	// Registerer of the metrics; not registered if nil.
	Registerer prometheus.Registerer
	Clock      clock.WithTicker
}

// Reconciler reconciles Promotions.
type Reconciler struct {
	Options
	metrics *metrics
	follows *follows
	shown   *shown
	waits   *waits
	trials  trials
	checks  *checks
	tenants *tenants
	secrets *secretwatch.Source
	ledgers *ledgers
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
	return &Reconciler{
		Options: o, metrics: newMetrics(), follows: newFollows(o.Clock), shown: newShown(o.Clock), waits: newWaits(o.Clock), checks: newChecks(), tenants: newTenants(perTenant),
		secrets: secretwatch.NewSource(o.Metadata, withoutSecrets), ledgers: newLedgers(),
	}
}

// Collectors returns the metrics of the reconciler, without those of the promotions under way.
func (r *Reconciler) Collectors() []prometheus.Collector { return r.metrics.all() }

// SetupWithManager adds the controller to the manager and registers the metrics,
// including those of the promotions under way.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	collector := &Collector{Reader: mgr.GetCache(), Clock: r.Clock}
	if _, err := collectors.Register(r.Registerer, append(r.Collectors(), collector)...); err != nil {
		return err
	}
	for _, run := range []manager.RunnableFunc{r.retain, r.StoreTrials} {
		if err := mgr.Add(run); err != nil {
			return err
		}
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("promotion").
		For(&capstanv1.Promotion{}, builder.WithPredicates(predicate.Funcs{CreateFunc: r.unsettled})).
		Watches(&pipelinesv1.Pipeline{}, handler.EnqueueRequestsFromMapFunc(r.unfinishedOf)).
		Watches(&capstanv1.PromotionWindow{}, handler.EnqueueRequestsFromMapFunc(r.gated), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&capstanv1.PromotionRequest{}, handler.EnqueueRequestsFromMapFunc(causedBy), builder.WithPredicates(deletions)).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.gated), builder.WithPredicates(relabelled)).
		WatchesRawSource(r.secrets).
		WatchesRawSource(r.tenants).
		WatchesRawSource(r.checks).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
}

// unsettled notes the ledger of a Promotion, and returns whether the Promotion has to be
// reconciled after a start: a hub has many more settled ones than others.
func (r *Reconciler) unsettled(e event.CreateEvent) bool {
	if pipeline, ok := promotions.PipelineOf(e.Object); ok {
		r.ledgers.note(pipeline)
	}
	p, whole := e.Object.(*capstanv1.Promotion)
	return whole && !promotions.Settled(p) // The cache packs settled ones.
}

// unfinishedOf maps a Pipeline to its Promotions that are under way, failed, or may have an
// open pull request. They wait for changes of its status.
func (r *Reconciler) unfinishedOf(ctx context.Context, o client.Object) []reconcile.Request {
	all, err := promotions.UnsettledOfPipeline(ctx, r.Client, client.ObjectKeyFromObject(o), o.GetUID())
	if err != nil {
		log.FromContext(ctx).Error(err, "listing the Promotions of a Pipeline", "pipeline", client.ObjectKeyFromObject(o))
		return nil
	}
	var requests []reconcile.Request
	for i := range all {
		if p := &all[i]; !p.Status.Phase.Finished() || p.Status.Phase == capstanv1.PhaseFailed || r.mayBeOpen(p) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(p)})
		}
	}
	return requests
}

// deletions selects the Events of objects that were deleted.
var deletions = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(event.UpdateEvent) bool { return false },
}

// causedBy maps a PromotionRequest to the Promotion that it caused.
func causedBy(_ context.Context, o client.Object) []reconcile.Request {
	request, is := o.(*capstanv1.PromotionRequest)
	if !is || request.Status.Promotion == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: request.Namespace, Name: request.Status.Promotion}}}
}

// relabelled selects the Events of namespaces whose labels changed.
var relabelled = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	DeleteFunc: func(event.DeleteEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool { return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) },
}

// gated maps a PromotionWindow, or a namespace, to the Promotions for which it may have a
// meaning: those that were not carried out.
func (r *Reconciler) gated(ctx context.Context, o client.Object) []reconcile.Request {
	var list capstanv1.PromotionList
	options := []client.ListOption{client.MatchingFields{promotions.OpenField: promotions.OpenValue}, client.UnsafeDisableDeepCopy}
	if _, is := o.(*capstanv1.PromotionWindow); !is {
		options = append(options, client.InNamespace(o.GetName()))
	}
	if err := r.Client.List(ctx, &list, options...); err != nil {
		log.FromContext(ctx).Error(err, "listing the Promotions under way", "for", o.GetName())
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if p := &list.Items[i]; gatesMatter(p) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(p)})
		}
	}
	return requests
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	defer r.tenants.reconciled(request.NamespacedName)
	p := &capstanv1.Promotion{}
	if err := r.Client.Get(ctx, request.NamespacedName, p); err != nil {
		if apierrors.IsNotFound(err) {
			r.secrets.Drop(request.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !p.DeletionTimestamp.IsZero() {
		r.forget(p.UID)
		return ctrl.Result{}, nil
	}
	r.ledgers.note(types.NamespacedName{Namespace: p.Namespace, Name: p.Spec.Pipeline.Name})
	if over, err := r.over(ctx, p); over || err != nil {
		r.forget(p.UID)
		r.secrets.Drop(request.NamespacedName)
		return ctrl.Result{}, err
	}
	v, err := r.view(ctx, r.Client, p)
	if err != nil {
		return ctrl.Result{}, err
	}
	if v.pruned() {
		r.noteTrial(p, v)
		return ctrl.Result{RequeueAfter: judgeEvery}, nil
	}
	if v.early {
		return ctrl.Result{RequeueAfter: observeDelay}, nil // Observations of an earlier process decide nothing.
	}
	before := p.DeepCopy()
	r.advance(p, v, decision.OutcomeNone, "", "")
	r.skipBackoff(p, v)
	if p.Status.Phase.Finished() && (!before.Status.Phase.Finished() || p.Status.Retry != before.Status.Retry) {
		// The caches of Pipelines and Promotions are filled independently. The cached
		// Pipeline may be older than this promotion, and seem to end it. An end is
		// permanent, so it is decided again from uncached objects.
		if before, v, err = r.advanceUncached(ctx, p); err != nil {
			return requeueOnConflict(ctx, err)
		}
	}
	if err := r.write(ctx, before, p); err != nil {
		return requeueOnConflict(ctx, err)
	}
	r.watchSecret(p)
	again, err := r.showGatesOutside(ctx, p)
	if err != nil {
		return requeueOnConflict(ctx, err)
	}
	result, err := r.proceed(ctx, before, p, v)
	if err != nil {
		return result, err
	}
	if v.judges(p) {
		result = within(result, v.untilJudged(p))
	}
	if left := r.untilVerdict(p, v); left > 0 {
		result = within(result, left)
	}
	if left := r.measureChecks(p, v); left > 0 {
		result = within(result, left)
	}
	if again > 0 {
		result = within(result, again)
	}
	if v.stands && !p.Status.Phase.Finished() {
		result = within(result, observeDelay) // Nothing is written when the observation confirms the status.
	}
	return result, nil
}

// within returns a result that requeues after at most d.
func within(result ctrl.Result, d time.Duration) ctrl.Result {
	if result.RequeueAfter == 0 || d < result.RequeueAfter {
		result.RequeueAfter = d
	}
	return result
}

// proceed takes the next step of a promotion in its phase, or returns when one may be due. It does not
// know when gates change. before is the promotion as it was before this reconcile.
func (r *Reconciler) proceed(ctx context.Context, before, p *capstanv1.Promotion, v view) (ctrl.Result, error) {
	switch {
	case p.Status.Phase.Finished():
		return r.end(ctx, p, v)
	case v.suspended():
		return r.wait(p), nil
	case p.Status.Phase == capstanv1.PhaseAwaitingMerge:
		if aGateIsClosed(before) && !aGateIsClosed(p) {
			r.follows.now(p.UID)
		}
		if v.arrived(p) { // By a request or a rollback: its roll-out counts when the merge is recorded.
			r.follows.arrived(p.UID)
		}
		return r.follow(ctx, p, v)
	case p.Status.Phase == capstanv1.PhaseAwaitingGates, p.Status.Phase == capstanv1.PhasePromoting && v.closed(p) != nil:
		return ctrl.Result{}, nil
	case p.Status.Phase == capstanv1.PhasePromoting:
		if wait := r.untilFree(p, v); wait > 0 {
			return ctrl.Result{RequeueAfter: wait}, nil
		}
		return r.attemptWhenDue(ctx, p, func() error { return r.act(ctx, p, capstanv1.PhasePromoting) })
	default:
		return r.wait(p), nil
	}
}

// forget ends what this process remembers of a promotion.
func (r *Reconciler) forget(p types.UID) {
	r.follows.forget(p)
	r.shown.forget(p)
	r.waits.forget(p)
	r.trials.forget(p)
	r.checks.forget(p)
}

// over returns whether a promotion has ended and needs no reconcile: it is settled, or it
// failed or was rejected and a promotion with a higher number exists. Both are decided from
// the cache alone, so that finished promotions cause no requests. The cached object of a
// settled promotion may be stripped; it is not written, because nothing follows.
func (r *Reconciler) over(ctx context.Context, p *capstanv1.Promotion) (bool, error) {
	switch {
	case promotions.Settled(p):
		return true, nil
	case !p.Status.Phase.Finished(), p.Status.ObservedGeneration != p.Generation, r.mayBeOpen(p),
		promotions.HasFormerNames(p):
		return false, nil
	}
	all, err := promotions.OfPipeline(ctx, r.Client, types.NamespacedName{Namespace: p.Namespace, Name: p.Spec.Pipeline.Name}, p.Spec.Pipeline.UID)
	if err != nil {
		return false, err
	}
	newest := decision.NewestOf(p.Spec.Pipeline.UID, all, p.Spec.Environment)
	return newest != nil && newest.Spec.Number > p.Spec.Number, nil
}

// end closes the pull request that an ended promotion left open. A failed promotion that is
// not obsolete is tried again.
func (r *Reconciler) end(ctx context.Context, p *capstanv1.Promotion, v view) (ctrl.Result, error) {
	if p.Status.Phase == capstanv1.PhaseFailed && !failedInEnvironment(p) && !obsolete(p, v) {
		return r.tryAgain(ctx, p, v)
	}
	r.follows.forget(p.UID)
	if !gatesMatter(p) {
		r.shown.forget(p.UID)
	}
	if _, left := r.leftOpen(p, v); !left || v.suspended() {
		return ctrl.Result{}, nil
	}
	return r.attemptWhenDue(ctx, p, func() error { return r.withdraw(ctx, p) })
}

// attemptWhenDue makes an attempt, or requeues until the next attempt is due.
func (r *Reconciler) attemptWhenDue(ctx context.Context, p *capstanv1.Promotion, attempt func() error) (ctrl.Result, error) {
	if early := r.untilNextAttempt(p); early > 0 {
		return ctrl.Result{RequeueAfter: early}, nil
	}
	leave, ok := r.tenants.enter(client.ObjectKeyFromObject(p))
	if !ok {
		return withoutPlace()
	}
	defer leave()
	if err := attempt(); err != nil {
		return requeueOnConflict(ctx, err)
	}
	// The write of the outcome triggers the next reconcile; this is for a lost event.
	return ctrl.Result{RequeueAfter: raceDelay}, nil
}

// advanceUncached reads a promotion and the objects around it uncached, and advances it
// from there. before is the promotion as read; p is set to the result.
func (r *Reconciler) advanceUncached(ctx context.Context, p *capstanv1.Promotion) (before *capstanv1.Promotion, v view, err error) {
	now := &capstanv1.Promotion{}
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(p), now); err != nil {
		return nil, v, err
	}
	if v, err = r.view(ctx, r.APIReader, now); err != nil {
		return nil, v, err
	}
	before = now.DeepCopy()
	if v.pruned() {
		*p = *now
		return before, v, errPruned
	}
	r.advance(now, v, decision.OutcomeNone, "", "")
	*p = *now
	return before, v, nil
}

// watchSecret makes a change of the Secret with which a promotion, or its last attempt,
// failed reconcile it.
func (r *Reconciler) watchSecret(p *capstanv1.Promotion) {
	key := client.ObjectKeyFromObject(p)
	if p.Status.Secret == nil || p.Status.Phase.Finished() && p.Status.Phase != capstanv1.PhaseFailed {
		r.secrets.Drop(key)
		return
	}
	r.secrets.Want(key, types.NamespacedName{Namespace: p.Namespace, Name: p.Status.Secret.Name})
}

// wait requeues the promotion for the time when it is stalled. All other changes that it
// waits for arrive as events.
func (r *Reconciler) wait(p *capstanv1.Promotion) ctrl.Result {
	if p.Status.StartTime == nil || stalledAlready(p) || !ages(p) {
		return ctrl.Result{}
	}
	left := r.oldSince(p).Add(r.StallAfter).Sub(r.Clock.Now())
	return ctrl.Result{RequeueAfter: max(left, time.Second)}
}

// requeueOnConflict turns a conflict into a requeue: it is not an error.
func requeueOnConflict(ctx context.Context, err error) (ctrl.Result, error) {
	if errors.Is(err, errPruned) {
		return ctrl.Result{RequeueAfter: judgeEvery}, nil
	}
	if apierrors.IsConflict(err) {
		log.FromContext(ctx).V(1).Info("the Promotion changed meanwhile, reconciling again", "cause", err.Error())
		return ctrl.Result{RequeueAfter: raceDelay}, nil
	}
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

// write writes the status if it changed, with the resourceVersion that was read, and
// reports transitions. p has the new resourceVersion afterwards.
func (r *Reconciler) write(ctx context.Context, before, p *capstanv1.Promotion) error {
	p.Status.DropFormerNames()
	if equality.Semantic.DeepEqual(before.Status, p.Status) {
		return nil
	}
	patch := client.MergeFromWithOptions(before.PatchBase(), client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, p, patch); err != nil {
		return fmt.Errorf("writing the status of Promotion %s/%s: %w", p.Namespace, p.Name, err)
	}
	r.reportTransition(ctx, before, p)
	return nil
}
