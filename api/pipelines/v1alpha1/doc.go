// Package v1alpha1 holds the Pipeline API of group pipelines.weave.works.
//
// Purpose: a superset, field for field, of the API of weaveworks
// pipeline-controller, so that every manifest written for it applies unchanged.
// Whatever Capstan adds is optional.
//
// Contract: the schema never refuses an object that the original CRD admitted.
// What cannot be carried out (two strategies at once, duplicate environment
// names, no environments) is admitted and answered with a condition.
//
// +kubebuilder:object:generate=true
// +groupName=pipelines.weave.works
package v1alpha1
