package instancestate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/capstan-hub/capstan/hub/awsconfig"
	backends "github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/hub/instancestate/message"
	"github.com/capstan-hub/capstan/hub/instancestate/owner"
	"github.com/capstan-hub/capstan/internal/capa"
	"github.com/capstan-hub/capstan/watchers"
)

// Options of a Labeler.
type Options struct {
	// Watchers watch the management cluster on every replica, and self-managed clusters on
	// the leader.
	Watchers *watchers.Watcher
	// AWS makes the clients that read the queues.
	AWS *awsconfig.Config
	// AllowLoopback allows loopback addresses in the key endpoint of a source.
	AllowLoopback bool
	// Backends resolve the configuration of sources.
	Backends *backends.Registry
	// SourceChanged is called on every replica when the result of Source for an
	// EventingBackend may have changed; nil when not needed. It must not block.
	SourceChanged func(types.NamespacedName)
	// Recorder of Events in the management cluster.
	Recorder events.EventRecorder
	// Registerer of the metrics; not registered when nil.
	Registerer prometheus.Registerer
	// DriftGrace is how long a label may differ from the state that was last polled, or
	// from the label that was written here; DefaultDriftGrace when 0.
	DriftGrace time.Duration
	// Publish is called for each fact that was merged into an object, after the patch; nil
	// when not needed. It must not block.
	Publish func(Applied)
	Clock   clock.WithTicker
	Logger  logr.Logger
}

// Labeler labels AWSMachines and pools by the events of SQS queues. It owns the
// index, the consumers of the queues, and the workers.
type Labeler struct {
	Options
	index   owner.Index
	ring    *owner.Ring[arrival]
	lanes   *lanes
	writer  *writer
	events  *eventRecorder
	drift   *drift
	metrics *metrics
	// handlers act on events in this process.
	handlers handlers
	undone   undone
	// remediated has remediatedFor.
	remediated *lru.Cache
	sources    *sources
	unread     unread
	// elected is closed when this replica leads. ready is closed when the index has all
	// objects of the management cluster.
	elected <-chan struct{}
	ready   chan struct{}
}

// arrival is an event and its origin.
type arrival struct {
	event *excerpts
	from  origin
}

// origin of a message: the part of its source's configuration that concerns its facts.
type origin struct {
	// source is the namespaced name of the EventingBackend; empty for an event that no
	// queue delivered.
	source string
	// of is that source; nil without a queue.
	of *source
	// accounts whose events are accepted; those of the clusters when nil.
	accounts []string
	// account and region of the queue; empty when they are not known.
	account, region string
	remediate       []string
	// declared are the handlers in other processes, which are awaited for handlerTimeout.
	declared       []string
	handlerTimeout time.Duration
}

// delivery is a received message. Exactly one of its methods is called, once, from any
// goroutine. queue.Delivery implements it.
type delivery interface {
	// Ack deletes the message.
	Ack()
	// Retry makes SQS deliver the message again, with a growing delay.
	Retry()
	// Release makes SQS deliver the message again soon, to any reader, but not before a time.
	Release(atLeast time.Duration)
}

// keepUnknown is how long after its receipt by SQS an urgent event of an unknown object is
// left in the queue, so that a restart does not lose it: as long as it would wait in memory.
const keepUnknown = owner.DefaultTTL

// processMessage routes the facts of a message to their objects. It does not wait for
// them: received is settled when all facts are done.
func (r *Labeler) processMessage(ctx context.Context, from origin, m message.Message, sent time.Time, received delivery) {
	r.metrics.received.WithLabelValues(from.source, string(m.Kind)).Inc()
	if m.TestID != "" {
		r.test(from, m, sent, received)
		return
	}
	if m.Disposition == message.Ignore {
		r.metrics.ignored.WithLabelValues(from.source, m.Reason).Inc()
		received.Ack()
		return
	}
	t, a := &tracker{received: received, left: len(m.Facts)}, arrival{newExcerpts(m.Event), from}
	for _, f := range m.Facts {
		r.route(ctx, a, f, sent, t)
	}
}

