package providertest

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
)

// Reasons to refuse an act. The services have different messages and codes for them.
var (
	errNoBranch    = errors.New("the branch does not exist")
	errExists      = errors.New("an open one exists")
	errHeadMoved   = errors.New("the head is another commit")
	errNotOpen     = errors.New("it is not open")
	errBehind      = errors.New("it is behind the base")
	errNotMergable = errors.New("it cannot be merged")
	errNoCommit    = errors.New("there is no such commit")
	errPending     = errors.New("the state is pending already")
)

// number returns the number of the pull request in the path.
func (s *Server) number(r *http.Request) *PullRequest {
	n, err := strconv.ParseInt(r.PathValue("number"), 10, 64)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || n < 1 || n > int64(len(s.prs)) {
		return nil
	}
	pr := *s.prs[n-1]
	return &pr
}

// change changes a pull request under the lock and returns a copy.
func (s *Server) change(number int64, act func(*PullRequest)) PullRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	pr := s.prs[number-1]
	act(pr)
	pr.version++
	return *pr
}

// newest returns the matching pull requests, newest first.
func (s *Server) newest(match func(PullRequest) bool) []PullRequest {
	all := slices.DeleteFunc(s.PullRequests(), func(pr PullRequest) bool { return !match(pr) })
	slices.Reverse(all)
	return all
}

func (s *Server) headOf(branch string) (string, bool) {
	if s.o.Head != nil {
		return s.o.Head(branch)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sha, ok := s.branches[branch]
	return sha, ok
}

// open opens a pull request.
func (s *Server) open(head, base, title, body string) (PullRequest, error) {
	sha, ok := s.headOf(head)
	if _, baseOK := s.headOf(base); !ok || !baseOK {
		return PullRequest{}, errNoBranch
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pr := range s.prs {
		if pr.Head == head && pr.Base == base && pr.State == Open && !pr.Fork {
			return *pr, errExists
		}
	}
	pr := &PullRequest{
		Number: int64(len(s.prs) + 1), State: Open, Head: head, Base: base, Title: title, Body: body, HeadSHA: sha,
	}
	s.prs = append(s.prs, pr)
	return *pr, nil
}

// current updates the head of an open pull request to that of its branch.
func (s *Server) current(pr PullRequest) PullRequest {
	sha, ok := s.headOf(pr.Head)
	if pr.State != Open || !ok || sha == pr.HeadSHA {
		return pr
	}
	return s.change(pr.Number, func(p *PullRequest) { p.HeadSHA = sha })
}

// merge merges an open pull request. An empty sha means no guard.
func (s *Server) merge(pr PullRequest, sha string) (PullRequest, error) {
	pr = s.current(pr)
	switch {
	case pr.State != Open:
		return pr, errNotOpen
	case sha != "" && sha != pr.HeadSHA:
		return pr, errHeadMoved
	}
	if s.outdated(pr) {
		return pr, errBehind
	}
	merged := fmt.Sprintf("merge-%d-%s", pr.Number, pr.HeadSHA)
	if s.o.Merge != nil {
		var err error
		if merged, err = s.o.Merge(pr.Head, pr.Base, pr.HeadSHA); err != nil {
			return pr, errNotMergable
		}
	}
	return s.change(pr.Number, func(p *PullRequest) { p.State, p.MergeSHA = Merged, merged }), nil
}

// outdated reports whether the rule that branches must be up to date blocks the merge.
func (s *Server) outdated(pr PullRequest) bool {
	return s.o.Behind != nil && pr.State == Open && s.o.Behind(pr.Head, pr.Base)
}

// bodies has the comments of a pull request as most services list them.
func bodies(pr PullRequest) []any {
	comments := []any{}
	for i, text := range pr.Comments {
		comments = append(comments, map[string]any{"id": i + 1, "body": text})
	}
	return comments
}

// page returns a page of a list, by page number and size.
func page[T any](all []T, number, size int) (cut []T, more bool) {
	from := min((number-1)*size, len(all))
	to := min(from+size, len(all))
	return all[from:to], to < len(all)
}

// integer returns an integer of a query, within bounds.
func integer(r *http.Request, name string, fallback, most int) int {
	n, err := strconv.Atoi(r.URL.Query().Get(name))
	if err != nil || n < 0 {
		n = fallback
	}
	return min(n, most)
}

// nextLink returns a Link header to the next page (RFC 8288), as GitHub and Gitea give it.
func (s *Server) nextLink(w http.ResponseWriter, r *http.Request, next int) {
	u := *r.URL
	q := u.Query()
	q.Set("page", strconv.Itoa(next))
	u.RawQuery = q.Encode()
	w.Header().Set("Link", fmt.Sprintf(`<%s%s>; rel="next"`, s.http.URL, u.RequestURI()))
}

func add(list []string, names ...string) []string {
	for _, n := range names {
		if !slices.Contains(list, n) {
			list = append(list, n)
		}
	}
	return list
}
