#!/usr/bin/env bash
# Provides the programs for test/browser: Chromium (an existing one, or Debian's package) and
# axe-core (by npm). The exit code is 75 if something is missing and cannot be installed on
# this machine; a message names it. Other codes are failures.
set -euo pipefail
cd "$(dirname "$0")/.."

lacking=75 # EX_TEMPFAIL
began=$SECONDS
say() { printf '  %3d s  %s\n' $((SECONDS - began)) "$*"; }

# The names under which test/browser searches for Chromium.
found() {
  local name
  for name in ${CAPSTAN_CHROMIUM:+"$CAPSTAN_CHROMIUM"} chromium chromium-browser google-chrome google-chrome-stable; do
    command -v "$name" && return
  done
  return 1
}

apt() { # runs apt-get with a time limit, and prints its main messages
  timeout --kill-after=10 "$1" apt-get -y -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3 -o Acquire::http::Timeout=30 \
    -o Dpkg::Use-Pty=0 "${@:2}" </dev/null 2>&1 | grep -E '^(Err|E:|W:|Need to get|Fetched|Unpacking chromium|Setting up chromium)' | sed 's/^/         /'
  return "${PIPESTATUS[0]}"
}

install_chromium() {
  if ! command -v apt-get >/dev/null; then
    echo "chromium is not installed, and there is no apt-get: install chromium, or set CAPSTAN_CHROMIUM to its path" >&2
    return $lacking
  fi
  if [ "$(id -u)" != 0 ]; then
    echo "chromium is not installed, and only root can install it: sudo apt-get install chromium, then run this again" >&2
    return $lacking
  fi
  say "updating the lists of Debian's packages"
  export DEBIAN_FRONTEND=noninteractive
  apt 300 update || say "not all lists could be updated: trying with the existing ones"
  say "installing chromium (Debian's package, about 100 MB)"
  if ! apt 600 install --no-install-recommends chromium fonts-dejavu-core; then
    echo "chromium could not be installed: see the messages of apt-get above" >&2
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
