// Package v1alpha1 contains EventingBackend of the group eventing.kyma-project.io: an
// event backend that the hub publishes to or, for an AWS queue, reads from.
//
// Contract: the fields are those of the design proposal "Eventing Backend CRD"
// (docs/eventing.md); all other fields are optional. The schema of each backend type
// (hub/eventing/schema) defines the keys of spec.config. The hub also serves that
// schema at /backend.
//
// +kubebuilder:object:generate=true
// +groupName=eventing.kyma-project.io
package v1alpha1
