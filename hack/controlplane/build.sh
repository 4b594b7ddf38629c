#!/usr/bin/env bash
# Builds etcd, kube-apiserver and kubectl from their Go modules into a directory, unless
# they are there already and go.mod is the same.
set -euo pipefail
cd "$(dirname "$0")"
. ../compile.sh
out=${1:-../../bin/envtest}
mkdir -p "$out"
out=$(cd "$out" && pwd)

stamp=$(stamp_of go.mod go.sum build.sh)
if [ "$(cat "$out/.stamp" 2>/dev/null)" = "$stamp" ] &&
  [ -x "$out/kube-apiserver" ] && [ -x "$out/etcd" ] && [ -x "$out/kubectl" ]; then
  exit 0
fi

kube=$(version_of k8s.io/kubernetes)
minor=${kube#v1.}
minor=${minor%%.*}
# Without these the server reports v0.0.0-master, which no client can parse.
version="-X k8s.io/component-base/version.gitVersion=$kube -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=$minor -X k8s.io/client-go/pkg/version.gitVersion=$kube"

echo "control plane $kube into bin/envtest (kept afterwards)"
compile "$out/etcd" go.etcd.io/etcd/server/v3
compile "$out/kube-apiserver" k8s.io/kubernetes/cmd/kube-apiserver "$version"
compile "$out/kubectl" k8s.io/kubernetes/cmd/kubectl "$version"
echo "$stamp" >"$out/.stamp"
