#!/usr/bin/env bash
# Runs a command, and prints a line of progress every 20 s while it runs.
#   hack/progress.sh LABEL COMMAND...
set -euo pipefail
. "$(dirname "$0")/compile.sh"
supervise 0 "$@"
