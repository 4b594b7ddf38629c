package providertest

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// gitea: https://docs.gitea.com/api/
func (s *Server) gitea(mux *http.ServeMux) {
	const repo = "/api/v1/repos/fleet/apps"
	one := func(method, path string, act func(w http.ResponseWriter, r *http.Request, pr PullRequest)) {
		mux.HandleFunc(method+" "+repo+path, s.numbered(act, "The target couldn't be found.", ""))
	}
	mux.HandleFunc("GET "+repo, func(w http.ResponseWriter, _ *http.Request) {
		s.write(w, http.StatusOK, map[string]any{"id": 1, "full_name": "fleet/apps", "default_merge_style": "merge", "allow_merge_commits": true})
	})
	mux.HandleFunc("POST "+repo+"/statuses/{sha}", func(w http.ResponseWriter, r *http.Request) {
		form := decode[struct{ State, Context, Description string }](s, r)
		if s.status(Status{SHA: r.PathValue("sha"), Name: form.Context, State: form.State, Description: form.Description}, false) != nil {
			s.refuse(w, http.StatusNotFound, "object does not exist", "")
			return
		}
		s.write(w, http.StatusCreated, map[string]any{"id": 1, "status": form.State, "context": form.Context})
	})
	mux.HandleFunc("GET "+repo+"/pulls", s.giteaList)
	mux.HandleFunc("POST "+repo+"/pulls", s.giteaCreate)
	one("GET", "/pulls/{number}", func(w http.ResponseWriter, _ *http.Request, pr PullRequest) {
		s.write(w, http.StatusOK, s.giteaPR(pr))
	})
	one("PATCH", "/pulls/{number}", func(w http.ResponseWriter, r *http.Request, pr PullRequest) {
		form := decode[struct {
			Title       string
			Body, State *string
		}](s, r)
		s.write(w, http.StatusCreated, s.giteaPR(s.change(pr.Number, func(p *PullRequest) {
			edit(p, nil, form.Body, form.State)
			if form.Title != "" {
				p.Title = form.Title
			}
		})))
	})
	one("POST", "/pulls/{number}/merge", s.giteaMerge)
	one("POST", "/issues/{number}/comments", func(w http.ResponseWriter, r *http.Request, pr PullRequest) {
		form := decode[struct{ Body string }](s, r)
		s.change(pr.Number, func(p *PullRequest) { p.Comments = append(p.Comments, form.Body) })
		s.write(w, http.StatusCreated, map[string]any{"id": 1, "body": form.Body})
	})
	one("GET", "/issues/{number}/comments", func(w http.ResponseWriter, _ *http.Request, pr PullRequest) {
		s.write(w, http.StatusOK, bodies(pr))
	})
	one("GET", "/issues/{number}/timeline", func(w http.ResponseWriter, _ *http.Request, pr PullRequest) {
		answer := []any{}
		for i, e := range pr.Events {
			answer = append(answer, map[string]any{"id": i + 1, "type": e.Type, "created_at": e.At.Format(time.RFC3339), "user": map[string]any{"login": e.User}})
		}
		s.write(w, http.StatusOK, answer)
	})
	mux.HandleFunc("GET "+repo+"/labels", func(w http.ResponseWriter, _ *http.Request) {
		answer := []any{}
		for i, name := range s.labels {
			answer = append(answer, map[string]any{"id": i + 1, "name": name})
		}
		s.write(w, http.StatusOK, answer)
	})
	one("POST", "/issues/{number}/labels", func(w http.ResponseWriter, r *http.Request, pr PullRequest) {
		form := decode[struct{ Labels []int }](s, r)
		s.change(pr.Number, func(p *PullRequest) {
			for _, id := range form.Labels {
				p.Labels = add(p.Labels, s.labels[id-1])
			}
		})
		s.write(w, http.StatusOK, []any{})
	})
	one("POST", "/pulls/{number}/requested_reviewers", func(w http.ResponseWriter, r *http.Request, pr PullRequest) {
		form := decode[struct{ Reviewers []string }](s, r)
		s.change(pr.Number, func(p *PullRequest) { p.Reviewers = add(p.Reviewers, form.Reviewers...) })
		s.write(w, http.StatusCreated, []any{})
	})
}

