package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/event"
	"github.com/capstan-hub/capstan/hub/eventing/publisher"
	"github.com/capstan-hub/capstan/internal/promotions"
)

// DefaultHorizon is as long as a stream keeps its events by default. Older events are not
// published.
const DefaultHorizon = 7 * 24 * time.Hour

// Publisher takes the events. *publisher.Publisher implements it.
type Publisher interface {
	// Publish queues an event for every backend. It never blocks.
	Publish(e ce.Event, from publisher.Source)
	// Resync makes every backend ask the Sources for pending events. It never blocks.
	Resync()
}

// Options of an Outbox.
type Options struct {
	// Hub makes the events.
	Hub event.Hub
	// Cache of the management cluster has the informers of Promotions, ClusterConnections and
	// EventingBackends.
	Cache Informers
	// Client writes the records, as metadata.
	Client client.Writer
	// Horizon is the age beyond which events are not published; DefaultHorizon when 0.
	Horizon time.Duration
	// RecordDelay is how long settled events of an object are collected for one patch;
	// DefaultRecordDelay when 0.
	RecordDelay time.Duration
	Clock       clock.WithTicker
	Logger      logr.Logger
}

// skew is how far the clocks that set the times of objects may differ: a backend also gets
// events that have a time this long before its creation.
const skew = 10 * time.Second

// key of an object.
type key struct {
	kind string
	types.NamespacedName
}

// Outbox is a publisher.Source of the events of the hub's objects. It must be one of
// publisher.Options.Sources. Call PublishTo with that publisher, and run Start while the
// process leads: manager.Add(outbox).
type Outbox struct {
	options   Options
	publisher Publisher
	failures  *prometheus.CounterVec

	// publishing is held from when new events are found until the publisher has them, and
	// over Resync; neither blocks. Otherwise a new event could overtake a pending one of the
	// same object.
	publishing sync.Mutex

	mu          sync.Mutex
	lockedState struct {
		// leading is set when Start has seen all objects, until it ends.
		leading bool
		// prompt and paced are the queues of objects whose record must be written; nil
		// before Start.
		prompt, paced workqueue.TypedDelayingInterface[key]

		entries map[key]*entry
		// backends are the entries of EventingBackends, by "namespace/name".
		backends map[string]*entry
		// byID maps the id of a tracked event to its object.
		byID map[string]key
	}
}

var _ publisher.Source = &Outbox{}

// New makes an Outbox.
func New(o Options) *Outbox {
	if o.Horizon == 0 {
		o.Horizon = DefaultHorizon
	}
	if o.RecordDelay == 0 {
		o.RecordDelay = DefaultRecordDelay
	}
	b := &Outbox{options: o, failures: newFailures()}
	b.lockedState.entries, b.lockedState.backends, b.lockedState.byID = map[key]*entry{}, map[string]*entry{}, map[string]key{}
	return b
}

// PublishTo sets the publisher, before Start. It is a setter because the two refer to each
// other: the publisher is made with this Outbox as one of its Sources.
func (b *Outbox) PublishTo(p Publisher) { b.publisher = p }

// NeedLeaderElection implements manager.LeaderElectionRunnable: two active outboxes would
// publish every event twice.
func (b *Outbox) NeedLeaderElection() bool { return true }

func keyOf(o client.Object) key {
	k := key{NamespacedName: client.ObjectKeyFromObject(o)}
	switch o.(type) {
	case *capstanv1.ClusterConnection:
		k.kind = capstanv1.ClusterConnectionKind
	case *eventingv1.EventingBackend:
		k.kind = eventingv1.EventingBackendKind
	default: // Packed or not.
		k.kind = capstanv1.PromotionKind
	}
	return k
}

// observe handles an object that exists, and publishes its new events. Before the Outbox
// leads it publishes nothing: Pending returns these events later.
func (b *Outbox) observe(o client.Object) {
	b.publishing.Lock()
	defer b.publishing.Unlock()
	now, k := b.options.Clock.Now(), keyOf(o)
	b.mu.Lock()
	e := b.lockedState.entries[k]
	if e == nil && b.pastLocked(o, now) {
		b.mu.Unlock()
		return
	}
	o = whole(o)
	isNew := e == nil || e.object.GetUID() != o.GetUID()
	var last []ce.Event // of the object that this one has replaced
	if isNew {
		last = b.dropLocked(k, now)
		e = newEntry(o)
		b.lockedState.entries[k] = e
		if k.kind == eventingv1.EventingBackendKind {
			b.lockedState.backends[k.String()] = e
		}
	}
	e.observe(b.options.Hub, o, b.uidLocked, now)
	b.holdLocked(k, e, now)
	if isNew && k.kind == eventingv1.EventingBackendKind {
		b.holdAllLocked(now) // The new backend receives the latest levels.
	}
	fresh := b.freshLocked(k, e, now)
	b.mu.Unlock()
	b.publish(append(last, fresh...))
}

