package providertest

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// github: https://docs.github.com/en/enterprise-server/rest/pulls/pulls
func (s *Server) github(mux *http.ServeMux) {
	const repo = "/api/v3/repos/fleet/apps"
	mux.HandleFunc("GET "+repo, func(w http.ResponseWriter, _ *http.Request) {
		s.write(w, http.StatusOK, map[string]any{"id": 1, "full_name": "fleet/apps", "allow_merge_commit": true})
	})
	mux.HandleFunc("POST "+repo+"/statuses/{sha}", func(w http.ResponseWriter, r *http.Request) {
		form := decode[struct{ State, Context, Description string }](s, r)
		const most = 140
		if len([]rune(form.Description)) > most {
			s.refuse(w, http.StatusUnprocessableEntity, "Validation Failed", "")
			return
		}
		if s.status(Status{SHA: r.PathValue("sha"), Name: form.Context, State: form.State, Description: form.Description}, false) != nil {
			s.refuse(w, http.StatusUnprocessableEntity, "No commit found for SHA: "+r.PathValue("sha"), "")
			return
		}
		s.write(w, http.StatusCreated, map[string]any{"id": 1, "state": form.State, "context": form.Context})
	})
	mux.HandleFunc("GET "+repo+"/pulls", s.githubList)
	mux.HandleFunc("POST "+repo+"/pulls", s.githubCreate)
	one := func(method, path string, status int, act func(pr PullRequest, r *http.Request) PullRequest) {
		mux.HandleFunc(method+" "+repo+path, func(w http.ResponseWriter, r *http.Request) {
			pr := s.number(r)
			if pr == nil {
				s.refuse(w, http.StatusNotFound, "Not Found", "")
				return
			}
			s.write(w, status, s.githubPR(act(s.current(*pr), r), true))
		})
	}
	one("GET", "/pulls/{number}", http.StatusOK, func(pr PullRequest, _ *http.Request) PullRequest { return pr })
	one("PATCH", "/pulls/{number}", http.StatusOK, func(pr PullRequest, r *http.Request) PullRequest {
		form := decode[struct{ Title, Body, State *string }](s, r)
		return s.change(pr.Number, func(p *PullRequest) { edit(p, form.Title, form.Body, form.State) })
	})
	one("POST", "/pulls/{number}/requested_reviewers", http.StatusCreated, func(pr PullRequest, r *http.Request) PullRequest {
		form := decode[struct {
			Reviewers []string `json:"reviewers"`
			Teams     []string `json:"team_reviewers"`
		}](s, r)
		return s.change(pr.Number, func(p *PullRequest) { p.Reviewers = add(p.Reviewers, append(form.Reviewers, form.Teams...)...) })
	})
	mux.HandleFunc("PUT "+repo+"/pulls/{number}/merge", s.githubMerge)
	mux.HandleFunc("POST "+repo+"/issues/{number}/comments", func(w http.ResponseWriter, r *http.Request) {
		form := decode[struct{ Body string }](s, r)
		if pr := s.number(r); pr != nil {
			s.change(pr.Number, func(p *PullRequest) { p.Comments = append(p.Comments, form.Body) })
			s.write(w, http.StatusCreated, map[string]any{"id": 1, "body": form.Body})
			return
		}
		s.refuse(w, http.StatusNotFound, "Not Found", "")
	})
	mux.HandleFunc("GET "+repo+"/issues/{number}/comments", s.numbered(func(w http.ResponseWriter, _ *http.Request, pr PullRequest) {
		s.write(w, http.StatusOK, bodies(pr))
	}, "Not Found", ""))
	mux.HandleFunc("POST "+repo+"/issues/{number}/labels", func(w http.ResponseWriter, r *http.Request) {
		names := decode[[]string](s, r)
		if pr := s.number(r); pr != nil {
			s.change(pr.Number, func(p *PullRequest) { p.Labels = add(p.Labels, names...) })
			s.write(w, http.StatusOK, []any{})
			return
		}
		s.refuse(w, http.StatusNotFound, "Not Found", "")
	})
	mux.HandleFunc("POST /api/v3/app/installations/{id}/access_tokens", s.githubApp)
}

func edit(p *PullRequest, title, body, state *string) {
	if title != nil {
		p.Title = *title
	}
	if body != nil {
		p.Body = *body
	}
	if state != nil && *state == "closed" {
		p.State = Closed
		p.Events = append(p.Events, Event{Type: "close", User: Robot, At: time.Now()})
	}
	if state != nil && *state == "open" {
		p.State = Open
		p.Events = append(p.Events, Event{Type: "reopen", User: Robot, At: time.Now()})
	}
}

