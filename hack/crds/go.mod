// The CustomResourceDefinitions of others: where their text comes from. There is
// no Go code here and nothing is built; sync.sh reads the files out of the
// downloaded modules. (So `go mod tidy` has no business here: it would empty this.)
module github.com/capstan-hub/capstan/hack/crds

go 1.26.0

require (
	github.com/argoproj/argo-cd/v3 v3.3.17
	github.com/fluxcd/helm-controller v1.6.4
	github.com/fluxcd/kustomize-controller v1.9.5
	github.com/fluxcd/notification-controller v1.9.2
	github.com/fluxcd/source-controller v1.9.0
	github.com/weaveworks/cluster-controller v1.3.0
	sigs.k8s.io/cluster-api v1.13.6
	sigs.k8s.io/cluster-api-provider-aws/v2 v2.13.0
	sigs.k8s.io/cluster-inventory-api v0.1.0
)
