// Earlier releases of the same products, for tests of the API versions that they
// served: one version of a module per go.mod. See ../go.mod.
module github.com/capstan-hub/capstan/hack/crds/old

go 1.26.0

require (
	sigs.k8s.io/cluster-api v1.8.0
	sigs.k8s.io/cluster-api-provider-aws/v2 v2.6.1
)
