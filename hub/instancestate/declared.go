package instancestate

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/capstan-hub/capstan/hub/instancestate/owner"
)

// Annotations of the protocol for handlers in other processes, which a source declares (key handlers).
const (
	// AnnotationHandlers says which handlers the message of the event behind the label waits for, and until when: a
	// Declaration as JSON. The patch of the label writes it, and removes it when the next event has no handlers.
	AnnotationHandlers = "instancestate.capstan.dev/handlers"
	// processedPrefix begins the annotations by which handlers report.
	processedPrefix = "instancestate.capstan.dev/processed."
)

// AnnotationProcessed returns the key of the annotation by which a handler in another process reports that it has acted
// on an event. The value is the id of the event.
func AnnotationProcessed(handler string) string { return processedPrefix + handler }

// Declaration is the value of AnnotationHandlers.
type Declaration struct {
	// Event is the id of the event behind the label.
	Event string `json:"event"`
	// Handlers are the names of the handlers.
	Handlers []string `json:"handlers"`
	// Until is when the message is deleted although a report is missing, in whole seconds.
	Until time.Time `json:"until"`
}

// declarationOf returns the Declaration of an object; zero if it has none for the event behind its label.
func declarationOf(annotations map[string]string) Declaration {
	raw := annotations[AnnotationHandlers]
	if raw == "" {
		return Declaration{}
	}
	var d Declaration
	if json.Unmarshal([]byte(raw), &d) != nil || d.Event != eventID(annotations) {
		return Declaration{} // Another client changed it.
	}
	return d
}

// missing returns the handlers that have not reported: those of the Declaration that are also in declared, the handlers of
// the source as they are now. So a name that was corrected is not awaited, nor is one that another client wrote.
func (d Declaration) missing(annotations map[string]string, declared []string) []string {
	var names []string
	for _, name := range declared {
		if slices.Contains(d.Handlers, name) && annotations[AnnotationProcessed(name)] != d.Event {
			names = append(names, name)
		}
	}
	return names
}

// declare sets the declaration of a change: the handlers of the source that delivered the event behind the label.
func (c *change) declare(at seen, now time.Time) error {
	c.declaration = at.annotations[AnnotationHandlers]
	if !c.replaced {
		return nil
	}
	c.declaration = ""
	if len(c.from.declared) == 0 || c.behind.ID == "" {
		return nil
	}
	raw, err := json.Marshal(Declaration{Event: c.behind.ID, Handlers: c.from.declared, Until: now.Add(c.from.handlerTimeout).UTC().Truncate(time.Second)})
	c.declaration = string(raw)
	return err
}

// waits returns whether the message of the event behind a label waits for handlers in other processes: SQS delivers it
// again. If their time is over, it does not, and waits says so. Nothing is kept in memory, so that a handler that is down
// does not stop the reading of the queue, and any replica continues.
func (r *Labeler) waits(ctx context.Context, key owner.Key, at seen, from origin) bool {
	d := declarationOf(at.annotations)
	missing := d.missing(at.annotations, from.declared)
	if len(missing) == 0 {
		return false
	}
	if r.Clock.Now().Before(d.Until) {
		return true
	}
	for _, name := range missing {
		r.metrics.handlerTimeouts.WithLabelValues(name).Inc()
	}
	names := strings.Join(missing, ", ")
	r.Logger.Info("Handlers did not report an event in time; its message is deleted", "handlers", names, "event", d.Event,
		"kind", key.Kind.Kind, "namespace", key.Namespace, "name", key.Name, "cluster", key.Cluster, "until", d.Until)
	r.events.late(ctx, key, at, d, names)
	return false
}

// undone are the objects with a Declaration that a report is missing for, as watches delivered them, for the metrics. The
// zero value has none.
type undone struct {
	// mu guards lockedObjects.
	mu            sync.Mutex
	lockedObjects map[owner.Key]unreported
}

// unreported are the handlers that have not reported, and until when they are awaited.
type unreported struct {
	names []string
	until time.Time
}

// observe notes the state of an object.
func (u *undone) observe(key owner.Key, annotations map[string]string) {
	d := declarationOf(annotations)
	names := d.missing(annotations, d.Handlers)
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(names) == 0 {
		delete(u.lockedObjects, key)
		return
	}
	if u.lockedObjects == nil {
		u.lockedObjects = map[owner.Key]unreported{}
	}
	u.lockedObjects[key] = unreported{names, d.Until}
}

// waiting returns how many objects wait for each of the handlers now.
func (u *undone) waiting(handlers []string, now time.Time) map[string]int {
	count := make(map[string]int, len(handlers))
	for _, name := range handlers {
		count[name] = 0
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, o := range u.lockedObjects {
		for _, name := range o.names {
			if _, declared := count[name]; declared && now.Before(o.until) {
				count[name]++
			}
		}
	}
	return count
}
