package instancestate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	ctrlsource "sigs.k8s.io/controller-runtime/pkg/source"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/instancestate/queue"
)

// sourceWorkers reconcile EventingBackends. A reconciliation does not wait for a queue.
const sourceWorkers = 4

// sources runs a consumer for each EventingBackend with role source.
type sources struct {
	r      *Labeler
	client client.Client
	// started is closed when consumers may run, with ctx.
	started chan struct{}
	ctx     context.Context //nolint:containedctx // It is the context that the manager passes to Start.
	readers sync.WaitGroup
	// queue is nil until the controller starts.
	queue atomic.Pointer[requests]

	mu          sync.Mutex
	lockedState struct {
		running map[types.NamespacedName]*source
		// stopping is set when the manager stops.
		stopping bool
	}
}

type requests = workqueue.TypedRateLimitingInterface[reconcile.Request]

func newSources(r *Labeler, c client.Client) *sources {
	s := &sources{r: r, client: c, started: make(chan struct{})}
	s.lockedState.running = map[types.NamespacedName]*source{}
	return s
}

func (s *sources) setup(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named("instancestate-sources").
		For(&eventingv1.EventingBackend{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(ctrlsource.TypedFunc[reconcile.Request](func(_ context.Context, q requests) error {
			s.queue.Store(&q)
			return nil
		})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: sourceWorkers,
			NeedLeaderElection:      ptr.To(false),
			SkipNameValidation:      ptr.To(true),
			RecoverPanic:            ptr.To(true),
		}).
		Complete(s)
}

// start lets consumers run until the context ends, and waits for them.
func (s *sources) start(ctx context.Context) {
	s.ctx = ctx
	close(s.started)
	select {
	case <-s.r.elected: // From now on this replica reports dead letters.
		s.enqueueAll()
	case <-ctx.Done():
	}
	<-ctx.Done()
	s.mu.Lock()
	s.lockedState.stopping = true
	s.mu.Unlock()
	s.readers.Wait()
}

func (s *sources) enqueueAll() {
	var list eventingv1.EventingBackendList
	if err := s.client.List(s.ctx, &list); err != nil {
		s.r.Logger.Error(err, "Listing EventingBackends failed; their dead letters are reported at the next change")
	}
	for i := range list.Items {
		s.enqueue(client.ObjectKeyFromObject(&list.Items[i]))
	}
}

// declared returns the names of the handlers in other processes.
func (s *sources) declared() []string {
	var names []string
	for _, one := range s.others(nil) {
		names = append(names, one.origin.declared...)
	}
	return names
}

// enqueueRunning enqueues the sources that run.
func (s *sources) enqueueRunning() {
	for _, one := range s.others(nil) {
		s.enqueue(one.name)
	}
}

// enqueue a source for reconciliation.
func (s *sources) enqueue(name types.NamespacedName) {
	if q := s.queue.Load(); q != nil {
		(*q).Add(reconcile.Request{NamespacedName: name})
	}
}

// Reconcile starts, replaces or stops the consumer of one EventingBackend.
func (s *sources) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	select {
	case <-s.started:
	case <-ctx.Done():
		return reconcile.Result{}, ctx.Err()
	}
	backend := &eventingv1.EventingBackend{}
	err := s.client.Get(ctx, request.NamespacedName, backend)
	if apierrors.IsNotFound(err) || err == nil && backend.DeletionTimestamp != nil {
		s.replace(request.NamespacedName, nil)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading EventingBackend %s: %w", request.NamespacedName, err)
	}
	running := s.get(request.NamespacedName)
	config, invalid := s.r.Backends.Resolve(backend)
	switch {
	case len(invalid) > 0: // The last valid configuration, if there is one, stays in use.
	case !config.IsSource():
		running = nil
		s.replace(request.NamespacedName, nil)
	case running == nil || !running.config.Equal(config):
		next := newSource(s.r, backend, config, func() { s.enqueue(request.NamespacedName) })
		if running != nil {
			next.takeOver(running)
		}
		running = next
		s.replace(request.NamespacedName, running)
	}
	if running != nil && s.r.leads() {
		if n := running.newLetters(); n > 0 {
			s.r.events.deadLetters(running.origin.source, n)
		}
	}
	if s.r.SourceChanged != nil {
		s.r.SourceChanged(request.NamespacedName)
	}
	return reconcile.Result{}, nil
}

// claim returns an error when another source reads the queue of a source, or may read it: of
// several sources with one queue, the oldest reads it. The others would delete its events, or it
// theirs, because each accepts other accounts.
func (s *sources) claim(of *source) error {
	if of.origin.accounts == nil && of.account() == "" {
		return errors.New("the URL of the queue names no account: list accounts")
	}
	others := s.others(of)
	if len(others) == 0 {
		return nil
	}
	id, name, _ := of.queue()
	for _, other := range others {
		switch theirs, called, asked := other.queue(); {
		case !other.precedes(of):
		case theirs == id && id != "":
			return fmt.Errorf("%w: EventingBackend %s, which is older, reads it", queue.ErrShared, other.name)
		case !asked && called == name:
			return fmt.Errorf("it is not known yet whether EventingBackend %s, which is older, reads the same queue", other.name)
		}
	}
	return nil
}

// shared reports whether a source has the queue of another one, or may have it: while a queue is
// not found, another one of its name may be the same.
func (s *sources) shared(of *source) bool {
	id, name, _ := of.queue()
	return slices.ContainsFunc(s.others(of), func(other *source) bool {
		theirs, called, _ := other.queue()
		return theirs == id && id != "" || called == name && (id == "" || theirs == "")
	})
}

// names returns the names of the sources.
func (s *sources) names() []string {
	var names []string
	for _, one := range s.others(nil) {
		names = append(names, one.origin.source)
	}
	return names
}

// others returns all sources but one, which may be nil.
func (s *sources) others(of *source) []*source {
	s.mu.Lock()
	defer s.mu.Unlock()
	var others []*source
	for _, other := range s.lockedState.running {
		if other != of {
			others = append(others, other)
		}
	}
	return others
}

func (s *sources) get(name types.NamespacedName) *source {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lockedState.running[name]
}

// replace stops the consumer of an EventingBackend and starts another one, unless by is
// nil. Both may read for a moment: SQS delivers the old one's unacknowledged messages again.
func (s *sources) replace(name types.NamespacedName, by *source) {
	s.mu.Lock()
	old := s.lockedState.running[name]
	if by == nil || s.lockedState.stopping {
		delete(s.lockedState.running, name)
	} else {
		s.lockedState.running[name] = by
		ctx, stop := context.WithCancel(s.ctx)
		by.stop = stop
		s.readers.Go(func() {
			by.run(ctx)
			if s.get(name) == nil {
				s.r.metrics.forget(by.origin.source)
			}
		})
	}
	s.mu.Unlock()
	if old != nil {
		old.stop()
	}
}

// statuses returns the status of each source, and when its oldest message was sent, by name.
func (s *sources) statuses() (statuses map[string]queue.Status, oldest map[string]time.Time) {
	statuses, oldest = map[string]queue.Status{}, map[string]time.Time{}
	for _, one := range s.others(nil) {
		statuses[one.origin.source], oldest[one.origin.source] = one.consumer.Status(), one.consumer.Oldest()
	}
	return statuses, oldest
}
