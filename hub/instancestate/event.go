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

// Keys of the labels. The decision record of Cluster API Provider AWS names them without a
// prefix.
const (
	// LabelEC2 is the label of an AWSMachine.
	LabelEC2 = "ec2-instance-state"
	// LabelASG is the label of an AWSMachinePool, AWSManagedMachinePool or ROSAMachinePool.
	LabelASG = "asg-instance-state"
)

// Annotations that are written in the same patch as the label.
const (
	// AnnotationGuard holds the facts that were merged into the label.
	AnnotationGuard = guard.Annotation
	// AnnotationEvent holds the newest event behind the label.
	AnnotationEvent = "instancestate.capstan.dev/event"
	// AnnotationSource names the EventingBackend that delivered that event, as namespace/name. There is
	// none if no queue delivered it, or if it is no longer known which one did.
	AnnotationSource = "instancestate.capstan.dev/source"
)

// maxEvent is how many bytes of an event are written to an object. All annotations of an
// object may have 256 KiB, and an event of AWS Health may name hundreds of instances.
const maxEvent = 8 << 10

// ErrNoEvent reports that there is no event behind an object's label.
var ErrNoEvent = errors.New("no event")

// GetEventFromSQS returns the newest event behind the label of an AWSMachine or pool,
// as EventBridge delivered it. The detail of an event of AWS Health only
// has the entity of the object. A detail that is still larger than 8 KiB is left out.
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

// eventID returns the id of the event behind a label; empty when there is none.
func eventID(annotations map[string]string) string {
	var e struct {
		ID string `json:"id"`
	}
	if json.Unmarshal([]byte(annotations[AnnotationEvent]), &e) != nil {
		return ""
	}
	return e.ID
}

// excerpts are the parts of an event for the annotations of its objects. An event of AWS
// Health may concern thousands of objects: its detail is decoded once for all of them.
type excerpts struct {
	whole EventBridgeEvent
	// split returns the keys of the detail without its entities, and the entities by id; nil
	// when no excerpt of the detail is small enough.
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

// of returns the excerpt for an instance or group: the event itself, if it is small enough.
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

// remembered returns the event of a record of the guard, without the fields that are no
// longer known.
func remembered(r guard.Record) EventBridgeEvent {
	return EventBridgeEvent{Version: "0", ID: r.ID, Time: r.Time.Format(time.RFC3339)}
}
