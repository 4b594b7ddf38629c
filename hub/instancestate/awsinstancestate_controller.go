package instancestate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8sschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/hub/instancestate/message"
	"github.com/capstan-hub/capstan/hub/instancestate/owner"
	"github.com/capstan-hub/capstan/internal/capa"
	"github.com/capstan-hub/capstan/watchers"
)

// Options of an AWSInstanceStateReconciler.
type Options struct {
	// Watchers watch the management cluster on every replica, and self-managed clusters on
	// the leader.
	Watchers *watchers.Watcher
	// AWS is how queues are read.
	AWS *awsconfig.Config
	// AllowLoopback lets a source's key endpoint name this machine.
	AllowLoopback bool
	// Backends know the configuration of sources.
	Backends *schema.Registry
	// SourceChanged is told when Source would answer another thing for an
	// EventingBackend, on every replica; nil for nobody. It must not block.
	SourceChanged func(types.NamespacedName)
	// Recorder of Events in the management cluster.
	Recorder events.EventRecorder
	// Registerer of the metrics; not registered when nil.
	Registerer prometheus.Registerer
	// DriftGrace is how long a label may differ from what was last polled, or from what
	// was written here; DefaultDriftGrace when 0.
	DriftGrace time.Duration
	// Tell is called with what was merged into an object, after its patch; nil for
	// nobody. It must not block.
	Tell   func(News)
	Clock  clock.WithTicker
	Logger logr.Logger
}

// AWSInstanceStateReconciler labels AWSMachines and AWSMachinePools.
type AWSInstanceStateReconciler struct {
	Options
	index   owner.Index
	ring    *owner.Ring[arrival]
	lanes   *lanes
	writer  *writer
	teller  *teller
	drift   *drift
	metrics *metrics
	// handlers act on events in this process.
	handlers handlers
	sources  *sources
	// elected is closed when this replica leads, and ready when the index holds what the
	// management cluster has.
	elected <-chan struct{}
	ready   chan struct{}
}

// arrival is an event, and where it came from.
type arrival struct {
	event *excerpts
	from  origin
}

// origin of a message: what of its source's configuration concerns its facts.
type origin struct {
	// source is the namespaced name of the EventingBackend; empty for what came from no
	// queue.
	source string
	// accounts whose events are taken; those of the clusters when nil.
	accounts []string
	// account and region of the queue; empty when they are not known.
	account, region string
	remediate       []string
}

// settler is what is owed to a message: one of the three, once, from any goroutine.
// queue.Delivery is one.
type settler interface {
	// Ack has the message deleted.
	Ack()
	// Retry has it come again, later from time to time.
	Retry()
	// Release has it come again soon, for whoever reads it next.
	Release()
}

// holds is how long what is unknown and grave is left in the queue, after SQS got it, so
// that a restart does not lose it: as long as it would wait in memory.
const holds = owner.DefaultTTL

// processMessage brings the facts of a message to their objects. It does not wait for
// them: owed is settled when all are done.
func (r *AWSInstanceStateReconciler) processMessage(ctx context.Context, from origin, m message.Message, sent time.Time, owed settler) {
	r.metrics.received.WithLabelValues(from.source, string(m.Kind)).Inc()
	if m.Disposition == message.Ignore {
		r.metrics.ignored.WithLabelValues(from.source, m.Reason).Inc()
		owed.Ack()
		return
	}
	t, a := &tracker{owed: owed, left: len(m.Facts)}, arrival{newExcerpts(m.Event), from}
	for _, f := range m.Facts {
		r.route(ctx, a, f, sent, t)
	}
}

// route a fact to its objects.
func (r *AWSInstanceStateReconciler) route(ctx context.Context, a arrival, f message.Fact, sent time.Time, t *tracker) {
	if f.Guessed {
		r.metrics.guessed.WithLabelValues(a.from.source).Inc()
	}
	if f.Region == "" {
		f.Region = a.from.region // A group notifies queues of its own region only.
	}
	find := func() ([]owner.Object, owner.Verdict) {
		if !a.from.takes(f.Account) {
			return nil, owner.Foreign
		}
		return r.index.Find(f, func(o owner.Object) owner.Place { return r.place(ctx, a.from, o) })
	}
	found, verdict := find()
	if verdict == owner.Unknown {
		event := a.event.of(f.InstanceID)
		r.ring.Put(f, arrival{newExcerpts(event), a.from}, len(event.Detail))
		found, verdict = find() // Its object may have come in between, and taken what waited.
	}
	switch verdict {
	case owner.Foreign:
		r.metrics.ignored.WithLabelValues(a.from.source, "foreign").Inc()
		r.teller.foreign(ctx, a.from.source, f)
		t.done(acknowledged)
	case owner.Unknown:
		r.metrics.ignored.WithLabelValues(a.from.source, "unknown").Inc()
		t.done(r.unknown(ctx, f, sent))
	case owner.Owned:
		t.more(len(found) - 1)
		for _, o := range found {
			r.lanes.put(o.Key, work{fact: f, arrival: a, tracker: t})
		}
	}
}

