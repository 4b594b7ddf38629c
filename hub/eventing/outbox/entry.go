package outbox

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/event"
)

const (
	// credentialLead is how long before their expiry the event about credentials is published.
	credentialLead = 7 * 24 * time.Hour
	// shortLived is the divisor for credentials with a shorter lifetime: their lead is the
	// last quarter. EKS tokens are valid for 15 minutes and are renewed after 10.
	shortLived = 4
)

// States of a backend, as a level.
const (
	stateReady    = "Ready"
	stateNotReady = "NotReady"
)

// entry is the outbox's data about one object. Outbox.mu guards it.
type entry struct {
	// object is the one in the informer's cache, which must not be changed.
	object client.Object
	level  level
	// recorded: the record of the object has the level. held: its event waits for that,
	// because a backend will receive it.
	recorded, held bool
	// once: the record has had the level before.
	once bool
	// edges are the ids of the level's events within the second edgeAt.
	edges  []string
	edgeAt time.Time

	credentials credentials
	// offered are the current events that the publisher got, or that existed at the
	// start.
	offered []string
	// tracked are the ids for which Settled may be called.
	tracked []string
	// settled are ids that a backend has settled and the record does not show yet.
	settled map[string][]string
	// unwanted are ids that a backend does not select and the record does not show yet.
	unwanted map[string][]string
}

// newEntry makes the entry of an object that is new to this process.
func newEntry(o client.Object) *entry {
	e := &entry{settled: map[string][]string{}, unwanted: map[string][]string{}}
	r := recordOf(o)
	if r.Level != nil {
		e.level = *r.Level
	}
	if r.Credentials != nil {
		e.credentials = *r.Credentials
	}
	return e
}

// observe updates the entry from the object's current state. uid returns the UID of a backend
// by name, empty if there is none.
func (e *entry) observe(hub event.Hub, o client.Object, uid func(backend string) types.UID, now time.Time) {
	e.object = o
	r := recordOf(o)
	e.forget(func(backend, id string) bool {
		of := uid(backend)
		return of == "" || r.has(of, id)
	})
	if c, ok := o.(*capstanv1.ClusterConnection); ok {
		e.observeCredentials(c, now)
	}
	if state, at := stateOf(o); state != "" && !at.IsZero() && state != e.level.State {
		e.changes(hub, level{From: e.level.State, State: state, At: at.UTC()})
	}
	e.recorded = r.Level != nil && r.Level.equal(e.level)
	e.once = e.once || e.recorded
}

// changes the level. Edges to one state within one second have different ids.
func (e *entry) changes(hub event.Hub, to level) {
	e.level, e.once = to, false
	edge, ok := e.edge(hub)
	if !ok {
		return
	}
	if !edge.Time().Equal(e.edgeAt) {
		e.edgeAt, e.edges = edge.Time(), nil
	}
	for slices.Contains(e.edges, edge.ID()) {
		e.level.Repeat++
		edge, _ = e.edge(hub)
	}
	e.edges = append(e.edges, edge.ID())
}

// unrecorded returns whether the record of the object must be written.
func (e *entry) unrecorded() bool { return e.held || len(e.settled) > 0 }

// forget removes the notes for which over returns true.
func (e *entry) forget(over func(backend, id string) bool) {
	for _, notes := range []map[string][]string{e.settled, e.unwanted} {
		for backend, ids := range notes {
			ids = slices.DeleteFunc(ids, func(id string) bool { return over(backend, id) })
			if notes[backend] = ids; len(ids) == 0 {
				delete(notes, backend)
			}
		}
	}
}

// observeCredentials updates when the credentials expire and were rotated.
func (e *entry) observeCredentials(c *capstanv1.ClusterConnection, now time.Time) {
	if c.Status.CredentialExpiryTime == nil {
		return
	}
	end, had := c.Status.CredentialExpiryTime.UTC(), e.credentials.End
	if end.Equal(had) {
		return
	}
	e.credentials = credentials{End: end, WarnAt: end.Add(-min(credentialLead, max(0, end.Sub(now))/shortLived))}
	if !had.IsZero() {
		e.credentials.RotatedAt = now.UTC()
	}
}

