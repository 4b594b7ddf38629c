// Package v1alpha1 contains the Pipeline API of group pipelines.weave.works.
//
// Purpose: the API is a superset of the API of weaveworks pipeline-controller, with the
// same field names. Every manifest for it applies unchanged. All fields that Capstan
// adds are optional.
//
// Contract: the schema never rejects an object that the original CRD accepts. A spec
// that cannot be executed (two strategies, duplicate environment names, no
// environments) is accepted and reported in a condition.
//
// +kubebuilder:object:generate=true
// +groupName=pipelines.weave.works
package v1alpha1
