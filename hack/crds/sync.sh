#!/usr/bin/env bash
# Lays out the CustomResourceDefinitions of other products, one directory per product, in
# bin/crds. They are read from the downloaded Go modules that go.mod requires. Nothing is
# compiled. With the argument "old" it lays out those of earlier versions, which only tests
# need: from old/go.mod, and helm-old/go.mod, whose API controller-gen reads.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$here/../compile.sh"
out=$root/bin/crds
age=${1:-current}

stamp=$(cd "$here" && stamp_of sync.sh go.mod go.sum old/go.mod old/go.sum helm-old/go.mod helm-old/go.sum)
if [ "$(cat "$out/.stamp-$age" 2>/dev/null)" = "$stamp" ]; then
  exit 0
fi
new=$root/bin/.crds.new-$age
rm -rf "$new"
mkdir -p "$new" "$out"

# copy takes CRD files, named by their part before .yaml (plurals, or * for all),
# out of the module's config/crd/bases.
copy() { # product directory-of-go.mod module group plurals...
  local product=$1 module=$3 group=$4 dir version plural
  (cd "$here/$2" && supervise 0 "$product: downloading $module" go mod download "$module")
  dir=$(cd "$here/$2" && go list -m -f '{{.Dir}}' "$module")
  version=$(cd "$here/$2" && go list -m -f '{{.Version}}' "$module")
  shift 4
  mkdir -p "$new/$product"
  for plural in "$@"; do
    # Unquoted on purpose: the plural may be a pattern.
    install -m 0644 "$dir/config/crd/bases/$group"_$plural.yaml "$new/$product/"
  done
  echo "  $product: $(ls "$new/$product" | wc -l | tr -d ' ') from $module $version"
}

# copy_file takes one CRD file out of a module that does not have it in config/crd/bases.
copy_file() { # product directory-of-go.mod module file
  local product=$1 module=$3 dir
  (cd "$here/$2" && supervise 0 "$product: downloading $module" go mod download "$module")
  dir=$(cd "$here/$2" && go list -m -f '{{.Dir}}' "$module")
  mkdir -p "$new/$product"
  install -m 0644 "$dir/$4" "$new/$product/"
  echo "  $product: $(basename "$4") from $module $(cd "$here/$2" && go list -m -f '{{.Version}}' "$module")"
}

core="clusters machinedeployments machinesets machinepools machines"
# What CAPA has for machines, and for every place where a cluster's region stands.
aws="awsclusters awsclustercontrolleridentities awsclusterroleidentities awsclusterstaticidentities awsmachines awsmachinepools awsmachinetemplates awsmanagedclusters awsmanagedmachinepools rosaclusters rosamachinepools"

current() {
  echo "CRDs of other products into bin/crds (kept afterwards)"
  copy cluster-api . sigs.k8s.io/cluster-api cluster.x-k8s.io $core
  copy cluster-api-provider-aws . sigs.k8s.io/cluster-api-provider-aws/v2 infrastructure.cluster.x-k8s.io $aws
  copy cluster-api-provider-aws . sigs.k8s.io/cluster-api-provider-aws/v2 controlplane.cluster.x-k8s.io awsmanagedcontrolplanes rosacontrolplanes
  copy helm-controller . github.com/fluxcd/helm-controller helm.toolkit.fluxcd.io helmreleases
  copy kustomize-controller . github.com/fluxcd/kustomize-controller kustomize.toolkit.fluxcd.io kustomizations
  copy notification-controller . github.com/fluxcd/notification-controller notification.toolkit.fluxcd.io '*'
  copy source-controller . github.com/fluxcd/source-controller source.toolkit.fluxcd.io '*'
  copy cluster-inventory-api . sigs.k8s.io/cluster-inventory-api multicluster.x-k8s.io clusterprofiles
  copy cluster-controller . github.com/weaveworks/cluster-controller gitops.weave.works gitopsclusters
  copy_file argo-cd . github.com/argoproj/argo-cd/v3 manifests/crds/application-crd.yaml
}

old() {
  local api=github.com/fluxcd/helm-controller/api
  echo "CRDs of earlier versions of other products into bin/crds (kept afterwards)"
  copy cluster-api-old old sigs.k8s.io/cluster-api cluster.x-k8s.io $core
  copy cluster-api-provider-aws-old old sigs.k8s.io/cluster-api-provider-aws/v2 infrastructure.cluster.x-k8s.io $aws
  copy cluster-api-provider-aws-old old sigs.k8s.io/cluster-api-provider-aws/v2 controlplane.cluster.x-k8s.io awsmanagedcontrolplanes rosacontrolplanes
  "$here/../tool.sh" tools sigs.k8s.io/controller-tools/cmd/controller-gen
  (cd "$here/helm-old" && supervise 0 "helm-controller-old: generating" "$root/bin/controller-gen" crd \
    paths="$api/v2;$api/v2beta2;$api/v2beta1" output:crd:dir="$new/helm-controller-old")
  echo "  helm-controller-old: generated from $api $(cd "$here/helm-old" && go list -m -f '{{.Version}}' $api)"
}

"$age"

# A bare control plane has no webhooks. A CRD with a conversion webhook would be refused,
# or would block its readers. None of these files has one (the products add it by a
# kustomize patch), and a new version that has one fails here.
if grep -rlE '^ +strategy: Webhook' "$new"; then
  echo "the CRDs above have a conversion webhook: remove it in this script" >&2
  exit 1
fi

for product in "$new"/*; do
  rm -rf "${out:?}/$(basename "$product")"
  mv "$product" "$out/"
done
rmdir "$new"
echo "$stamp" >"$out/.stamp-$age"
