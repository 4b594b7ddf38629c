#!/usr/bin/env bash
# Puts etcd, kube-apiserver and kubectl into bin/envtest, from the first place that has
# them in the versions of go.mod. The minor version counts: a patch release adds no API.
#   1. the directory in the argument, which is the user's KUBEBUILDER_ASSETS
#   2. bin/envtest, from an earlier run
#   3. the store of setup-envtest
#   4. a download by setup-envtest, which compares checksums; CAPSTAN_DOWNLOAD=no leaves it out
#   5. a build from Go modules
# A failed download is not tried again until `make clean`.
set -euo pipefail
cd "$(dirname "$0")"
. ../compile.sh
assets=${1:-}
case $assets in
  "" | /*) ;;
  *) assets=$OLDPWD/$assets ;; # Relative to the directory of the caller.
esac
bin=../../bin
mkdir -p "$bin/envtest"
bin=$(cd "$bin" && pwd -P)
out=$(cd "$bin/envtest" && pwd -P)
programs=(etcd kube-apiserver kubectl)

kube=$(minor_of "$(version_of k8s.io/kubernetes)")
etcd=$(minor_of "$(version_of go.etcd.io/etcd/server/v3)")

say() { echo "control plane: $*"; }

# mismatch prints why the programs of a directory cannot be used; nothing if they can.
mismatch() { # directory
  local program want found
  for program in "${programs[@]}"; do
    want=$kube
    [ "$program" = etcd ] && want=$etcd
    if [ ! -x "$1/$program" ]; then
      echo "it has no $program"
      return
    fi
    case $program in
      kubectl) found=$(reported "$1/$program" version --client) ;;
      *) found=$(reported "$1/$program" --version) ;;
    esac
    if [ "$(minor_of "$found")" != "$want" ]; then
      echo "its $program reports version ${found:-(none)}, and $want.x is needed"
      return
    fi
  done
}

# linked prints the stamp for programs that are links into a directory.
linked() { # directory
  echo "linked $kube $etcd $1 $(cd "$1" 2>/dev/null && identity_of "${programs[@]}")"
}

# use links the programs of a directory into bin/envtest.
use() { # directory
  link_programs "$1" "$out" "${programs[@]}" || return
  linked "$1" >"$out/.stamp"
  say "etcd $etcd.x, kube-apiserver and kubectl $kube.x of $1"
}

# current returns 0 if bin/envtest has the valid result of an earlier run.
current() {
  local program stamp directory
  stamp=$(cat "$out/.stamp" 2>/dev/null) || return 1
  for program in "${programs[@]}"; do
    [ -x "$out/$program" ] || return 1
  done
  case $stamp in
    "linked $kube $etcd "*)
      directory=${stamp#"linked $kube $etcd "}
      directory=${directory% *}
      [ "$stamp" = "$(linked "$directory")" ]
      ;;
    *) [ "$stamp" = "$(stamp_of go.mod go.sum build.sh)" ] ;;
  esac
}

given() {
  local why directory
  [ -n "$assets" ] || return 1
  if ! directory=$(cd "$assets" 2>/dev/null && pwd -P); then
    say "KUBEBUILDER_ASSETS=$assets is not used: there is no such directory"
    return 1
  fi
  [ "$directory" != "$out" ] || return 1
  if [ "$(cat "$out/.stamp" 2>/dev/null)" = "$(linked "$directory")" ] && current; then
    return 0
  fi
  why=$(mismatch "$directory")
  if [ -n "$why" ]; then
    say "KUBEBUILDER_ASSETS=$assets is not used: $why"
    return 1
  fi
  use "$directory"
}

# stored uses the newest usable version in the store of setup-envtest.
stored() {
  local store name directory platform
  platform=$(go env GOOS)-$(go env GOARCH)
  case $(go env GOOS) in
    darwin) store="${HOME:-}/Library/Application Support/io.kubebuilder.envtest" ;;
    *) store="${XDG_DATA_HOME:-${HOME:-}/.local/share}/kubebuilder-envtest" ;;
  esac
  while read -r name; do
    directory=$store/k8s/$name
    case $name in
      "$kube".*-"$platform")
        if [ -z "$(mismatch "$directory")" ]; then
          use "$directory"
          return
        fi
        ;;
    esac
  done < <(ls "$store/k8s" 2>/dev/null | sort -t. -k3nr)
  return 1
}

# download runs setup-envtest once. A failure is recorded, and the run continues.
download() {
  local refused=$out/.download-failed why directory
  [ "${CAPSTAN_DOWNLOAD:-yes}" != no ] || return 1
  [ "$(cat "$refused" 2>/dev/null)" != "$kube" ] || return 1
  say "trying to download Kubernetes $kube.x with setup-envtest"
  if why=$(fetch 2>&1 >"$out/.downloaded"); then
    directory=$(cat "$out/.downloaded")
    if [ -n "$directory" ]; then
      why=$(mismatch "$directory")
    else
      why="setup-envtest printed no directory"
    fi
  fi
  rm -f "$out/.downloaded"
  if [ -z "$why" ]; then
    use "$directory"
    return
  fi
  echo "$kube" >"$refused"
  say "no download ($(echo "$why" | tail -1)); building instead"
  return 1
}

# reachable returns 1 and prints why if the index that setup-envtest reads cannot be had. It
# asks before setup-envtest is compiled, which takes half a minute. It returns 0 if it cannot
# find out.
reachable() {
  local index why
  [ ! -x "$bin/setup-envtest" ] && command -v curl >/dev/null || return 0
  index=$(index_url) && [ -n "$index" ] || return 0
  why=$(curl -fsSIL --max-time 10 "$index" 2>&1 >/dev/null) && return 0
  echo "$why" | tail -1
  return 1
}

# index_url prints the address of the index, as the source of setup-envtest has it.
index_url() {
  local module=sigs.k8s.io/controller-runtime/tools/setup-envtest
  (
    cd ../envtest
    go mod download "$module"
    sed -n 's/^var DefaultIndexURL = "\(.*\)"/\1/p' "$(go list -m -f '{{.Dir}}' "$module")"/remote/*.go
  ) 2>/dev/null
}

# fetch prints the directory of the download. It reads the index first: that is small, and
# shows within 15 s whether there is a network.
fetch() {
  local why
  why=$(reachable) || {
    echo "$why" >&2
    return 1
  }
  ../tool.sh envtest sigs.k8s.io/controller-runtime/tools/setup-envtest >&3 2>&3 || {
    echo "setup-envtest cannot be built" >&2
    return 1
  }
  limited 15 list "$kube.x" >/dev/null || return
  limited 120 use --print path "$kube.x"
}

limited() { # limit arguments...
  local limit=$1 code=0
  shift
  supervise "$limit" "setup-envtest $1" "$bin/setup-envtest" "$@" || code=$?
  if [ "$code" = 124 ]; then
    echo "setup-envtest $1 did not end within $limit s" >&2
  fi
  return "$code"
}

if given || current || stored || download; then
  exit 0
fi
exec ./build.sh "$out"
