#!/usr/bin/env bash
# Copies the files that Gitea reads when it runs from its Go module into a directory.
#   hack/gitea/files.sh DIRECTORY
set -euo pipefail
into=$1
cd "$(dirname "$0")"
. ../compile.sh

module=code.gitea.io/gitea
supervise 0 "gitea: downloading its module" go mod download "$module"
source=$(go list -m -f '{{.Dir}}' "$module")
rm -rf "$into"
mkdir "$into"
cp -R "$source/options" "$source/templates" "$source/public" "$into/"
# Modules are read-only; make clean must be able to remove the copy.
chmod -R u+w "$into"
