package providertest

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// gitlabUsers by id.
var gitlabUsers = []string{"viewer", "ann", "ben"}

// gitlab: https://docs.gitlab.com/api/merge_requests/
func (s *Server) gitlab(mux *http.ServeMux) {
	// Project paths are one segment, with escaped slashes.
	const under = "/api/v4/projects/{project}/merge_requests"
	handle := func(method, path string, act func(w http.ResponseWriter, r *http.Request)) {
		mux.HandleFunc(method+" "+under+path, func(w http.ResponseWriter, r *http.Request) {
			if r.PathValue("project") != "fleet/platform/apps" {
				s.refuse(w, http.StatusNotFound, "404 Project Not Found", "")
				return
			}
			act(w, r)
		})
	}
	mux.HandleFunc("POST /api/v4/projects/{project}/statuses/{sha}", func(w http.ResponseWriter, r *http.Request) {
		form := decode[struct{ State, Name, Description string }](s, r)
		switch err := s.status(Status{SHA: r.PathValue("sha"), Name: form.Name, State: form.State, Description: form.Description}, true); {
		case errors.Is(err, errPending):
			s.refuse(w, http.StatusBadRequest, `Cannot transition status via :enqueue from :pending (Reason(s): Status cannot transition via "enqueue")`, "")
		case err != nil:
			s.refuse(w, http.StatusNotFound, "404 Commit Not Found", "")
		default:
			s.write(w, http.StatusCreated, map[string]any{"id": 1, "status": form.State, "name": form.Name})
		}
	})
	one := func(method, path string, act func(w http.ResponseWriter, r *http.Request, pr PullRequest)) {
		handle(method, path, s.numbered(act, "404 Not found", ""))
	}
	handle("GET", "", s.gitlabList)
	handle("POST", "", s.gitlabCreate)
	one("GET", "/{number}", func(w http.ResponseWriter, _ *http.Request, pr PullRequest) {
		s.write(w, http.StatusOK, s.gitlabMR(pr))
	})
	one("PUT", "/{number}", func(w http.ResponseWriter, r *http.Request, pr PullRequest) {
		form := decode[struct {
			Title, Description *string
			StateEvent         string  `json:"state_event"`
			AddLabels          string  `json:"add_labels"`
			ReviewerIDs        []int64 `json:"reviewer_ids"`
		}](s, r)
		s.write(w, http.StatusOK, s.gitlabMR(s.change(pr.Number, func(p *PullRequest) {
			edit(p, form.Title, form.Description, nil)
			if form.StateEvent == "close" {
				p.State = Closed
			}
			if form.AddLabels != "" {
				p.Labels = add(p.Labels, strings.Split(form.AddLabels, ",")...)
			}
			if form.ReviewerIDs != nil {
				p.Reviewers = nil
				for _, id := range form.ReviewerIDs {
					p.Reviewers = add(p.Reviewers, gitlabUsers[id])
				}
			}
		})))
	})
	one("PUT", "/{number}/merge", s.gitlabMerge)
	one("POST", "/{number}/notes", func(w http.ResponseWriter, r *http.Request, pr PullRequest) {
		form := decode[struct{ Body string }](s, r)
		s.change(pr.Number, func(p *PullRequest) { p.Comments = append(p.Comments, form.Body) })
		s.write(w, http.StatusCreated, map[string]any{"id": 1, "body": form.Body})
	})
	one("GET", "/{number}/notes", func(w http.ResponseWriter, _ *http.Request, pr PullRequest) {
		s.write(w, http.StatusOK, bodies(pr))
	})
	mux.HandleFunc("GET /api/v4/users", func(w http.ResponseWriter, r *http.Request) {
		answer := []any{}
		if id := slices.Index(gitlabUsers, r.URL.Query().Get("username")); id > 0 {
			answer = append(answer, map[string]any{"id": id, "username": gitlabUsers[id]})
		}
		s.write(w, http.StatusOK, answer)
	})
}

func (s *Server) gitlabMR(pr PullRequest) map[string]any {
	state := map[State]string{Open: "opened", Merged: "merged", Closed: "closed"}[pr.State]
	source := 7
	if pr.Fork {
		source = 8
	}
	var reviewers []any
	for _, name := range pr.Reviewers {
		reviewers = append(reviewers, map[string]any{"id": slices.Index(gitlabUsers, name), "username": name})
	}
	answer := map[string]any{
		"id": 1000 + pr.Number, "iid": pr.Number, "project_id": 7, "source_project_id": source, "target_project_id": 7,
		"web_url": fmt.Sprintf("%s/fleet/platform/apps/-/merge_requests/%d", s.http.URL, pr.Number),
		"state":   state, "title": pr.Title, "description": pr.Body, "sha": pr.HeadSHA, "merge_commit_sha": nil, "squash_commit_sha": nil,
		"source_branch": pr.Head, "target_branch": pr.Base, "reviewers": reviewers, "labels": pr.Labels,
		"detailed_merge_status": "mergeable",
	}
	if s.outdated(pr) {
		answer["detailed_merge_status"] = "need_rebase"
	}
	if pr.State == Merged {
		answer["merge_commit_sha"] = pr.MergeSHA
	}
	return answer
}

func (s *Server) gitlabList(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	all := s.newest(func(pr PullRequest) bool {
		state := map[State]string{Open: "opened", Merged: "merged", Closed: "closed"}[pr.State]
		return (q.Get("source_branch") == "" || q.Get("source_branch") == pr.Head) && (q.Get("target_branch") == "" || q.Get("target_branch") == pr.Base) &&
			(q.Get("state") == "" || q.Get("state") == "all" || q.Get("state") == state)
	})
	number := max(integer(r, "page", 1, 1<<20), 1)
	cut, more := page(all, number, integer(r, "per_page", 20, 100))
	w.Header().Set("X-Page", strconv.Itoa(number))
	if more {
		w.Header().Set("X-Next-Page", strconv.Itoa(number+1))
	}
	answer := []any{}
	for _, pr := range cut {
		answer = append(answer, s.gitlabMR(s.current(pr)))
	}
	s.write(w, http.StatusOK, answer)
}

func (s *Server) gitlabCreate(w http.ResponseWriter, r *http.Request) {
	form := decode[struct {
		Title, Description string
		Source             string `json:"source_branch"`
		Target             string `json:"target_branch"`
	}](s, r)
	pr, err := s.open(form.Source, form.Target, form.Title, form.Description)
	switch {
	case errors.Is(err, errExists):
		s.refuse(w, http.StatusConflict, fmt.Sprintf("Another open merge request already exists for this source branch: !%d", pr.Number), "list")
	case err != nil:
		s.write(w, http.StatusBadRequest, map[string]any{"message": map[string]any{"source_branch": []any{"does not exist"}}})
	default:
		s.write(w, http.StatusCreated, s.gitlabMR(pr))
	}
}

func (s *Server) gitlabMerge(w http.ResponseWriter, r *http.Request, pr PullRequest) {
	form := decode[struct{ SHA string }](s, r)
	merged, err := s.merge(pr, form.SHA)
	switch {
	case errors.Is(err, errHeadMoved):
		s.refuse(w, http.StatusConflict, "SHA does not match HEAD of source branch: "+pr.HeadSHA, "")
	case err != nil:
		s.refuse(w, http.StatusMethodNotAllowed, "405 Method Not Allowed", "")
	default:
		s.write(w, http.StatusOK, s.gitlabMR(merged))
	}
}
