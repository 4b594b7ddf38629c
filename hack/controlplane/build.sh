#!/usr/bin/env bash
# Builds etcd, kube-apiserver and kubectl from their Go modules into bin/envtest.
# A binary whose version stamp is current is kept, so that only the first run compiles.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/../../bin/envtest}
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$here"

# The stamp is what the binaries are made from: any change of version builds them anew.
stamp=$(cat go.mod go.sum build.sh | sha256sum | cut -c1-16)
if [ "$(cat "$out/.stamp" 2>/dev/null || true)" = "$stamp" ] &&
   [ -x "$out/kube-apiserver" ] && [ -x "$out/etcd" ] && [ -x "$out/kubectl" ]; then
  exit 0
fi

kube=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
minor=${kube#v1.}; minor=${minor%%.*}
# Without these the server reports v0.0.0-master, which no client can parse.
version="-X k8s.io/component-base/version.gitVersion=$kube -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=$minor -X k8s.io/client-go/pkg/version.gitVersion=$kube"

build() { # name package ldflags
  local started=$SECONDS pid
  echo "  $1: compiling $2 (minutes on a cold cache)"
  CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w $3" -o "$out/.$1.new" "$2" &
  pid=$!
  while kill -0 "$pid" 2>/dev/null; do
    sleep 1
    if [ $(((SECONDS - started) % 30)) -eq 29 ]; then echo "  $1: still compiling, $((SECONDS - started)) s"; sleep 1; fi
  done
  wait "$pid"
  mv "$out/.$1.new" "$out/$1"
  echo "  $1: built in $((SECONDS - started)) s"
}

echo "control plane $kube into bin/envtest (cached afterwards)"
build etcd go.etcd.io/etcd/server/v3 ""
build kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver "$version"
build kubectl k8s.io/kubernetes/cmd/kubectl "$version"
echo "$stamp" >"$out/.stamp"
