// Package v1alpha1 holds Capstan's own API, group capstan.dev: what the hub
// records of promotions (Promotion) and of connections (ClusterConnection).
//
// Both are written by the hub. People write two fields of a Promotion:
// spec.approval and spec.retry.
//
// +kubebuilder:object:generate=true
// +groupName=capstan.dev
package v1alpha1
