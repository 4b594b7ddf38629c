#!/usr/bin/env bash
# Puts Gitea into bin/gitea, and the files that it reads into bin/gitea-files. CAPSTAN_GITEA
# names a binary to use; it needs the minor version of go.mod and SQLite. Without one, Gitea
# is built from its Go module. A released binary contains its files; for a binary without
# them, the files of its version come from the Go module.
set -euo pipefail
cd "$(dirname "$0")"
. ../compile.sh
given=${CAPSTAN_GITEA:-}
case $given in
  "" | /*) ;;
  *) given=$OLDPWD/$given ;; # Relative to the directory of the caller.
esac
bin=../../bin
mkdir -p "$bin/.stamps"
bin=$(cd "$bin" && pwd -P)
want=$(version_of code.gitea.io/gitea)

say() { echo "Gitea: $*"; }

# built_with returns 0 if a binary was built with a Go build tag. Released binaries print
# their tags; any Go binary has them in its build information.
built_with() { # binary tag
  local said
  said=$("$1" --version 2>/dev/null </dev/null | sed -n 's/.* : //p') || true
  said="$said $(go version -m "$1" 2>/dev/null | sed -n 's/.*-tags=//p')" || true
  case " ${said//[,]/ } " in
    *" $2 "*) ;;
    *) return 1 ;;
  esac
}

# mismatch prints why a binary cannot be used; nothing if it can.
mismatch() { # binary
  local found
  if [ ! -x "$1" ]; then
    echo "there is no such program"
    return
  fi
  found=$(reported "$1" --version)
  if [ "$(minor_of "$found")" != "$(minor_of "$want")" ]; then
    echo "it reports version ${found:-(none)}, and $(minor_of "$want").x is needed"
  elif ! built_with "$1" sqlite; then
    echo "it was built without SQLite (the Go build tag sqlite)"
  elif ! built_with "$1" bindata && [ "$found" != "${want#v}" ]; then
    echo "it does not contain its files, and those of ${want#v} do not fit version $found"
  fi
}

linked() { echo "linked $want $1 $(identity_of "$1")"; }

if [ -n "$given" ]; then
  given=$(cd "$(dirname "$given")" 2>/dev/null && pwd -P)/$(basename "$given")
  if [ "$given" = "$bin/gitea" ]; then
    given=
  fi
fi
stamp=$(cat "$bin/.stamps/gitea" 2>/dev/null) || stamp=
if [ -n "$given" ]; then
  if [ "$stamp" = "$(linked "$given")" ] && [ -x "$bin/gitea" ] && [ -d "$bin/gitea-files" ]; then
    exit 0
  fi
  why=$(mismatch "$given")
  if [ -z "$why" ]; then
    if built_with "$given" bindata; then
      rm -rf "$bin/gitea-files"
      mkdir "$bin/gitea-files"
    else
      ./files.sh "$bin/gitea-files"
    fi
    ln -sfn "$given" "$bin/gitea"
    linked "$given" >"$bin/.stamps/gitea"
    say "$given"
    exit 0
  fi
  say "CAPSTAN_GITEA=$CAPSTAN_GITEA is not used: $why"
fi
case $stamp in
  "linked $want "*)
    used=${stamp#"linked $want "}
    if [ "$stamp" = "$(linked "${used% *}")" ] && [ -x "$bin/gitea" ] && [ -d "$bin/gitea-files" ]; then
      exit 0
    fi
    ;;
esac
exec ./build.sh
