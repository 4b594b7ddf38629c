package instancestate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// compact event, for the annotation of one object.
func compact(e EventBridgeEvent, instance string) EventBridgeEvent {
	if len(e.Detail) <= maxEvent && len(e.Resources) <= 1 {
		return e
	}
	e.Resources = nil
	if len(e.Detail) <= maxEvent {
		return e
	}
	var detail map[string]json.RawMessage
	var entities []map[string]any
	if json.Unmarshal(e.Detail, &detail) == nil && json.Unmarshal(detail["affectedEntities"], &entities) == nil {
		for _, entity := range entities {
			if value, _ := entity["entityValue"].(string); value != instance {
				continue
			}
			if one, err := json.Marshal([]any{entity}); err == nil {
				detail["affectedEntities"] = one
			}
		}
		if less, err := json.Marshal(detail); err == nil {
			e.Detail = less
		}
	}
	if len(e.Detail) > maxEvent {
		e.Detail = nil
	}
	return e
}

// remembered is what is left of an event of which only the guard's record is known.
func remembered(r guard.Record) EventBridgeEvent {
	return EventBridgeEvent{Version: "0", ID: r.ID, Time: r.Time.Format(time.RFC3339)}
}
