# Sourced by the scripts that build tools from their own modules.

# stamp_of prints what a result is made from: it changes when a file does.
stamp_of() { # files...
  cat "$@" | cksum | tr ' ' '-'
}

# compile builds one binary, tells how long it takes, and replaces the old one in
# one step, so that a process that runs it is not disturbed. With cgo=1 before it,
# what it is built from may have C in it. Others who use the machine go first.
compile() { # output package [ldflags] [tags]
  local name pid started=$SECONDS
  name=$(basename "$1")
  echo "  $name: compiling $2 (minutes on a cold cache)"
  CGO_ENABLED=${cgo:-0} nice go build -trimpath -buildvcs=false -ldflags "-s -w ${3:-}" -tags "${4:-}" -o "$1.new" "$2" &
  pid=$!
  while kill -0 "$pid" 2>/dev/null; do
    sleep 1
    if [ $(((SECONDS - started) % 30)) -eq 29 ]; then
      echo "  $name: still compiling, $((SECONDS - started)) s"
      sleep 1
    fi
  done
  wait "$pid"
  mv "$1.new" "$1"
  echo "  $name: built in $((SECONDS - started)) s"
}
