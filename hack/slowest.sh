#!/usr/bin/env bash
# Prints the slowest packages and tests of a run of `go test -json`, as Markdown tables
# for docs/testing.md.
#   hack/slowest.sh FILE [COUNT]
# Times are wall times. The time of a test includes its subtests, so only tests of the
# top level are listed. The time that a parallel test waits for its turn does not count.
set -euo pipefail
file=$1
count=${2:-30}

# field NAME prints the value of a string or a number in the JSON line.
program='
function field(name,   rest) {
  if (!match($0, "\"" name "\":")) return ""
  rest = substr($0, RSTART + RLENGTH)
  if (substr(rest, 1, 1) == "\"") { rest = substr(rest, 2); sub(/".*/, "", rest) } else sub(/[,}].*/, "", rest)
  return rest
}
!/"Action":"(pass|fail)"/ { next }
{
  package = field("Package"); test = field("Test"); action = field("Action"); elapsed = field("Elapsed")
  sub(/^github.com\/capstan-hub\/capstan\/?/, "", package)
  if (index(test, "/")) next
  if (test == "" && of == "packages") printf "%.1f\t| %s | %.1f |%s\n", elapsed, package, elapsed, action == "fail" ? " FAILED" : ""
  if (test != "" && of == "tests") printf "%.1f\t| %s | %s | %.1f |%s\n", elapsed, package, test, elapsed, action == "fail" ? " FAILED" : ""
}'
top() { sort -t "$(printf '\t')" -k1,1 -rn | sed -n "1,${count}p" | cut -f2; }

echo "| package | seconds |"
echo "|---|---|"
awk -v of=packages "$program" "$file" | top
echo
echo "| package | test | seconds |"
echo "|---|---|---|"
awk -v of=tests "$program" "$file" | top
