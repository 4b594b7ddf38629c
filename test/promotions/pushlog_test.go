package promotions_test

import (
	"bytes"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
)

// pushLog records what the hub pushes: the commits of each branch, and no deletions.
type pushLog struct {
	mu     sync.Mutex
	pushed map[string][]string
}

// command is the first line of a push: the old commit, the new one and the branch.
var command = regexp.MustCompile(`^[0-9a-f]{4}([0-9a-f]{40}) ([0-9a-f]{40}) refs/heads/([^\x00\n]+)`)

var noCommit = strings.Repeat("0", 40)

func (l *pushLog) note(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if pushes(r) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			if m := command.FindSubmatch(body); m != nil && string(m[2]) != noCommit {
				l.mu.Lock()
				if l.pushed == nil {
					l.pushed = map[string][]string{}
				}
				l.pushed[string(m[3])] = append(l.pushed[string(m[3])], string(m[2]))
				l.mu.Unlock()
			}
		}
		next.ServeHTTP(w, r)
	})
}

// of returns the commits that were pushed to the branch of an environment.
func (l *pushLog) of(env string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var commits []string
	for branch, pushed := range l.pushed {
		if strings.HasSuffix(branch, "-"+env) {
			commits = append(commits, pushed...)
		}
	}
	return commits
}
