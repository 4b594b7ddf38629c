// Package alerts has the tests of config/flux-notifications, which lets Flux Alerts select
// Pipelines. Only tests are here. They use a kube-apiserver with Flux's own
// CustomResourceDefinitions (make crds), and kubectl as kustomize.
package alerts
