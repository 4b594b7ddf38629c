package event

import (
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/types"
)

// Backend is the data of events of event backends.
type Backend struct {
	Namespace   string `json:"namespace" jsonschema:"namespace of the EventingBackend"`
	Name        string `json:"name" jsonschema:"its name"`
	BackendType string `json:"backendType" jsonschema:"its type"`
	Reason      string `json:"reason,omitempty" jsonschema:"why it is not ready"`
	Message     string `json:"message,omitempty" jsonschema:"the same for people"`
}

// Backends tells that the EventingBackend of the UID is ready, or is not, since at.
func (h Hub) Backends(uid types.UID, ready bool, data Backend, at time.Time) ce.Event {
	k := BackendNotReady
	if ready {
		k = BackendReady
	}
	data.Message = cut(data.Message)
	return h.event(news{
		kind: k, object: string(uid), transition: stamp(at), at: at,
		subject: BackendSubject(data.Namespace + "/" + data.Name), partition: data.Namespace + "/" + data.Name, data: data,
	})
}

// BackendSubject is the subject of events of an EventingBackend "namespace/name".
func BackendSubject(name string) string { return "eventingbackends/" + name }
