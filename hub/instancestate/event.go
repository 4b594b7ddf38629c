package instancestate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/hub/instancestate/guard"
	"github.com/capstan-hub/capstan/hub/instancestate/message"
)

// EventBridgeEvent is an event as EventBridge delivers it.
type EventBridgeEvent = message.EventBridgeEvent

// Labels, whose keys Cluster API Provider AWS' decision record names without a prefix.
const (
	// LabelEC2 of an AWSMachine.
	LabelEC2 = "ec2-instance-state"
	// LabelASG of an AWSMachinePool.
	LabelASG = "asg-instance-state"
)

// Annotations beside the label, written in the same patch.
const (
	// AnnotationGuard is what was merged into the label.
	AnnotationGuard = "instancestate.capstan.dev/guard"
	// AnnotationEvent is the newest event behind the label.
	AnnotationEvent = "instancestate.capstan.dev/event"
)

// maxEvent is how many bytes of an event an object bears. Its annotations may take 256
// KiB together, and an event of Health may name hundreds of instances.
const maxEvent = 8 << 10

// ErrNoEvent says that there is no event behind an object's label.
var ErrNoEvent = errors.New("no event")

// GetEventFromSQS returns the newest event behind the label of an AWSMachine or
// AWSMachinePool, as it was read. Of an event of Health only what concerns the object is
// in the detail; a detail that is larger than 8 KiB all the same is left out.
// Errors: of class ErrNoEvent.
func GetEventFromSQS(_ context.Context, object client.Object) (EventBridgeEvent, error) {
	raw := object.GetAnnotations()[AnnotationEvent]
	if raw == "" {
		return EventBridgeEvent{}, fmt.Errorf("%w behind the label of %s/%s", ErrNoEvent, object.GetNamespace(), object.GetName())
	}
	var e EventBridgeEvent
	if err := json.Unmarshal([]byte(raw), &e); err != nil {
		return EventBridgeEvent{}, fmt.Errorf("%w: annotation %s of %s/%s cannot be read; the next event replaces it: %w",
			ErrNoEvent, AnnotationEvent, object.GetNamespace(), object.GetName(), err)
	}
	return e, nil
}

// eventID behind a label; empty when there is none.
func eventID(annotations map[string]string) string {
	var e struct {
		ID string `json:"id"`
	}
	if json.Unmarshal([]byte(annotations[AnnotationEvent]), &e) != nil {
		return ""
	}
	return e.ID
}

// excerpts of an event, for the annotations of the objects that it concerns. An event of
// Health may concern thousands: its detail is read once for all of them.
type excerpts struct {
	whole EventBridgeEvent
	// split gives the keys of the detail but for its entities, and the entities by id; no
	// keys when nothing that is small enough can be made of it.
	split func() (rest, entities map[string]json.RawMessage)
}

const entitiesKey = "affectedEntities"

func newExcerpts(e EventBridgeEvent) *excerpts {
	return &excerpts{e, sync.OnceValues(func() (rest, entities map[string]json.RawMessage) {
		var all []json.RawMessage
		if json.Unmarshal(e.Detail, &rest) != nil || json.Unmarshal(rest[entitiesKey], &all) != nil {
			return nil, nil
		}
		size := 0
		delete(rest, entitiesKey)
		for key, value := range rest {
			size += len(key) + len(value)
		}
		if size > maxEvent {
			return nil, nil
		}
		entities = make(map[string]json.RawMessage, len(all))
		for _, raw := range all {
			var entity struct {
				Value string `json:"entityValue"`
			}
			if json.Unmarshal(raw, &entity) == nil {
				entities[message.EntityInstance(entity.Value)] = raw
			}
		}
		return rest, entities
	})}
}

// of an instance or group: the event itself, if it is small enough.
func (x *excerpts) of(instance string) EventBridgeEvent {
	e := x.whole
	if len(e.Detail) <= maxEvent && len(e.Resources) <= 1 {
		return e
	}
	e.Resources = nil
	if len(e.Detail) <= maxEvent {
		return e
	}
	e.Detail = nil
	rest, entities := x.split()
	entity, has := entities[instance]
	if !has || len(entity) > maxEvent {
		return e
	}
	less := maps.Clone(rest)
	less[entitiesKey] = slices.Concat([]byte("["), entity, []byte("]"))
	if raw, err := json.Marshal(less); err == nil && len(raw) <= maxEvent {
		e.Detail = raw
	}
	return e
}

// remembered is what is left of an event of which only the guard's record is known.
func remembered(r guard.Record) EventBridgeEvent {
	return EventBridgeEvent{Version: "0", ID: r.ID, Time: r.Time.Format(time.RFC3339)}
}
