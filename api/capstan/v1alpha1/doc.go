// Package v1alpha1 contains Capstan's own API of group capstan.dev: the hub's records of
// promotions (Promotion) and of connections to clusters (ClusterConnection).
//
// The hub writes both. Users write two fields of a Promotion: spec.approval and
// spec.retry.
//
// +kubebuilder:object:generate=true
// +groupName=capstan.dev
package v1alpha1