func (s *Server) githubPR(pr PullRequest, single bool) map[string]any {
	ref := func(branch, sha string, id int) map[string]any {
		return map[string]any{"label": "fleet:" + branch, "ref": branch, "sha": sha, "repo": map[string]any{"id": id, "full_name": "fleet/apps"}}
	}
	headRepo := 1
	if pr.Fork {
		headRepo = 2
	}
	answer := map[string]any{
		"id": 1000 + pr.Number, "number": pr.Number, "html_url": fmt.Sprintf("%s/fleet/apps/pull/%d", s.http.URL, pr.Number),
		"state": "open", "title": pr.Title, "body": pr.Body, "merged_at": nil,
		// Before the merge, GitHub shows the commit of a test merge here.
		"merge_commit_sha": "trial", "mergeable_state": "clean",
		"head": ref(pr.Head, pr.HeadSHA, headRepo), "base": ref(pr.Base, "base", 1),
	}
	if pr.State != Open {
		answer["state"] = "closed"
	}
	if s.outdated(pr) {
		answer["mergeable_state"] = "behind"
	}
	if pr.State == Merged {
		answer["merged_at"], answer["merge_commit_sha"] = time.Unix(1_800_000_000, 0).UTC(), pr.MergeSHA
	}
	if single {
		answer["merged"] = pr.State == Merged
	}
	return answer
}

func (s *Server) githubList(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	owner, branch, filtered := strings.Cut(q.Get("head"), ":")
	all := s.newest(func(pr PullRequest) bool {
		state := q.Get("state")
		return (!filtered || owner == "fleet" && pr.Head == branch) && (q.Get("base") == "" || pr.Base == q.Get("base")) &&
			(state == "all" || (state == "closed") == (pr.State != Open))
	})
	number := max(integer(r, "page", 1, 1<<20), 1)
	cut, more := page(all, number, integer(r, "per_page", 30, 100))
	if more {
		s.nextLink(w, r, number+1)
	}
	answer := []any{}
	for _, pr := range cut {
		answer = append(answer, s.githubPR(s.current(pr), false))
	}
	s.write(w, http.StatusOK, answer)
}

func (s *Server) githubCreate(w http.ResponseWriter, r *http.Request) {
	form := decode[struct{ Title, Body, Head, Base string }](s, r)
	pr, err := s.open(form.Head, form.Base, form.Title, form.Body)
	switch {
	case errors.Is(err, errExists):
		s.refuse(w, http.StatusUnprocessableEntity, "A pull request already exists for fleet:"+form.Head+".", "")
	case err != nil:
		s.write(w, http.StatusUnprocessableEntity, map[string]any{
			"message": "Validation Failed",
			"errors":  []any{map[string]any{"resource": "PullRequest", "field": "head", "code": "invalid"}},
		})
	default:
		s.write(w, http.StatusCreated, s.githubPR(pr, true))
	}
}

func (s *Server) githubMerge(w http.ResponseWriter, r *http.Request) {
	form := decode[struct {
		SHA    string `json:"sha"`
		Method string `json:"merge_method"`
	}](s, r)
	pr := s.number(r)
	if pr == nil {
		s.refuse(w, http.StatusNotFound, "Not Found", "")
		return
	}
	merged, err := s.merge(*pr, form.SHA)
	switch {
	case errors.Is(err, errHeadMoved):
		s.refuse(w, http.StatusConflict, "Head branch was modified. Review and try the merge again.", "")
	case err != nil:
		s.refuse(w, http.StatusMethodNotAllowed, "Pull Request is not mergeable", "")
	default:
		s.write(w, http.StatusOK, map[string]any{"sha": merged.MergeSHA, "merged": true, "message": "Pull Request successfully merged"})
	}
}

// githubApp: https://docs.github.com/en/enterprise-server/rest/apps/apps#create-an-installation-access-token-for-an-app
func (s *Server) githubApp(w http.ResponseWriter, r *http.Request) {
	if s.o.AppKey == nil {
		s.refuse(w, http.StatusNotFound, "Integration not found", "")
		return
	}
	if _, err := s.o.AppKey(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")); err != nil {
		s.refuse(w, http.StatusUnauthorized, "A JSON web token could not be decoded", "")
		return
	}
	s.mu.Lock()
	token := fmt.Sprintf("ghs_providertest%d", len(s.appTokens)+1)
	s.appTokens[token] = true
	s.mu.Unlock()
	s.write(w, http.StatusCreated, map[string]any{"token": token, "expires_at": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)})
}

// ForgetAppTokens makes the installation's tokens invalid.
func (s *Server) ForgetAppTokens() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for token := range s.appTokens {
		s.appTokens[token] = false
	}
}
