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

// withoutWatch is what it means when a Secret cannot be watched.
const withoutWatch = "a change of it is seen at the next look, within a minute; apply config/rbac/backend-secrets to the namespace"

// Reconciler of EventingBackends. It is a Runnable of the manager, too, and has one: the
// publisher.
type Reconciler struct {
	Options
	publisher *publisher.Publisher
	secrets   *secretwatch.Source

	// started is closed when connections may be made; life is theirs, and runs are their
	// goroutines.
	started chan struct{}
	life    context.Context //nolint:containedctx // It is the manager's, given to Start.
	runs    sync.WaitGroup
	// queue is nil until the controller starts.
	queue atomic.Pointer[requests]

	// busy reconciles; nothing is added once lockedOver is set.
	busy sync.WaitGroup

	// mu guards the fields that follow.
	mu            sync.Mutex
	lockedEntries map[types.NamespacedName]*entry
	// lockedOver: nothing more is opened.
	lockedOver bool
}

type requests = workqueue.TypedRateLimitingInterface[reconcile.Request]

var (
	_ reconcile.Reconciler           = &Reconciler{}
	_ manager.LeaderElectionRunnable = &Reconciler{}
)

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*Reconciler) NeedLeaderElection() bool { return false }

// New makes a Reconciler and its publisher.
func New(o Options) *Reconciler {
	o.defaults()
	r := &Reconciler{
		Options: o, secrets: secretwatch.NewSource(o.Metadata, withoutWatch),
		started: make(chan struct{}), lockedEntries: map[types.NamespacedName]*entry{},
	}
	o.Publisher.Changed, o.Publisher.GivenUp, o.Publisher.Ended = r.look, r.givenUp, r.ended
	r.publisher = publisher.New(o.Publisher)
	return r
}

// Publisher that the EventingBackends are published through.
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
		Watches(&eventingv1.EventingBackend{}, handler.EnqueueRequestsFromMapFunc(r.namedBy), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
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

// Start lets connections be made until the context ends, and waits for their goroutines.
func (r *Reconciler) Start(ctx context.Context) error {
	r.life = ctx
	close(r.started)
	select {
	case <-r.Elected: // Now this replica writes status.
		r.lookAtAll()
	case <-ctx.Done():
	}
	<-ctx.Done()
	r.mu.Lock()
	r.lockedOver = true
	all := make([]*entry, 0, len(r.lockedEntries))
	for _, e := range r.lockedEntries {
		all = append(all, e)
	}
	r.mu.Unlock()
	r.busy.Wait()
	for _, e := range all {
		r.abandon(e)
	}
	r.runs.Wait()
	return nil
}

func (r *Reconciler) lookAtAll() {
	r.mu.Lock()
	names := slices.Collect(maps.Keys(r.lockedEntries))
	r.mu.Unlock()
	for _, name := range names {
		r.Look(name)
	}
}

// leads tells whether this replica does.
func (r *Reconciler) leads() bool {
	select {
	case <-r.Elected:
		return true
	default:
		return false
	}
}

// Look at an EventingBackend soon. It does not block.
func (r *Reconciler) Look(name types.NamespacedName) {
	if q := r.queue.Load(); q != nil {
		(*q).Add(reconcile.Request{NamespacedName: name})
	}
}
