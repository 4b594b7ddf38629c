#!/usr/bin/env bash
# Builds one tool from its module in hack/ into bin/, unless it is there already:
#   hack/tool.sh lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
set -euo pipefail
cd "$(dirname "$0")/$1"
. ../compile.sh
bin=../../bin
out=$bin/$(basename "$2")
mkdir -p "$bin/.stamps"

stamp="$bin/.stamps/$(basename "$2")"
want=$(stamp_of go.mod go.sum ../tool.sh)
if [ -x "$out" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$want" ]; then
  exit 0
fi
compile "$out" "$2"
echo "$want" >"$stamp"
