package promotionwindow

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/gate"
	"github.com/capstan-hub/capstan/internal/collectors"
)

// Reasons of the condition Valid, and of Events.
const (
	// ReasonValid: the spec is valid.
	ReasonValid = "Valid"
	// ReasonInvalidSpec: the spec cannot be understood. A Deny is active, an Allow is not.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonActivated and ReasonDeactivated are of Events when the window begins and ends.
	ReasonActivated   = "Activated"
	ReasonDeactivated = "Deactivated"
)

const (
	// countAfter is how long changes of Pipelines and namespaces are collected.
	countAfter = time.Second
	// checkEvery bounds the time between two looks at the clock, which may be set.
	checkEvery = 5 * time.Minute
)

// Options of the reconciler.
type Options struct {
	// Client reads PromotionWindows, Pipelines and namespaces from the hub's cache,
	// and writes.
	Client   client.Client
	Recorder events.EventRecorder
	// Registerer of the metrics; not registered if nil.
	Registerer prometheus.Registerer
	// Shared: other hubs, which serve other namespaces, write the same statuses. None of them knows all Pipelines that a
	// window selects.
	Shared bool
	Clock  clock.PassiveClock
}

// Reconciler writes the statuses of PromotionWindows.
type Reconciler struct{ Options }

var _ reconcile.Reconciler = &Reconciler{}

// New makes a Reconciler.
func New(o Options) *Reconciler {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Reconciler{Options: o}
}

// SetupWithManager adds the controller to the manager and registers the metrics.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	if _, err := collectors.Register(r.Registerer, &Collector{Reader: mgr.GetCache(), Clock: r.Clock}); err != nil {
		return err
	}
	count := handler.Funcs{
		CreateFunc: func(ctx context.Context, _ event.CreateEvent, q queue) { r.countAll(ctx, q) },
		UpdateFunc: func(ctx context.Context, _ event.UpdateEvent, q queue) { r.countAll(ctx, q) },
		DeleteFunc: func(ctx context.Context, _ event.DeleteEvent, q queue) { r.countAll(ctx, q) },
	}
	relabelled := func(e event.UpdateEvent) bool {
		return e.ObjectNew.GetGeneration() != e.ObjectOld.GetGeneration() || !maps.Equal(e.ObjectNew.GetLabels(), e.ObjectOld.GetLabels())
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("promotionwindow").
		For(&capstanv1.PromotionWindow{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&pipelinesv1.Pipeline{}, count, builder.WithPredicates(predicate.Funcs{UpdateFunc: relabelled})).
		Watches(&corev1.Namespace{}, count, builder.WithPredicates(predicate.Funcs{UpdateFunc: relabelled})).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		Complete(r)
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func (r *Reconciler) countAll(ctx context.Context, q queue) {
	var list capstanv1.PromotionWindowList
	if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "listing PromotionWindows")
		return
	}
	for i := range list.Items {
		q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])}, countAfter)
	}
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	w := &capstanv1.PromotionWindow{}
	if err := r.Client.Get(ctx, request.NamespacedName, w); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	parsed := gate.ParseWindow(w)
	selected, err := r.count(ctx, parsed)
	if err != nil {
		return ctrl.Result{}, err
	}
	before := w.DeepCopy()
	next := r.update(w, parsed, selected)
	if equality.Semantic.DeepEqual(before.Status, w.Status) {
		return ctrl.Result{RequeueAfter: next}, nil
	}
	patch := client.MergeFrom(before)
	if r.Shared {
		patch = client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	}
	if err := r.Client.Status().Patch(ctx, w, patch); r.Shared && apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: countAfter}, nil // Another hub was first, and reports.
	} else if err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	r.report(ctx, before, w)
	return ctrl.Result{RequeueAfter: next}, nil
}

