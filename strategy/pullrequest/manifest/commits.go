package manifest

import (
	"bytes"
	"regexp"
	"strings"

	"github.com/capstan-hub/capstan/internal/revision"
)

// commitHash is a commit as the part commit writes it.
var commitHash = regexp.MustCompile(`[0-9a-f]{40}`)

// OnlyCommits reports whether two states of a file differ only in commits that markers with the
// part commit request, of any environment. A promotion of one of the states then leads to
// the same applications as a promotion of the other. It compares lines and does not parse YAML.
func OnlyCommits(before, after []byte) bool {
	old, now := bytes.Split(before, []byte("\n")), bytes.Split(after, []byte("\n"))
	if len(old) != len(now) {
		return false
	}
	above := false // The comments directly above the line have a marker.
	for i := range now {
		marked := requestsCommit(now[i])
		if !bytes.Equal(old[i], now[i]) && (!marked && !above || !onlyCommit(old[i], now[i])) {
			return false
		}
		above = bytes.HasPrefix(bytes.TrimLeft(now[i], " \t"), []byte("#")) && (marked || above)
	}
	return true
}

// onlyCommit reports whether a line has a commit, and is otherwise the same as it was. What was
// there before need not be a commit: the first promotion replaces whatever a user wrote.
func onlyCommit(before, after []byte) bool {
	at := commitHash.FindIndex(after)
	if at == nil {
		return false
	}
	begin, end := after[:at[0]], after[at[1]:]
	return len(before) >= len(begin)+len(end) && bytes.HasPrefix(before, begin) && bytes.HasSuffix(before, end)
}

// requestsCommit reports whether a line ends in a marker with the part commit.
func requestsCommit(line []byte) bool {
	_, fields, ok := trailer(bytes.TrimRight(line, "\r"))
	return ok && strings.HasSuffix(fields[key], ":"+string(revision.Commit))
}
