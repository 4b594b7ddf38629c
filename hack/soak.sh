#!/usr/bin/env bash
# Runs the tests that have a full count in addition to the small one of `make test`: tests
# that read CAPSTAN_SOAK, and property tests, with many more histories. A repetition of other
# tests has no use, so they are left out.
#   hack/soak.sh CHECKS PACKAGES -- FLAGS OF GO TEST
set -euo pipefail
checks=$1
shift
packages=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  packages+=("$1")
  shift
done
[ $# -gt 0 ] && shift

export CAPSTAN_SOAK=1
found=
format='{{.ImportPath}}{{$d := .Dir}}{{range .TestGoFiles}} {{$d}}/{{.}}{{end}}{{range .XTestGoFiles}} {{$d}}/{{.}}{{end}}'
listed=$(go list -f "$format" "${packages[@]}")
while read -r package files; do
  [ -n "$files" ] || continue
  # Only a test binary with property tests has the flag. A package that sets it has a number of
  # its own, because its histories take seconds.
  property=
  if grep -q '"pgregory.net/rapid"' $files && ! grep -q '"rapid.checks"' $files; then
    property="-rapid.checks=$checks"
  elif ! grep -q CAPSTAN_SOAK $files; then
    continue
  fi
  found=yes
  echo "$(date +%T) $package $property"
  go test -count=1 "$@" "$package" $property
done <<<"$listed"
[ -n "$found" ] || echo "none of these packages has tests with a full count"