// unknown is what becomes of a fact that no object stands for: what is grave is left in
// the queue for a while, and all of it to the leader, who sees every cluster; and where
// objects may be that cannot be read, all of it for as long as that lasts.
func (r *AWSInstanceStateReconciler) unknown(ctx context.Context, f message.Fact, sent time.Time) outcome {
	if r.blind(ctx, f) {
		return failed
	}
	if r.Clock.Since(sent) > holds {
		return acknowledged
	}
	if !r.leads() {
		return released
	}
	if f.Kind.Notice() || message.Ending(f.Word) {
		return failed
	}
	return acknowledged
}

// blind is whether there may be objects of the management cluster that a fact is about and
// that cannot be read, such as while a webhook that converts them is away. A kind that is
// not installed has none.
func (r *AWSInstanceStateReconciler) blind(ctx context.Context, f message.Fact) bool {
	kinds := []k8sschema.GroupKind{capa.AWSMachinePool}
	if !f.Kind.Group() {
		kinds = append(kinds, capa.AWSMachine)
	}
	return slices.ContainsFunc(kinds, func(kind k8sschema.GroupKind) bool {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(kind.WithVersion(capa.Version))
		var unsynced *watchers.NotSyncedError
		// No object has no name: only whether the kind is there is asked.
		err := r.reader("").Get(ctx, client.ObjectKey{}, u)
		return errors.As(err, &unsynced) && unsynced.Reason != watchers.ReasonNotInstalled
	})
}

func (r *AWSInstanceStateReconciler) leads() bool {
	select {
	case <-r.elected:
		return true
	default:
		return false
	}
}

// takes is whether a source may speak of an account at all.
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

// place of an object. Where its account is not known it is the queue's own, unless the
// source lists the accounts that it may speak of.
func (r *AWSInstanceStateReconciler) place(ctx context.Context, from origin, o owner.Object) owner.Place {
	place := placeOf(ctx, r.reader(o.Cluster), o)
	if place.Account == "" && from.accounts == nil {
		place.Account = from.account
	}
	return place
}

// reader of a cluster.
func (r *AWSInstanceStateReconciler) reader(cluster string) client.Reader {
	return r.Watchers.Reader(multicluster.ClusterName(cluster))
}

// read an object from memory. Errors: those of watchers' readers.
func (r *AWSInstanceStateReconciler) read(ctx context.Context, key owner.Key) (*unstructured.Unstructured, error) {
	return capa.Get(ctx, r.reader(key.Cluster), kindOf(key).WithVersion(capa.Version), nameOf(key))
}

// follower keeps the index of one kind.
type follower struct {
	*AWSInstanceStateReconciler
	pool bool
}

// Reconcile has the index know an object as it is.
func (f follower) Reconcile(ctx context.Context, who mcreconcile.Request) (reconcile.Result, error) {
	key := owner.Key{Cluster: string(who.ClusterName), Pool: f.pool, Namespace: who.Namespace, Name: who.Name}
	u, err := f.read(ctx, key)
	var unsynced *watchers.NotSyncedError
	switch {
	case errors.As(err, &unsynced) && unsynced.Demanded:
		// It is told of while the list that it stands in is not whole yet, and may not be again.
		return reconcile.Result{RequeueAfter: syncRetry}, nil
	case apierrors.IsNotFound(err), unsynced != nil:
		f.forget(key)
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("reading %s %s: %w", kindOf(key).Kind, who.NamespacedName, err)
	}
	f.follow(ctx, key, u)
	return reconcile.Result{}, nil
}

// follow an object.
func (r *AWSInstanceStateReconciler) follow(ctx context.Context, key owner.Key, u *unstructured.Unstructured) {
	o := objectOf(multicluster.ClusterName(key.Cluster), u)
	r.index.Set(o)
	r.writer.caughtUp(key, u.GetResourceVersion())
	for _, waiting := range r.ring.Take(o) {
		// Its message is gone or comes again: nothing is owed for this.
		r.route(ctx, waiting.With, waiting.Fact, r.Clock.Now(), &tracker{owed: nobody{}, left: 1})
	}
	if _, ahead := r.writer.last(key); ahead {
		return // It is older than what was written here.
	}
	r.wake(key, u)
	r.drift.look(key, u)
}

func (r *AWSInstanceStateReconciler) forget(key owner.Key) {
	r.index.Delete(key)
	r.writer.forget(key)
	r.handlers.supersede(key, "")
	r.drift.forget(key)
}