// stateOf returns the state of an object whose state changes are published, and since when.
// It returns an empty state for other objects, and while the state is not known.
func stateOf(o client.Object) (string, time.Time) {
	switch o := o.(type) {
	case *capstanv1.ClusterConnection:
		switch o.Status.State {
		case capstanv1.ConnectionReady, capstanv1.ConnectionDegraded, capstanv1.ConnectionUnreachable,
			capstanv1.ConnectionAuthFailed, capstanv1.ConnectionRemoved:
			if o.Status.LastTransitionTime != nil {
				return string(o.Status.State), o.Status.LastTransitionTime.Time
			}
		case "", capstanv1.ConnectionUnused, capstanv1.ConnectionConnecting:
		}
	case *eventingv1.EventingBackend:
		if c := readyOf(o); c != nil && c.Status == metav1.ConditionTrue {
			return stateReady, c.LastTransitionTime.Time
		} else if c != nil {
			return stateNotReady, c.LastTransitionTime.Time
		}
	}
	return "", time.Time{}
}

func readyOf(b *eventingv1.EventingBackend) *eventingv1.Condition {
	for i := range b.Status.Conditions {
		if b.Status.Conditions[i].Type == eventingv1.ReadyCondition {
			return &b.Status.Conditions[i]
		}
	}
	return nil
}

// edge returns the event of the level, also while the object shows no state; false if the
// level has no event.
func (e *entry) edge(hub event.Hub) (ce.Event, bool) {
	if e.level.State == "" {
		return ce.Event{}, false
	}
	state, _ := stateOf(e.object)
	var edge ce.Event
	switch o := e.object.(type) {
	case *capstanv1.ClusterConnection:
		shown := o.DeepCopy()
		since := metav1.NewTime(e.level.At)
		shown.Status.State, shown.Status.LastTransitionTime = capstanv1.ConnectionState(e.level.State), &since
		if state != e.level.State { // They belong to another state.
			shown.Status.Reason, shown.Status.Message = "", ""
		}
		made, ok := hub.ClusterState(shown, capstanv1.ConnectionState(e.level.From))
		if !ok {
			return ce.Event{}, false
		}
		edge = made
	case *eventingv1.EventingBackend:
		if e.level.State == stateNotReady && e.level.From != stateReady {
			return ce.Event{}, false // It was never ready: its author reads the condition.
		}
		data := event.Backend{Namespace: o.Namespace, Name: o.Name, BackendType: o.Status.BackendType}
		if state == e.level.State {
			data.Reason, data.Message = readyOf(o).Reason, readyOf(o).Message
		}
		edge = hub.Backends(o.UID, e.level.State == stateReady, data, e.level.At)
	}
	if e.level.Repeat > 0 {
		sum := sha256.Sum256([]byte(edge.ID() + "#" + strconv.Itoa(e.level.Repeat)))
		edge.SetID(hex.EncodeToString(sum[:]))
	}
	return edge, true
}

// published returns the event of the level, unless it is held. Without a record, the hub could
// die after a backend has received the event, and the next hub, which would not know of it, would
// see no edge when the state changes back.
func (e *entry) published(hub event.Hub) (ce.Event, bool) {
	if e.held {
		return ce.Event{}, false
	}
	return e.edge(hub)
}

// events returns the events that the object shows, in order.
func (e *entry) events(hub event.Hub, now time.Time) []ce.Event {
	var all []ce.Event
	add := func(one ce.Event, ok bool) {
		if ok {
			all = append(all, one)
		}
	}
	switch o := e.object.(type) {
	case *capstanv1.Promotion:
		return hub.Promotions(o)
	case *capstanv1.ClusterConnection:
		add(hub.ClusterRegistered(o), true)
		add(e.published(hub))
		if c := e.credentials; o.Status.CredentialExpiryTime != nil {
			if !c.RotatedAt.IsZero() {
				add(hub.ClusterCredentialsRotated(o, c.RotatedAt))
			}
			add(hub.ClusterCredentialsExpiring(o, c.End.Sub(c.WarnAt), now))
		}
		// The registration is first; the other events are independent, so their times order them.
		slices.SortStableFunc(all[1:], func(x, y ce.Event) int { return x.Time().Compare(y.Time()) })
	case *eventingv1.EventingBackend:
		add(e.published(hub))
	}
	return all
}

// fresh returns the events that were not offered yet, and marks them as offered.
func (e *entry) fresh(present []ce.Event) []ce.Event {
	var fresh []ce.Event
	ids := make([]string, 0, len(present))
	for _, one := range present {
		id := short(one.ID())
		if !slices.Contains(e.offered, id) {
			fresh = append(fresh, one)
		}
		ids = append(ids, id)
	}
	e.offered = ids
	return fresh
}

// withdraw makes an event that was offered, when no backend received it, fresh again.
func (e *entry) withdraw(one ce.Event) {
	e.offered = slices.DeleteFunc(e.offered, func(id string) bool { return id == short(one.ID()) })
}
