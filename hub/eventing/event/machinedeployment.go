package event

import (
	"encoding/json"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/types"
)

// MachineDeployment is the data of events of capacity annotations.
type MachineDeployment struct {
	Cluster      string `json:"cluster,omitempty" jsonschema:"name of the cluster that holds it; absent for the management cluster"`
	Kind         string `json:"kind" jsonschema:"MachineDeployment, MachineSet or MachinePool"`
	Namespace    string `json:"namespace" jsonschema:"its namespace"`
	Name         string `json:"name" jsonschema:"its name"`
	InstanceType string `json:"instanceType,omitempty" jsonschema:"type of its instances"`
	CPU          int64  `json:"cpu,omitempty" jsonschema:"virtual CPUs of one"`
	MemoryMiB    int64  `json:"memoryMiB,omitempty" jsonschema:"memory of one, in MiB"`
	GPU          int64  `json:"gpu,omitempty" jsonschema:"GPUs of one"`
	Architecture string `json:"architecture,omitempty" jsonschema:"architecture, such as arm64"`
	Reason       string `json:"reason,omitempty" jsonschema:"why the capacity could not be told, in one word"`
	Message      string `json:"message,omitempty" jsonschema:"the same for people"`
}

// MachineDeployments tells that a MachineDeployment of the UID was annotated, or could
// not be when data has a reason. The same told at another resourceVersion of the object
// is another event.
func (h Hub) MachineDeployments(uid types.UID, resourceVersion string, data MachineDeployment, at time.Time) ce.Event {
	k := MachineDeploymentAnnotated
	if data.Reason != "" {
		k = MachineDeploymentAnnotationFailed
	}
	edge := data
	edge.Message = ""                   // A message may name a request id of AWS.
	transition, _ := json.Marshal(edge) // A struct of strings and numbers has a JSON form.
	data.Message = cut(data.Message)
	return h.event(news{
		kind: k, object: string(uid), transition: resourceVersion + " " + string(transition), at: at,
		subject: "machinedeployments/" + data.Namespace + "/" + data.Name, partition: data.Namespace + "/" + data.Name, data: data,
	})
}
