package event

import (
	"encoding/json"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/types"
)

// MachineDeployment is the data of events of capacity annotations.
type MachineDeployment struct {
	Cluster      string `json:"cluster,omitempty" jsonschema:"cluster of the object; absent for the management cluster"`
	Kind         string `json:"kind" jsonschema:"kind of the object: MachineDeployment, MachineSet or MachinePool"`
	Namespace    string `json:"namespace" jsonschema:"namespace of the object"`
	Name         string `json:"name" jsonschema:"name of the object"`
	InstanceType string `json:"instanceType,omitempty" jsonschema:"EC2 instance type"`
	CPU          int64  `json:"cpu,omitempty" jsonschema:"virtual CPUs of one instance"`
	MemoryMiB    int64  `json:"memoryMiB,omitempty" jsonschema:"memory of one instance, in MiB"`
	GPU          int64  `json:"gpu,omitempty" jsonschema:"GPUs of one instance"`
	Architecture string `json:"architecture,omitempty" jsonschema:"CPU architecture, such as arm64"`
	Reason       string `json:"reason,omitempty" jsonschema:"reason why the capacity is unknown, in CamelCase"`
	Message      string `json:"message,omitempty" jsonschema:"explanation of the reason"`
}

// MachineDeployments returns the event that the MachineDeployment of the UID was annotated,
// or that it was not, when data has a reason. The same data at another resourceVersion of
// the object is another event.
func (h Hub) MachineDeployments(uid types.UID, resourceVersion string, data MachineDeployment, at time.Time) ce.Event {
	k := MachineDeploymentAnnotated
	if data.Reason != "" {
		k = MachineDeploymentAnnotationFailed
	}
	edge := data
	edge.Message = ""                   // A message may contain an AWS request id.
	transition, _ := json.Marshal(edge) // Strings and numbers can always be encoded.
	data.Message = cut(data.Message)
	return h.event(details{
		kind: k, object: string(uid), transition: resourceVersion + " " + string(transition), at: at,
		subject: "machinedeployments/" + data.Namespace + "/" + data.Name, partition: data.Namespace + "/" + data.Name, data: data,
	})
}