// update puts the present state into the status, and returns the time until the next look: also of a
// window that will not change by itself, because another program may change its status.
func (r *Reconciler) update(w *capstanv1.PromotionWindow, parsed *gate.ClusterWindow, selected int32) time.Duration {
	now := r.Clock.Now()
	s, first := &w.Status, w.Status.ObservedGeneration == 0
	active, change := parsed.At(now)
	if first || s.Active != active {
		s.LastTransitionTime = &metav1.Time{Time: now}
	}
	s.ObservedGeneration, s.Active, s.Pipelines, s.NextChangeTime = w.Generation, active, selected, nil
	valid := metav1.Condition{Type: capstanv1.ValidCondition, Status: metav1.ConditionTrue, Reason: ReasonValid, Message: "the spec is valid"}
	if err := parsed.Err(); err != nil {
		what := "the window is active, so that nothing is promoted by mistake"
		if w.Spec.Type == pipelinesv1.AllowWindow {
			what = "the window is not active, so that nothing is promoted by mistake"
		}
		valid.Status, valid.Reason = metav1.ConditionFalse, ReasonInvalidSpec
		valid.Message = fmt.Sprintf("correct %s; until then, %s", strings.ReplaceAll(err.Error(), "\n", "; "), what)
	}
	valid.ObservedGeneration, valid.LastTransitionTime = w.Generation, metav1.NewTime(now)
	meta.SetStatusCondition(&s.Conditions, valid)
	if change.IsZero() {
		return checkEvery
	}
	s.NextChangeTime = &metav1.Time{Time: change}
	return min(max(change.Sub(now), time.Millisecond), checkEvery)
}

// count returns how many Pipelines a window selects; 0 if the hub does not know that.
func (r *Reconciler) count(ctx context.Context, w *gate.ClusterWindow) (int32, error) {
	if r.Shared {
		return 0, nil
	}
	namespaces := map[string]labels.Set{}
	if w.NeedsNamespace() {
		var list corev1.NamespaceList
		if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			return 0, fmt.Errorf("listing namespaces: %w", err)
		}
		for i := range list.Items {
			namespaces[list.Items[i].Name] = list.Items[i].Labels
		}
	}
	var list pipelinesv1.PipelineList
	if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("listing Pipelines: %w", err)
	}
	var n int32
	for i := range list.Items {
		p := list.Items[i].Shown()
		for e := 1; e < len(p.Spec.Environments); e++ { // Nothing is promoted into the first.
			env := &p.Spec.Environments[e]
			if p.PromotionFor(env) != nil && w.Selects(p, env.Name, namespaces[p.Namespace]) {
				n++
				break
			}
		}
	}
	return n, nil
}

// report emits Events of transitions.
func (r *Reconciler) report(ctx context.Context, before, w *capstanv1.PromotionWindow) {
	isValid := func(o *capstanv1.PromotionWindow) bool {
		return !meta.IsStatusConditionFalse(o.Status.Conditions, capstanv1.ValidCondition)
	}
	emit := func(kind, reason, message string) {
		r.Recorder.Eventf(w, nil, kind, reason, "Judge", "%s", message)
		log.FromContext(ctx).Info("the state of the PromotionWindow changed", "reason", reason, "message", message)
	}
	i := slices.IndexFunc(w.Status.Conditions, func(c metav1.Condition) bool { return c.Type == capstanv1.ValidCondition })
	switch was, is := isValid(before), isValid(w); {
	case was && !is:
		emit(corev1.EventTypeWarning, ReasonInvalidSpec, w.Status.Conditions[i].Message)
	case !was && is:
		emit(corev1.EventTypeNormal, ReasonValid, w.Status.Conditions[i].Message)
	}
	pipelines := fmt.Sprintf("; it selects %d Pipelines", w.Status.Pipelines)
	if r.Shared {
		pipelines = ""
	}
	switch {
	case w.Status.Active && !before.Status.Active:
		emit(corev1.EventTypeNormal, ReasonActivated, "the window is active"+pipelines)
	case before.Status.Active && !w.Status.Active:
		emit(corev1.EventTypeNormal, ReasonDeactivated, "the window is not active any more"+pipelines)
	}
}
