package annotator

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mccontroller "sigs.k8s.io/multicluster-runtime/pkg/controller"
	mchandler "sigs.k8s.io/multicluster-runtime/pkg/handler"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/hub/annotator/annotation"
	"github.com/capstan-hub/capstan/hub/annotator/capacity"
	"github.com/capstan-hub/capstan/hub/annotator/catalogue"
	"github.com/capstan-hub/capstan/internal/memberwrite"
	"github.com/capstan-hub/capstan/watchers"
)

const (
	// workers of each kind. They wait only for their patches. A management cluster accepts
	// about a thousand patches per second.
	workers = 16
	// errorRetry doubles up to errorRetryMax.
	errorRetry, errorRetryMax = time.Second, 5 * time.Minute
)

// Options of the annotator.
type Options struct {
	// Watchers read the node groups and the objects that they reference.
	Watchers *watchers.Watcher
	// Catalogue returns the capacity of instance types.
	Catalogue catalogue.Catalogue
	// Recorder records Events in the management cluster.
	Recorder events.EventRecorder
	// Families of annotations to write; all when nil.
	Families []annotation.Family
	// Pods is how pods are counted if a Cluster has no MaxPodsAnnotation.
	Pods capacity.PodsPolicy
	// Notify is called when annotations were written, or cannot be written. It may be nil. It
	// must not block.
	Notify func(Report)
	// DefaultRegion applies to node groups for which no object names a region; none when empty.
	DefaultRegion string
	// Registerer of the metrics; not registered when nil.
	Registerer prometheus.Registerer
	Clock      clock.Clock
	Logger     logr.Logger
}

// SetupWithManager adds one controller for each kind of node group. They annotate the node
// groups of the management cluster and of each cluster that the manager engages.
func SetupWithManager(mgr mcmanager.Manager, o Options) error {
	if o.Families == nil {
		o.Families = annotation.Families()
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	m := newMetrics()
	if err := m.register(o.Registerer); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	local := mgr.GetLocalManager()
	patches, err := memberwrite.LocalClient(local)
	if err != nil {
		return err
	}
	for _, kind := range nodeGroups() {
		r := &Reconciler{
			Options: o, kind: kind, dependents: newDependents(), metrics: m,
			notifier: newNotifier(kind.Kind, o, m),
			writer: &writer{
				Writer: memberwrite.Writer{FieldManager: annotation.FieldManager, Local: patches, Clusters: mgr.GetCluster},
				lanes:  &memberwrite.Lanes{Clock: o.Clock, Rests: laneRests, Retry: laneRetry},
			},
			contests: contests{clock: o.Clock},
		}
		if err := r.setup(mgr); err != nil {
			return fmt.Errorf("annotating %s: %w", kind.Kind, err)
		}
	}
	return nil
}

func (r *Reconciler) setup(mgr mcmanager.Manager) error {
	controller, err := mccontroller.New("annotator-"+r.kind.Kind, mgr, mccontroller.Options{
		Reconciler:              r,
		MaxConcurrentReconciles: workers,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[mcreconcile.Request](errorRetry, errorRetryMax),
		// Names need to be unique in a process only for controller-runtime's own metrics.
		SkipNameValidation: ptr.To(true),
		RecoverPanic:       ptr.To(true),
		Logger:             r.Logger,
		LogConstructor: func(who *mcreconcile.Request) logr.Logger {
			line := r.Logger.WithValues("kind", r.kind.Kind)
			if who != nil {
				line = line.WithValues("namespace", who.Namespace, "name", who.Name, "cluster", who.ClusterName)
			}
			return line
		},
	})
	if err != nil {
		return err
	}
	members := []watchers.MemberSource{r.Watchers.Left(r.left)}
	watch := func(kind schema.GroupKind, handle mchandler.TypedEventHandlerFunc[client.Object, mcreconcile.Request]) error {
		from := r.Watchers.Source(kind, handle)
		members = append(members, from)
		// Connections engage workload clusters only.
		local, _, err := from.ForCluster(clusters.LocalName, mgr.GetLocalManager())
		if err != nil {
			return err
		}
		return controller.Watch(local)
	}
	if err := watch(r.kind, changed(r.kind, watchers.Enqueue, r.awaits)); err != nil {
		return err
	}
	for _, kind := range behind(r.kind) {
		if err := watch(kind, changed(kind, r.enqueueConcerned(kind), nil)); err != nil {
			return err
		}
	}
	if err := watchers.WatchMembers(mgr, controller, members...); err != nil {
		return err
	}
	r.Catalogue.Notify(r.woken)
	return controller.Watch(source.TypedFunc[mcreconcile.Request](func(_ context.Context, q queue) error {
		r.queue.Store(&q)
		return nil
	}))
}

// queue is the workqueue of a controller.
type queue = memberwrite.Queue

// woken enqueues the node groups whose reconciliation queried the catalogue for a region. The
// catalogue calls it when it has a new answer for that region.
func (r *Reconciler) woken(region string) {
	if q := r.queue.Load(); q != nil {
		for _, who := range r.dependents.concerned(dependency{region: region}) {
			(*q).Add(who)
		}
	}
}

// left forgets the node groups of a cluster that is no longer engaged or self-managed. It
// enqueues them, because a new engagement may have added them again in the meantime.
func (r *Reconciler) left(name multicluster.ClusterName, q queue) {
	for _, who := range r.dependents.drop(name) {
		r.forget(who)
		q.Add(who)
	}
}

// enqueueConcerned enqueues the node groups whose reconciliation has read the object.
func (r *Reconciler) enqueueConcerned(kind schema.GroupKind) mchandler.TypedEventHandlerFunc[client.Object, mcreconcile.Request] {
	return func(name multicluster.ClusterName, _ cluster.Cluster) handler.TypedEventHandler[client.Object, mcreconcile.Request] {
		return handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []mcreconcile.Request {
			return r.dependents.concerned(dependency{cluster: name, kind: kind, ObjectKey: client.ObjectKeyFromObject(o)})
		})
	}
}

