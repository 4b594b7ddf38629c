package event

import (
	"fmt"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
)

// Instance is the data of events of instances.
type Instance struct {
	InstanceID       string  `json:"instanceId,omitempty" jsonschema:"id of the EC2 instance; absent for events of an Auto Scaling group"`
	AutoScalingGroup string  `json:"autoScalingGroup,omitempty" jsonschema:"name of the Auto Scaling group"`
	State            string  `json:"state,omitempty" jsonschema:"state of the instance, equal to the value of the label"`
	EventID          string  `json:"eventId" jsonschema:"id of the AWS event"`
	Region           string  `json:"region" jsonschema:"AWS region"`
	Account          string  `json:"account" jsonschema:"AWS account"`
	Object           *Object `json:"object,omitempty" jsonschema:"the labelled object; absent when the hub found none"`
	LabelKey         string  `json:"labelKey,omitempty" jsonschema:"key of the label with the state"`
}

// Object identifies a Kubernetes object.
type Object struct {
	Cluster   string `json:"cluster,omitempty" jsonschema:"cluster of the object; absent for the management cluster"`
	Kind      string `json:"kind" jsonschema:"kind of the object"`
	Namespace string `json:"namespace" jsonschema:"namespace of the object"`
	Name      string `json:"name" jsonschema:"name of the object"`
}

// Instances returns an event of one of the four instance kinds, for an instance or its
// group. One AWS event results in one event of a kind for each instance.
func (h Hub) Instances(k Kind, data Instance, at time.Time) ce.Event {
	switch k { //nolint:exhaustive // All other kinds panic.
	case InstanceStateChanged, InstanceSpotInterruption, InstanceLifecycleHook, InstanceScheduledChange:
	default:
		panic(fmt.Sprintf("kind %q is not an instance kind", k))
	}
	of := data.InstanceID
	if of == "" {
		of = data.AutoScalingGroup
	}
	partition := data.Account + "/" + data.Region
	if data.Object != nil {
		partition = data.Object.Namespace + "/" + data.Object.Name
	}
	return h.event(details{
		kind: k, object: data.Account + "/" + data.Region + "/" + of, transition: data.EventID, at: at,
		subject: "instances/" + of, partition: partition, data: data,
	})
}