// holdLocked holds the event of a level, and records the level, if a backend will receive the
// event and the record does not have the level.
func (b *Outbox) holdLocked(k key, e *entry, now time.Time) {
	e.held = false
	if e.recorded {
		return
	}
	edge, ok := e.edge(b.options.Hub)
	if !ok {
		return
	}
	for _, to := range b.lockedState.backends {
		e.held = e.held || !edge.Time().Before(b.since(to, now))
	}
	if !e.held {
		return
	}
	e.withdraw(edge)
	if !b.lockedState.leading {
		return
	}
	var delay time.Duration
	if e.once { // Another client removes the record: it is not written in a loop without a pause.
		delay = b.options.RecordDelay
	}
	b.queueLocked(k).AddAfter(k, delay)
}

func (b *Outbox) holdAllLocked(now time.Time) {
	for k, e := range b.lockedState.entries {
		b.holdLocked(k, e, now)
	}
}

// since is the time before which a backend receives no events.
func (b *Outbox) since(backend *entry, now time.Time) time.Time {
	since := backend.object.GetCreationTimestamp().Add(-skew)
	if oldest := now.Add(-b.options.Horizon); since.Before(oldest) {
		return oldest
	}
	return since
}

// margin is how much older than every backend the end of a promotion must be for the promotion
// to be past: more than clocks may differ and than a new backend takes to be observed.
const margin = 10 * time.Minute

// pastLocked returns whether no backend can need an event of an object: it is a promotion that
// ended before the horizon, or before every backend was created. A hub has many of them, and no
// entry for them.
func (b *Outbox) pastLocked(o client.Object, now time.Time) bool {
	ended, ok := promotions.SettledTime(o)
	if !ok {
		return false
	}
	first := now
	for _, backend := range b.lockedState.backends {
		if created := backend.object.GetCreationTimestamp().Time; created.Before(first) {
			first = created
		}
	}
	return ended.Before(first.Add(-margin)) || ended.Before(now.Add(-b.options.Horizon-margin))
}

// recall makes the entry of an object that had none because it was past, and changes now. Its
// events until then are not fresh.
func (b *Outbox) recall(before, o client.Object) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now, k := b.options.Clock.Now(), keyOf(o)
	if b.lockedState.entries[k] != nil || !b.pastLocked(before, now) || b.pastLocked(o, now) {
		return
	}
	before = whole(before)
	e := newEntry(before)
	b.lockedState.entries[k] = e
	e.observe(b.options.Hub, before, b.uidLocked, now)
	e.fresh(e.events(b.options.Hub, now))
}

// uidLocked returns the UID of a backend by name, empty if there is none.
func (b *Outbox) uidLocked(backend string) types.UID {
	if e := b.lockedState.backends[backend]; e != nil {
		return e.object.GetUID()
	}
	return ""
}

// recheck publishes events of an object that are due because time has passed.
func (b *Outbox) recheck(k key) {
	b.publishing.Lock()
	defer b.publishing.Unlock()
	now := b.options.Clock.Now()
	var fresh []ce.Event
	b.mu.Lock()
	if e := b.lockedState.entries[k]; e != nil {
		fresh = b.freshLocked(k, e, now)
	}
	b.mu.Unlock()
	b.publish(fresh)
}

// freshLocked returns the events of an object that must be published now.
func (b *Outbox) freshLocked(k key, e *entry, now time.Time) []ce.Event {
	present := e.events(b.options.Hub, now)
	fresh := e.fresh(present)
	e.tracked = slices.DeleteFunc(e.tracked, func(id string) bool {
		over := !slices.ContainsFunc(present, func(one ce.Event) bool { return one.ID() == id })
		if over {
			delete(b.lockedState.byID, id)
			e.forget(func(_, noted string) bool { return noted == id })
		}
		return over
	})
	if !b.lockedState.leading {
		return nil
	}
	for _, one := range fresh {
		b.trackLocked(k, e, one.ID())
	}
	return fresh
}

func (b *Outbox) trackLocked(k key, e *entry, id string) {
	if _, tracked := b.lockedState.byID[id]; !tracked {
		b.lockedState.byID[id] = k
		e.tracked = append(e.tracked, id)
	}
}

func (b *Outbox) publish(events []ce.Event) {
	for _, one := range events {
		b.publisher.Publish(one, b)
	}
}

// forget removes the entry of an object that was deleted.
func (b *Outbox) forget(o client.Object) {
	b.publishing.Lock()
	defer b.publishing.Unlock()
	now, k := b.options.Clock.Now(), keyOf(o)
	var last []ce.Event
	b.mu.Lock()
	if e := b.lockedState.entries[k]; e != nil && e.object.GetUID() == o.GetUID() {
		last = b.dropLocked(k, now)
	}
	b.mu.Unlock()
	b.publish(last)
}

