// Package chart makes the templates of the Helm chart in config/chart out of the
// manifests in config, so that rights, Services and policies are written once.
//
// Purpose: who installs by Helm and who installs by kustomize get the same objects. A
// right that is added to config/rbac, or a flag to config/manager, is in the chart by
// `make generate`, which CI checks.
//
// Contract: Files is a function of the manifests alone. A template is the manifest with
// its comments left out, the namespace and what values.yaml lets be chosen put in
// by plain replacement of text. Text that is to be replaced and is not there, or not as
// often as it should be, is an error: a manifest that moved on cannot leave a value of
// the chart without effect. test/install holds what both render against each other.
//
// Locking: none.
//
// Trade-offs: replacing text keeps the templates readable, and the generator small; a
// chart that is generated from types would be neither. Templates that have nothing to
// do with the manifests (the ServiceAccount, the notes, Services that few want) are written by hand.
package chart
