// Package alerts has the tests of config/flux-notifications, which lets Flux Alerts select
// Pipelines, and of the events that Alerts get from EventingBackends of type flux. Only tests are
// here. They use a kube-apiserver with Flux's own CustomResourceDefinitions (make crds),
// notification-controller (make notification-controller), and kubectl as kustomize.
package alerts
