// Package v1alpha1 contains Capstan's own API of group capstan.dev: the hub's records of
// promotions (Promotion) and of connections to clusters (ClusterConnection), the requests of
// users for promotions (PromotionRequest) and the windows of administrators (PromotionWindow).
//
// The hub writes Promotions and ClusterConnections. Users write three fields of a Promotion:
// spec.approval, spec.overrides and spec.retry. Users and administrators create the other two
// kinds, and the hub writes their status.
//
// +kubebuilder:object:generate=true
// +groupName=capstan.dev
package v1alpha1