// route puts a fact into the lanes of its objects.
func (r *Labeler) route(ctx context.Context, a arrival, f message.Fact, sent time.Time, t *tracker) {
	if f.Guessed {
		r.metrics.guessed.WithLabelValues(a.from.source).Inc()
	}
	f = a.from.placed(f)
	find := func() ([]owner.Object, owner.Verdict) { return a.from.find(&r.index, f, r.where(ctx, a.from)) }
	found, verdict := find()
	if verdict == owner.Unknown {
		event := a.event.of(f.InstanceID)
		r.ring.Put(f, arrival{newExcerpts(event), a.from}, len(event.Detail))
		found, verdict = find() // The object may have been added in between, and have taken the waiting facts.
	}
	switch verdict {
	case owner.Foreign:
		r.metrics.ignored.WithLabelValues(a.from.source, "foreign").Inc()
		r.events.foreign(ctx, a.from.source, f)
		t.done(r.foreign(a, t))
	case owner.Unknown:
		reason, what := r.unknown(ctx, a, f, sent)
		r.metrics.ignored.WithLabelValues(a.from.source, reason).Inc()
		t.done(what)
	case owner.Unplaced:
		r.metrics.ignored.WithLabelValues(a.from.source, "unplaced").Inc()
		t.more(len(found))
		r.put(found, a, f, t)
		t.done(r.later())
	case owner.Owned:
		t.more(len(found) - 1)
		r.put(found, a, f, t)
	}
}

// foreign decides what to do with a fact of another account or region. Only the leader gives it
// up, because only the leader counts it in the status. It stays in the queue while another source
// has the same queue, and may be the one that it is for, or while its own source is being replaced.
func (r *Labeler) foreign(a arrival, t *tracker) outcome {
	of := a.from.of
	_, waited := t.received.(noDelivery)
	switch {
	case of == nil || waited:
		return acknowledged // It is not in a queue any more.
	case r.sources.get(of.name) != of:
		return released
	case r.sources.shared(of):
		return failed
	case !r.leads():
		return released
	}
	of.gaveUp("foreign")
	return acknowledged
}

func (r *Labeler) put(found []owner.Object, a arrival, f message.Fact, t *tracker) {
	for _, o := range found {
		r.lanes.put(o.Key, work{fact: f, arrival: a, tracker: t})
	}
}

// later leaves a message in the queue: a standby for the leader, which reads every cluster.
func (r *Labeler) later() outcome {
	if r.leads() {
		return failed
	}
	return released
}

// unknown decides what to do with a fact without an object, and returns the reason for the
// metrics. While objects cannot be read that it may be about, the fact stays in the queue. The
// leader leaves a notice or an end in the queue for keepUnknown, and drops other facts. A standby
// releases facts for that time, because only the leader reads every cluster.
func (r *Labeler) unknown(ctx context.Context, a arrival, f message.Fact, sent time.Time) (reason string, what outcome) {
	const unknown, unread = "unknown", "unread"
	lasting := f.Kind.Notice() || message.Ending(f.Label)
	if len(unsynced(ctx, r.reader(""), kindsOf(f))) > 0 {
		return unread, failed
	}
	if r.unread.state(ctx, r).member != "" {
		if r.leads() && !lasting && a.from.of.crowded() {
			a.from.of.gaveUp("unread")
			return unread, acknowledged
		}
		return unread, r.later()
	}
	switch {
	case r.Clock.Since(sent) > keepUnknown:
		return unknown, acknowledged
	case !r.leads():
		return unknown, released
	case lasting:
		return unknown, failed
	}
	return unknown, acknowledged
}

func (r *Labeler) leads() bool {
	select {
	case <-r.elected:
		return true
	default:
		return false
	}
}

// takes reports whether a source accepts events of an account.
func (from origin) takes(account string) bool {
	if from.accounts == nil {
		return true
	}
	for _, a := range from.accounts {
		if a == account {
			return true
		}
	}
	return false
}

// placed returns a fact with its region: a group notifies queues of its own region only.
func (from origin) placed(f message.Fact) message.Fact {
	f.Region = cmp.Or(f.Region, from.region)
	return f
}

// find returns the objects of a fact, if the source accepts its account.
func (from origin) find(index *owner.Index, f message.Fact, where func(owner.Object) (owner.Place, bool)) ([]owner.Object, owner.Verdict) {
	if !from.takes(f.Account) {
		return nil, owner.Foreign
	}
	return index.Find(f, where)
}