func (s *Server) giteaPR(pr PullRequest) map[string]any {
	headRepo, ref := 1, pr.Head
	if pr.Fork {
		headRepo = 2
	}
	if pr.headBranchIsMissed {
		ref = fmt.Sprintf("refs/pull/%d/head", pr.Number)
	}
	answer := map[string]any{
		"id": 1000 + pr.Number, "number": pr.Number, "html_url": fmt.Sprintf("%s/fleet/apps/pulls/%d", s.http.URL, pr.Number),
		"user": map[string]any{"login": Robot}, "state": "open", "title": pr.Title, "body": pr.Body, "merged": pr.State == Merged, "merge_commit_sha": nil,
		"head": map[string]any{"label": pr.Head, "ref": ref, "sha": pr.HeadSHA, "repo_id": headRepo},
		"base": map[string]any{"label": pr.Base, "ref": pr.Base, "sha": "base", "repo_id": 1},
	}
	if pr.State != Open {
		answer["state"] = "closed"
	}
	if pr.State == Merged {
		answer["merge_commit_sha"] = pr.MergeSHA
	}
	return answer
}

func (s *Server) giteaList(w http.ResponseWriter, r *http.Request) {
	state := r.URL.Query().Get("state")
	all := s.newest(func(pr PullRequest) bool {
		return state == "all" || (state == "closed") == (pr.State != Open)
	})
	number := max(integer(r, "page", 1, 1<<20), 1)
	cut, more := page(all, number, integer(r, "limit", 30, 50))
	if more {
		s.nextLink(w, r, number+1)
	}
	w.Header().Set("X-Total-Count", strconv.Itoa(len(all)))
	answer := []any{}
	for _, pr := range cut {
		answer = append(answer, s.giteaPR(s.current(pr)))
	}
	s.write(w, http.StatusOK, answer)
}

func (s *Server) giteaCreate(w http.ResponseWriter, r *http.Request) {
	form := decode[struct{ Title, Body, Head, Base string }](s, r)
	pr, err := s.open(form.Head, form.Base, form.Title, form.Body)
	switch {
	case errors.Is(err, errExists):
		s.refuse(w, http.StatusConflict, fmt.Sprintf("pull request already exists for these targets [id: %d, issue_id: %d, head_repo_id: 1, base_repo_id: 1, head_branch: %s, base_branch: %s]", pr.Number, pr.Number, pr.Head, pr.Base), "")
	case err != nil:
		s.refuse(w, http.StatusNotFound, "The target couldn't be found.", "")
	default:
		s.write(w, http.StatusCreated, s.giteaPR(pr))
	}
}

func (s *Server) giteaMerge(w http.ResponseWriter, r *http.Request, pr PullRequest) {
	form := decode[struct {
		Do   string
		Head string `json:"head_commit_id"`
	}](s, r)
	_, err := s.merge(pr, form.Head)
	switch {
	case !slices.Contains([]string{"merge", "rebase", "rebase-merge", "squash", "fast-forward-only", "manually-merged"}, form.Do):
		s.refuse(w, http.StatusUnprocessableEntity, "[Do]: Required", "")
	case errors.Is(err, errHeadMoved):
		s.refuse(w, http.StatusConflict, "head out of date", "")
	case errors.Is(err, errBehind):
		s.refuse(w, http.StatusMethodNotAllowed, "Pull request is not ready to be merged: The head branch is behind the base branch", "")
	case err != nil:
		s.refuse(w, http.StatusMethodNotAllowed, "Please try again later", "")
	default:
		w.WriteHeader(http.StatusOK)
	}
}
