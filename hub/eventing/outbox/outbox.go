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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/event"
	"github.com/capstan-hub/capstan/hub/eventing/publisher"
)

// DefaultHorizon is as long as a stream keeps its events by default: what is older is
// history, not news.
const DefaultHorizon = 7 * 24 * time.Hour

// Publisher that is told; *publisher.Publisher is one.
type Publisher interface {
	// Tell every backend of an event. It never blocks.
	Tell(e ce.Event, from publisher.Source)
	// Ask the Sources again, for every backend, what is pending. It never blocks.
	Ask()
}

// Options of an Outbox.
type Options struct {
	// Hub that tells.
	Hub event.Hub
	// Cache of the management cluster. It is asked for informers of Promotions,
	// ClusterConnections and EventingBackends.
	Cache Informers
	// Client writes the records, as metadata.
	Client client.Writer
	// Horizon is the age beyond which nothing is told any more; DefaultHorizon when 0.
	Horizon time.Duration
	// RecordDelay gathers what is settled of an object into one patch;
	// DefaultRecordDelay when 0.
	RecordDelay time.Duration
	Clock       clock.WithTicker
	Logger      logr.Logger
}

// skew of the clocks that objects' times come from: a backend is told of what is said to
// have happened that long before it was created.
const skew = 10 * time.Second

// key of an object.
type key struct {
	kind string
	types.NamespacedName
}

// Outbox is a publisher.Source of what happens to the hub's objects. It is to be among
// publisher.Options.Sources, PublishTo is to be called with that publisher, and Start is to
// run while the process leads: manager.Add(outbox).
type Outbox struct {
	options   Options
	publisher Publisher

	// telling is held from when it is known what is new until the publisher knows it, and
	// while it is asked to walk: neither blocks. Otherwise what is new could come before
	// what is pending of the same object.
	telling sync.Mutex

	mu          sync.Mutex
	lockedState struct {
		// leading is set while Start sees all objects.
		leading bool
		// prompt and leisurely are the queues of objects whose record is to be written;
		// nil before Start.
		prompt, leisurely workqueue.TypedDelayingInterface[key]

		entries map[key]*entry
		// backends are the entries of EventingBackends, by "namespace/name".
		backends map[string]*entry
		// byID says whose event it is that Settled may come for.
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
	b := &Outbox{options: o}
	b.lockedState.entries, b.lockedState.backends, b.lockedState.byID = map[key]*entry{}, map[string]*entry{}, map[string]key{}
	return b
}

// PublishTo sets the publisher, before Start. It is a setter because the two know each
// other: the publisher is made with this Outbox as one of its Sources.
func (b *Outbox) PublishTo(p Publisher) { b.publisher = p }

// NeedLeaderElection implements manager.LeaderElectionRunnable: two who tell the same
// would tell it twice.
func (b *Outbox) NeedLeaderElection() bool { return true }

func keyOf(o client.Object) key {
	k := key{NamespacedName: client.ObjectKeyFromObject(o)}
	switch o.(type) {
	case *capstanv1.Promotion:
		k.kind = capstanv1.PromotionKind
	case *capstanv1.ClusterConnection:
		k.kind = capstanv1.ClusterConnectionKind
	case *eventingv1.EventingBackend:
		k.kind = eventingv1.EventingBackendKind
	}
	return k
}

// see an object that is there. Before the Outbox leads nobody is told, as Pending will.
func (b *Outbox) see(o client.Object) {
	b.telling.Lock()
	defer b.telling.Unlock()
	now, k := b.options.Clock.Now(), keyOf(o)
	b.mu.Lock()
	e := b.lockedState.entries[k]
	if e == nil || e.object.GetUID() != o.GetUID() {
		b.forgetLocked(k)
		e = newEntry(o)
		b.lockedState.entries[k] = e
		if k.kind == eventingv1.EventingBackendKind {
			b.lockedState.backends[k.String()] = e
		}
	}
	e.see(b.options.Hub, o, b.uidLocked, now)
	fresh := b.newsLocked(k, e, now)
	b.mu.Unlock()
	b.tell(fresh)
}

// uidLocked of the backend of a name; empty for none.
func (b *Outbox) uidLocked(backend string) types.UID {
	if e := b.lockedState.backends[backend]; e != nil {
		return e.object.GetUID()
	}
	return ""
}

// look at an object again, as it was last seen: time has passed.
func (b *Outbox) look(k key) {
	b.telling.Lock()
	defer b.telling.Unlock()
	now := b.options.Clock.Now()
	var fresh []ce.Event
	b.mu.Lock()
	if e := b.lockedState.entries[k]; e != nil {
		fresh = b.newsLocked(k, e, now)
	}
	b.mu.Unlock()
	b.tell(fresh)
}

// newsLocked are the events to tell of an object.
func (b *Outbox) newsLocked(k key, e *entry, now time.Time) []ce.Event {
	present := e.events(b.options.Hub, now)
	fresh := e.news(present)
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

func (b *Outbox) tell(events []ce.Event) {
	for _, one := range events {
		b.publisher.Tell(one, b)
	}
}

// forget an object that is gone.
func (b *Outbox) forget(o client.Object) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := keyOf(o)
	if e := b.lockedState.entries[k]; e != nil && e.object.GetUID() == o.GetUID() {
		b.forgetLocked(k)
	}
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
	if k.kind == eventingv1.EventingBackendKind { // Another one of its name has settled nothing.
		delete(b.lockedState.backends, k.String())
		for _, e := range b.lockedState.entries {
			delete(e.settled, k.String())
			delete(e.unwanted, k.String())
		}
	}
}

// waiting is an event that a backend is not recorded to have.
type waiting struct {
	key key
	id  string
	// time of the event, or of one before it that has a later one.
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
		if one, ok := b.again(w); ok && !yield(one) {
			break
		}
	}
	return nil
}

// ErrUnknownBackend is returned for a backend that is no EventingBackend, or not seen yet.
var ErrUnknownBackend = errors.New("there is no such EventingBackend")

// pendingOf one object.
func (b *Outbox) pendingOf(k key, backend string) ([]waiting, error) {
	now := b.options.Clock.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	to := b.lockedState.backends[backend]
	if to == nil {
		return nil, fmt.Errorf("what is pending for %s: %w", backend, ErrUnknownBackend)
	}
	e := b.lockedState.entries[k]
	if e == nil {
		return nil, nil
	}
	since := to.object.GetCreationTimestamp().Add(-skew)
	if oldest := now.Add(-b.options.Horizon); since.Before(oldest) {
		since = oldest
	}
	var found []waiting
	told := recordOf(e.object)
	var last time.Time
	for _, one := range e.events(b.options.Hub, now) {
		id := one.ID()
		// The object knows the order; its times come from several machines.
		if one.Time().After(last) {
			last = one.Time()
		}
		if one.Time().Before(since) || told.has(to.object.GetUID(), id) || slices.Contains(e.settled[backend], id) || slices.Contains(e.unwanted[backend], id) {
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

// again makes an event that waits; false when its object has gone on.
func (b *Outbox) again(w waiting) (ce.Event, bool) {
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

// Settled implements publisher.Source. Whatever became of the event, it is not told to
// the backend again. That it was unwanted is recorded with what is settled later of the
// object: it is not worth a write.
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
	if tracked && how != publisher.Unwanted { // So Start has made the queue.
		queue.AddAfter(k, b.options.RecordDelay)
	}
}