// where returns a function that returns the account and region of an object, and false while
// they cannot be read.
func (r *Labeler) where(ctx context.Context, from origin) func(owner.Object) (owner.Place, bool) {
	return func(o owner.Object) (owner.Place, bool) {
		place, err := placeOf(ctx, r.reader(o.Cluster), o)
		if err != nil {
			return owner.Place{}, false
		}
		return from.place(place), true
	}
}

// place completes the place of an object. If no role gives the account, it is the queue's own,
// unless the source lists the accounts that it accepts.
func (from origin) place(of owner.Place) owner.Place {
	if of.Account == "" && from.accounts == nil {
		of.Account = from.account
	}
	return of
}

// reader returns the reader of a cluster.
func (r *Labeler) reader(cluster string) client.Reader {
	return r.Watchers.Reader(multicluster.ClusterName(cluster))
}

// read returns an object from memory. Errors: those of watchers' readers.
func (r *Labeler) read(ctx context.Context, key owner.Key) (*unstructured.Unstructured, error) {
	return capa.Get(ctx, r.reader(key.Cluster), key.Kind.WithVersion(capa.Version), nameOf(key))
}

// AWSInstanceStateReconciler reconciles the objects of one kind with the index of a Labeler:
// when an object changes, it routes the facts that wait for it, calls the handlers, and checks
// the label for drift.
type AWSInstanceStateReconciler struct {
	*Labeler
	kind schema.GroupKind
}

// Reconcile updates the index with the current state of an object.
func (r AWSInstanceStateReconciler) Reconcile(ctx context.Context, request mcreconcile.Request) (reconcile.Result, error) {
	key := owner.Key{Cluster: string(request.ClusterName), Kind: r.kind, Namespace: request.Namespace, Name: request.Name}
	if !r.Watchers.Delivers(request.ClusterName) {
		r.forget(key, released) // The objects of another cluster may still be stored.
		return reconcile.Result{}, nil
	}
	u, err := r.read(ctx, key)
	var unsynced *watchers.NotSyncedError
	switch {
	case errors.As(err, &unsynced) && unsynced.Demanded:
		// The watch delivered it before its list was complete, and may not deliver it again.
		return reconcile.Result{RequeueAfter: syncRetry}, nil
	case apierrors.IsNotFound(err):
		r.forget(key, acknowledged)
		return reconcile.Result{}, nil
	case unsynced != nil:
		r.forget(key, released)
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("reading %s %s: %w", key.Kind.Kind, request.NamespacedName, err)
	}
	if unplaced := r.observe(ctx, key, u); unplaced {
		return reconcile.Result{RequeueAfter: placeRetry}, nil
	}
	return reconcile.Result{}, nil
}

// observe processes the current state of an object. It returns whether facts go on waiting for
// it, because its place cannot be read.
func (r *Labeler) observe(ctx context.Context, key owner.Key, u *unstructured.Unstructured) (unplaced bool) {
	o := objectOf(multicluster.ClusterName(key.Cluster), u)
	r.index.Set(o)
	r.writer.caughtUp(key, u.GetResourceVersion())
	r.undone.observe(key, u.GetAnnotations())
	for _, waiting := range r.ring.Take(o) {
		if _, readable := owner.PlaceOf(&o, r.where(ctx, waiting.With.from)); !readable {
			r.ring.Return(waiting)
			unplaced = true
			continue
		}
		// Its message was deleted or is delivered again: there is nothing to settle.
		r.route(ctx, waiting.With, waiting.Fact, r.Clock.Now(), &tracker{received: noDelivery{}, left: 1})
	}
	if r.wake(key, u) {
		r.drift.check(key, u)
	}
	return unplaced
}

// forget forgets an object. what becomes of the message that waits for handlers in this process:
// acknowledged if the object was deleted, released if it is not followed any more, so that the
// handlers of another process, or of a later one, get the event.
func (r *Labeler) forget(key owner.Key, what outcome) {
	r.index.Delete(key)
	r.writer.forget(key)
	r.handlers.supersede(key, "", what)
	r.undone.observe(key, nil)
	r.drift.forget(key)
}
