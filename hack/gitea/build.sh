#!/usr/bin/env bash
# Builds Gitea from its Go module into bin/gitea, and copies the files that it reads when
# it runs to bin/gitea-files: Gitea's own builds pack these into the binary, which needs a
# step that writes into the module. Both are kept while their sources stay the same.
set -euo pipefail
cd "$(dirname "$0")"
. ../compile.sh
bin=$(cd ../.. && pwd)/bin
mkdir -p "$bin/.stamps"

stamp=$(stamp_of go.mod go.sum build.sh files.sh)
if [ "$(cat "$bin/.stamps/gitea" 2>/dev/null)" = "$stamp" ] &&
  [ -x "$bin/gitea" ] && [ -d "$bin/gitea-files" ]; then
  exit 0
fi
if ! command -v "$(go env CC)" >/dev/null 2>&1; then
  echo "gitea: its database is SQLite, which needs a C compiler ($(go env CC)): install one, or name a Gitea binary in CAPSTAN_GITEA" >&2
  exit 1
fi

module=code.gitea.io/gitea
version=$(version_of "$module")
echo "Gitea $version into bin/gitea (kept afterwards)"
# netgo and osusergo: only SQLite needs C, so the other packages are those of the other programs.
# gcc needs a minute less to compile SQLite with -O1.
export CGO_CFLAGS="${CGO_CFLAGS:--O1}"
cgo=1 compile "$bin/gitea" "$module" "-X main.Version=${version#v}" sqlite,sqlite_unlock_notify,netgo,osusergo
./files.sh "$bin/gitea-files"
echo "$stamp" >"$bin/.stamps/gitea"
