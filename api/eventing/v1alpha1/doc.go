// Package v1alpha1 holds EventingBackend, group eventing.kyma-project.io: an event
// backend that the hub publishes to or, for a queue of AWS, reads from.
//
// Contract: the shape is that of the design proposal "Eventing Backend CRD"
// (docs/eventing.md); everything beyond it is optional. What may stand in
// spec.config is not said here but by the schema of the type (hub/eventing/schema),
// which the hub also serves at /backend.
//
// +kubebuilder:object:generate=true
// +groupName=eventing.kyma-project.io
package v1alpha1
