package event

import (
	"fmt"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
)

// Instance is the data of events of instances.
type Instance struct {
	InstanceID       string  `json:"instanceId,omitempty" jsonschema:"id of the EC2 instance; absent for news of a whole group"`
	AutoScalingGroup string  `json:"autoScalingGroup,omitempty" jsonschema:"name of the Auto Scaling group"`
	State            string  `json:"state,omitempty" jsonschema:"the state, as in the label"`
	EventID          string  `json:"eventId" jsonschema:"id of the event of AWS"`
	Region           string  `json:"region" jsonschema:"AWS region"`
	Account          string  `json:"account" jsonschema:"AWS account"`
	Object           *Object `json:"object,omitempty" jsonschema:"the object that was labelled, if one was found"`
	LabelKey         string  `json:"labelKey,omitempty" jsonschema:"label that holds the state"`
}

// Object of Kubernetes.
type Object struct {
	Cluster   string `json:"cluster,omitempty" jsonschema:"name of the cluster that holds it; absent for the management cluster"`
	Kind      string `json:"kind" jsonschema:"its kind"`
	Namespace string `json:"namespace" jsonschema:"its namespace"`
	Name      string `json:"name" jsonschema:"its name"`
}

// Instances tells of an instance or its group: one of the four instance kinds. One event
// of AWS gives one event of a kind for each instance.
func (h Hub) Instances(k Kind, data Instance, at time.Time) ce.Event {
	switch k { //nolint:exhaustive // Every other is refused.
	case InstanceStateChanged, InstanceSpotInterruption, InstanceLifecycleHook, InstanceScheduledChange:
	default:
		panic(fmt.Sprintf("kind %q is not one of instances", k))
	}
	of := data.InstanceID
	if of == "" {
		of = data.AutoScalingGroup
	}
	partition := data.Account + "/" + data.Region
	if data.Object != nil {
		partition = data.Object.Namespace + "/" + data.Object.Name
	}
	return h.event(news{
		kind: k, object: data.Account + "/" + data.Region + "/" + of, transition: data.EventID, at: at,
		subject: "instances/" + of, partition: partition, data: data,
	})
}
