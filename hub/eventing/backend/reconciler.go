package backend

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/publisher"
	"github.com/capstan-hub/capstan/internal/secretwatch"
)

// withoutWatch is the log message for a Secret that cannot be watched.
const withoutWatch = "the hub reads changes of it within a minute; apply config/rbac/backend-secrets to the namespace"

// Reconciler reconciles EventingBackends. It is also a Runnable of the manager, and owns
// another one: the publisher.
type Reconciler struct {
	Options
	publisher *publisher.Publisher
	secrets   *secretwatch.Source

	// started is closed when connections may be opened. They end with runContext;
	// goroutines are their goroutines.
	started    chan struct{}
	runContext context.Context //nolint:containedctx // It is the manager's, given to Start.
	goroutines sync.WaitGroup
	// queue is nil until the controller starts.
	queue atomic.Pointer[requests]

	// busy counts running reconciles; none is added once lockedStopped is set.
	busy sync.WaitGroup

	// mu guards the fields that follow.
	mu            sync.Mutex
	lockedEntries map[types.NamespacedName]*entry
	// lockedStopped: no more connections are opened.
	lockedStopped bool
}

type requests = workqueue.TypedRateLimitingInterface[reconcile.Request]

var (
	_ reconcile.Reconciler           = &Reconciler{}
	_ manager.LeaderElectionRunnable = &Reconciler{}
)

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*Reconciler) NeedLeaderElection() bool { return false }

// New returns a Reconciler with its publisher.
func New(o Options) *Reconciler {
	o.defaults()
	r := &Reconciler{
		Options: o, secrets: secretwatch.NewSource(o.Metadata, withoutWatch),
		started: make(chan struct{}), lockedEntries: map[types.NamespacedName]*entry{},
	}
	o.Publisher.Changed, o.Publisher.GivenUp, o.Publisher.Ended = r.enqueueBackend, r.givenUp, r.ended
	r.publisher = publisher.New(o.Publisher)
	return r
}

// Publisher returns the publisher of the EventingBackends.
func (r *Reconciler) Publisher() *publisher.Publisher { return r.publisher }

// SetupWithManager adds the controller, the connections and the publisher to the manager,
// on every replica.
func (r *Reconciler) SetupWithManager(mgr manager.Manager) error {
	for _, runnable := range []manager.Runnable{r.publisher, r} {
		if err := mgr.Add(runnable); err != nil {
			return err
		}
	}
	return builder.ControllerManagedBy(mgr).
		Named("eventingbackend").
		For(&eventingv1.EventingBackend{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&eventingv1.EventingBackend{}, handler.EnqueueRequestsFromMapFunc(r.deadLetterUsers), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(r.secrets).
		WatchesRawSource(source.TypedFunc[reconcile.Request](func(_ context.Context, q requests) error {
			r.queue.Store(&q)
			return nil
		})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			NeedLeaderElection:      ptr.To(false),
			SkipNameValidation:      ptr.To(true),
			RecoverPanic:            ptr.To(true),
		}).
		Complete(r)
}

// Start allows connections to be opened until the context ends, and waits for their
// goroutines.
func (r *Reconciler) Start(ctx context.Context) error {
	r.runContext = ctx
	close(r.started)
	select {
	case <-r.Elected: // From now on, this replica writes the status.
		r.enqueueAll()
	case <-ctx.Done():
	}
	<-ctx.Done()
	r.mu.Lock()
	r.lockedStopped = true
	all := make([]*entry, 0, len(r.lockedEntries))
	for _, e := range r.lockedEntries {
		all = append(all, e)
	}
	r.mu.Unlock()
	r.busy.Wait()
	for _, e := range all {
		r.discardNext(e)
	}
	r.goroutines.Wait()
	return nil
}

func (r *Reconciler) enqueueAll() {
	r.mu.Lock()
	names := slices.Collect(maps.Keys(r.lockedEntries))
	r.mu.Unlock()
	for _, name := range names {
		r.Enqueue(name)
	}
}

// isLeader reports whether this replica is the leader.
func (r *Reconciler) isLeader() bool {
	select {
	case <-r.Elected:
		return true
	default:
		return false
	}
}

// Enqueue requests a reconcile of an EventingBackend. It does not block.
func (r *Reconciler) Enqueue(name types.NamespacedName) {
	if q := r.queue.Load(); q != nil {
		(*q).Add(reconcile.Request{NamespacedName: name})
	}
}
