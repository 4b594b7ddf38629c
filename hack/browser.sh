#!/usr/bin/env bash
# What test/browser needs: Chromium, by Debian's package, and axe-core, by npm.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v chromium >/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "  installing chromium"
    apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core >/dev/null
  else
    echo "chromium is not installed: install it (Debian: sudo apt-get install chromium), then run this again" >&2
    exit 1
  fi
fi
if [ ! -f test/browser/node_modules/axe-core/axe.min.js ]; then
  if ! command -v npm >/dev/null; then
    echo "npm is not installed: install it (Debian: sudo apt-get install npm), then run this again" >&2
    exit 1
  fi
  echo "  installing axe-core"
  npm ci --prefix test/browser --ignore-scripts --no-audit --no-fund --silent
fi
