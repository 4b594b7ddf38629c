# Sourced by the scripts that put programs into bin/.

# stamp_of prints a checksum of the inputs of a result: it changes when a file changes.
stamp_of() { # files...
  cat "$@" | cksum | tr ' ' '-'
}

# version_of prints the version of a module, as a go.mod requires it.
version_of() { # module [go.mod]
  awk -v module="$1" '$1 == "require" { $1 = ""; $0 = $0 } $1 == module && $2 ~ /^v/ { print $2; exit }' "${2:-go.mod}"
}

# minor_of prints the first two numbers of a version: v1.36.3 is 1.36.
minor_of() { # version
  echo "${1#v}" | cut -d. -f1,2
}

# Lines of progress go to where stderr went at the start, also from a $(substitution) that
# keeps the stderr of its command.
exec 3>&2

# progress_every is the time between two lines of progress, in seconds.
progress_every=20

# supervise runs a command and prints a line of progress every 20 s while it runs. After
# the limit, in seconds, it ends the command and returns 124; the limit 0 means none. The
# command ends with this shell, also when a signal such as that of Ctrl-C ends the shell.
supervise() { # limit label command...
  local limit=$1 label=$2 started=$SECONDS next pid
  shift 2
  "$@" &
  pid=$!
  # shellcheck disable=SC2064 # The number is that of now.
  trap "kill $pid 2>/dev/null || true" EXIT
  next=$((SECONDS + progress_every))
  while kill -0 "$pid" 2>/dev/null; do
    sleep 0.1
    if [ "$limit" -gt 0 ] && [ $((SECONDS - started)) -ge "$limit" ]; then
      trap - EXIT
      kill "$pid" 2>/dev/null || true
      wait "$pid" 2>/dev/null || true
      return 124
    fi
    if [ "$SECONDS" -ge "$next" ]; then
      echo "  $label: $((SECONDS - started)) s so far" >&3
      next=$((SECONDS + progress_every))
    fi
  done
  trap - EXIT
  wait "$pid"
}

# compile builds one program, prints its progress, and replaces the old program in one
# step, so that a process that runs it is not disturbed. With cgo=1 the program may
# contain C. Other processes on the machine have priority.
compile() { # output package [ldflags] [tags]
  local name started=$SECONDS
  name=$(basename "$1")
  echo "  $name: compiling $2 (minutes on a cold cache)"
  CGO_ENABLED=${cgo:-0} supervise 0 "$name: compiling" \
    nice go build -buildvcs=false -ldflags "-s -w ${3:-}" -tags "${4:-}" -o "$1.new" "$2"
  mv "$1.new" "$1"
  echo "  $name: built in $((SECONDS - started)) s"
}

# link_programs links programs of one directory into another.
link_programs() { # from into names...
  local from=$1 into=$2 name
  shift 2
  for name in "$@"; do
    ln -sfn "$from/$name" "$into/$name" || return
  done
}

# identity_of prints a checksum of the files' sizes and times, to detect a replacement.
identity_of() { # files...
  ls -lL "$@" 2>/dev/null | cksum | tr ' ' '-'
}

# reported prints the first version, as 1.36.3, in what a command prints; nothing if the
# command fails or takes longer than 20 s.
reported() { # command...
  local answer
  answer=$(supervise 20 "$1" "$@" 2>/dev/null </dev/null) || return 0
  echo "$answer" | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | sed -n 1p || true
}
