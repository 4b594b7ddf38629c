package awsset

import (
	"encoding/json"
	"slices"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
)

// Reads reports whether an EventingBackend reads the queue of the target. A queueName without
// region or account counts: they are then those of the hub.
func (t *Target) Reads(b *eventingv1.EventingBackend) bool {
	return reads(b, t.QueueAccount, t.Region, t.options.name())
}

// Reads reports whether an EventingBackend reads one of the queues of the stack.
func (i *Inventory) Reads(b *eventingv1.EventingBackend) bool {
	return slices.ContainsFunc(i.Queues(), func(name string) bool { return reads(b, i.Account, i.Region, name) })
}

// reads reports whether an EventingBackend reads a queue.
func reads(b *eventingv1.EventingBackend, account, in, name string) bool {
	if !b.Spec.IsSource() {
		return false
	}
	q := schema.QueueOf(func(key string) string { return configOf(b, key) })
	region, of := q.In("")
	return q.Named() == name && (region == "" || region == in) && (of == "" || of == account)
}

// configOf returns the text of a key of a configuration; empty if it is not set.
func configOf(b *eventingv1.EventingBackend, key string) string {
	for _, entry := range b.Spec.Config {
		var text string
		if value, set := entry[key]; set && json.Unmarshal(value.Raw, &text) == nil {
			return text
		}
	}
	return ""
}

// Manifest returns an EventingBackend for the queue of the target.
func (t *Target) Manifest() string {
	domain := "amazonaws.com"
	if t.Partition == "aws-cn" {
		domain = "amazonaws.com.cn"
	}
	return `apiVersion: eventing.kyma-project.io/v1alpha1
kind: EventingBackend
metadata:
  namespace: capstan-system
  name: instances-` + t.Region + `
  labels:
    kyma-project.io/eventing: backend
spec:
  type: sqs
  config:
  - role: source
  - queueUrl: https://sqs.` + t.Region + "." + domain + "/" + t.QueueAccount + "/" + t.options.name() + "\n"
}