// changed skips updates that change no field that this package reads. Other consumers of the
// same watch may read more fields: the dashboard shows the replicas of a MachineDeployment.
// It does not skip the update of an awaited object: after a broken watch, a patch and its
// revert appear as one update that changes nothing.
func changed(kind schema.GroupKind, inner mchandler.TypedEventHandlerFunc[client.Object, mcreconcile.Request], awaits func(multicluster.ClusterName, client.Object) bool) mchandler.TypedEventHandlerFunc[client.Object, mcreconcile.Request] {
	read, _ := Kind(kind)
	return func(name multicluster.ClusterName, cl cluster.Cluster) handler.TypedEventHandler[client.Object, mcreconcile.Request] {
		h := inner(name, cl)
		return handler.TypedFuncs[client.Object, mcreconcile.Request]{
			CreateFunc: h.Create,
			UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[client.Object], q queue) {
				if !same(read, e.ObjectOld, e.ObjectNew) || awaits != nil && awaits(name, e.ObjectOld) {
					h.Update(ctx, e, q)
				}
			},
			DeleteFunc:  h.Delete,
			GenericFunc: h.Generic,
		}
	}
}

// awaits reports whether a patch was sent that was based on this state of a node group.
func (r *Reconciler) awaits(name multicluster.ClusterName, o client.Object) bool {
	return r.unseen.awaits(mcreconcile.Request{ClusterName: name, Request: reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}}, o.GetResourceVersion())
}

// same reports whether two states of an object are equal in all fields that are read of its kind.
func same(read watchers.Kind, a, b client.Object) bool {
	x, ok := unversioned(read, a)
	y, also := unversioned(read, b)
	return ok && also && equality.Semantic.DeepEqual(x, y)
}

// unversioned returns the fields that are read of an object, without its resourceVersion.
func unversioned(read watchers.Kind, o client.Object) (client.Object, bool) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return nil, false
	}
	kept, err := read.Reduce(u)
	if err != nil {
		return nil, false
	}
	kept.SetResourceVersion("")
	return kept, true
}