// dropLocked removes the entry of an object that does not exist any more, if there is one. It
// returns the event that was held: the object has no record any more, and no way back.
func (b *Outbox) dropLocked(k key, now time.Time) (last []ce.Event) {
	if e := b.lockedState.entries[k]; e != nil && e.held {
		e.held = false
		last = b.freshLocked(k, e, now)
	}
	b.forgetLocked(k)
	return last
}

func (b *Outbox) forgetLocked(k key) {
	e := b.lockedState.entries[k]
	if e == nil {
		return
	}
	for _, id := range e.tracked {
		delete(b.lockedState.byID, id)
	}
	delete(b.lockedState.entries, k)
	if k.kind == eventingv1.EventingBackendKind { // A new backend of the same name has settled nothing.
		delete(b.lockedState.backends, k.String())
		for _, e := range b.lockedState.entries {
			delete(e.settled, k.String())
			delete(e.unwanted, k.String())
		}
	}
}

// waiting is an event that the record does not show as settled by a backend.
type waiting struct {
	key key
	id  string
	// time of the event, or of an earlier event of the object if that one is later.
	time time.Time
	// number orders the Promotions of one Pipeline.
	number int64
}

// Pending implements publisher.Source.
func (b *Outbox) Pending(ctx context.Context, backend string, yield func(ce.Event) bool) error {
	b.mu.Lock()
	leading := b.lockedState.leading
	keys := make([]key, 0, len(b.lockedState.entries))
	for k := range b.lockedState.entries {
		keys = append(keys, k)
	}
	b.mu.Unlock()
	if !leading {
		return nil
	}
	var all []waiting
	for _, k := range keys {
		found, err := b.pendingOf(k, backend)
		if err != nil || ctx.Err() != nil {
			return err
		}
		all = append(all, found...)
	}
	slices.SortStableFunc(all, func(x, y waiting) int {
		if c := x.time.Compare(y.time); c != 0 || x.key.kind != y.key.kind {
			return c
		}
		return int(x.number - y.number)
	})
	for _, w := range all {
		if one, ok := b.rebuild(w); ok && !yield(one) {
			break
		}
	}
	return nil
}

// ErrUnknownBackend is returned for a backend without an EventingBackend, or whose
// EventingBackend the watch has not delivered yet.
var ErrUnknownBackend = errors.New("the EventingBackend does not exist, or was not read yet")

// pendingOf returns the waiting events of one object.
func (b *Outbox) pendingOf(k key, backend string) ([]waiting, error) {
	now := b.options.Clock.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	to := b.lockedState.backends[backend]
	if to == nil {
		return nil, fmt.Errorf("listing the pending events of EventingBackend %s: %w", backend, ErrUnknownBackend)
	}
	e := b.lockedState.entries[k]
	if e == nil {
		return nil, nil
	}
	since := b.since(to, now)
	var found []waiting
	settled := recordOf(e.object)
	var last time.Time
	for _, one := range e.events(b.options.Hub, now) {
		id := one.ID()
		// The object gives the order, because its times come from several machines.
		if one.Time().After(last) {
			last = one.Time()
		}
		if one.Time().Before(since) || settled.has(to.object.GetUID(), id) || slices.Contains(e.settled[backend], id) || slices.Contains(e.unwanted[backend], id) {
			continue
		}
		w := waiting{key: k, id: id, time: last}
		if p, ok := e.object.(*capstanv1.Promotion); ok {
			w.number = p.Spec.Number
		}
		found = append(found, w)
	}
	return found, nil
}

// rebuild makes a waiting event; false if its object does not show it any more.
func (b *Outbox) rebuild(w waiting) (ce.Event, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.lockedState.entries[w.key]
	if e == nil {
		return ce.Event{}, false
	}
	for _, one := range e.events(b.options.Hub, b.options.Clock.Now()) {
		if one.ID() == w.id {
			b.trackLocked(w.key, e, w.id)
			return one, true
		}
	}
	return ce.Event{}, false
}

// Settled implements publisher.Source. The event is not published to the backend again,
// whatever the outcome was. An unwanted event causes no write of its own: it is recorded with
// the next event of the object that is settled.
func (b *Outbox) Settled(backend, id string, how publisher.Outcome) {
	b.mu.Lock()
	k, tracked := b.lockedState.byID[id]
	if e := b.lockedState.entries[k]; tracked && e != nil {
		notes := e.settled
		if how == publisher.Unwanted {
			notes = e.unwanted
		}
		if !slices.Contains(notes[backend], id) {
			notes[backend] = append(notes[backend], id)
		}
	}
	queue := b.queueLocked(k)
	b.mu.Unlock()
	if tracked && how != publisher.Unwanted { // The queue exists: only Start makes events tracked.
		queue.AddAfter(k, b.options.RecordDelay)
	}
}
