package event

import (
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/types"
)

// Backend is the data of events of event backends.
type Backend struct {
	Namespace   string `json:"namespace" jsonschema:"namespace of the EventingBackend"`
	Name        string `json:"name" jsonschema:"name of the EventingBackend"`
	BackendType string `json:"backendType" jsonschema:"type of the EventingBackend"`
	Reason      string `json:"reason,omitempty" jsonschema:"reason of the condition that is not True"`
	Message     string `json:"message,omitempty" jsonschema:"message of that condition"`
}

// Backends returns the event that the EventingBackend of the UID is ready, or not ready,
// since at.
func (h Hub) Backends(uid types.UID, ready bool, data Backend, at time.Time) ce.Event {
	k := BackendNotReady
	if ready {
		k = BackendReady
	}
	data.Message = cut(data.Message)
	return h.event(details{
		kind: k, object: string(uid), transition: stamp(at), at: at,
		subject: BackendSubject(data.Namespace + "/" + data.Name), partition: data.Namespace + "/" + data.Name, data: data,
	})
}

// BackendSubject returns the subject of events of an EventingBackend "namespace/name".
func BackendSubject(name string) string { return "eventingbackends/" + name }
