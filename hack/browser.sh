#!/usr/bin/env bash
# What test/browser needs: Chromium, which is found or installed by Debian's package, and
# axe-core, by npm. Ends with 75 where something is missing that cannot be installed
# here, and says what; another code is a failure of what should have worked.
set -euo pipefail
cd "$(dirname "$0")/.."

lacking=75 # EX_TEMPFAIL
began=$SECONDS
say() { printf '  %3d s  %s\n' $((SECONDS - began)) "$*"; }

# The names that test/browser looks for.
found() {
  local name
  for name in ${CAPSTAN_CHROMIUM:+"$CAPSTAN_CHROMIUM"} chromium chromium-browser google-chrome google-chrome-stable; do
    command -v "$name" && return
  done
  return 1
}

apt() { # what a package manager may take, bounded, with its own words
  timeout --kill-after=10 "$1" apt-get -y -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3 -o Acquire::http::Timeout=30 \
    -o Dpkg::Use-Pty=0 "${@:2}" </dev/null 2>&1 | grep -E '^(Err|E:|W:|Need to get|Fetched|Unpacking chromium|Setting up chromium)' | sed 's/^/         /'
  return "${PIPESTATUS[0]}"
}

install_chromium() {
  if ! command -v apt-get >/dev/null; then
    echo "chromium is not installed, and there is no apt-get to install it with: install it, or name it in CAPSTAN_CHROMIUM" >&2
    return $lacking
  fi
  if [ "$(id -u)" != 0 ]; then
    echo "chromium is not installed, and only root can install it: sudo apt-get install chromium, then run this again" >&2
    return $lacking
  fi
  say "asking for Debian's packages"
  export DEBIAN_FRONTEND=noninteractive
  apt 300 update || say "not all lists could be read: trying with what there is"
  say "installing chromium (Debian's package, some 100 MB)"
  if ! apt 600 install --no-install-recommends chromium fonts-dejavu-core; then
    echo "chromium could not be installed: what apt-get said is above" >&2
    return $lacking
  fi
}

found >/dev/null || install_chromium || exit $?
say "chromium: $(found)"

axe=test/browser/node_modules/axe-core/axe.min.js
if [ ! -f $axe ]; then
  if ! command -v npm >/dev/null; then
    echo "npm is not installed: TestAccessible is skipped (Debian: sudo apt-get install npm)" >&2
    exit 0
  fi
  say "installing axe-core"
  timeout 300 npm ci --prefix test/browser --ignore-scripts --no-audit --no-fund --fetch-retries 3 || {
    echo "npm could not install axe-core: TestAccessible is skipped" >&2
    exit 0
  }
fi
say "axe-core: $axe"
