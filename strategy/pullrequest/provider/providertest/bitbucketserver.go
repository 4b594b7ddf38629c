package providertest

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

type bitbucketForm struct {
	Version            *int
	Title, Description string
	FromRef, ToRef     struct {
		ID         string
		Repository struct {
			Slug    string
			Project struct{ Key string }
		}
	}
	Reviewers []struct{ User struct{ Name string } }
}

// bitbucketServer: https://developer.atlassian.com/server/bitbucket/rest/v811/api-group-pull-requests/
func (s *Server) bitbucketServer(mux *http.ServeMux) {
	const under = "/rest/api/1.0/projects/FLEET/repos/apps/pull-requests"
	one := func(method, path string, act func(w http.ResponseWriter, r *http.Request, pr PullRequest)) {
		mux.HandleFunc(method+" "+under+path, s.numbered(act, "Pull request does not exist in FLEET/apps.", "NoSuchPullRequestException"))
	}
	mux.HandleFunc("POST /rest/api/1.0/projects/FLEET/repos/apps/commits/{sha}/builds", func(w http.ResponseWriter, r *http.Request) {
		form := decode[struct{ Key, State, Description, URL string }](s, r)
		state := map[string]string{"INPROGRESS": "pending", "SUCCESSFUL": "success", "FAILED": "failure"}[form.State]
		if form.URL == "" {
			s.refuse(w, http.StatusBadRequest, "url: may not be empty", "")
			return
		}
		if s.status(Status{SHA: r.PathValue("sha"), Name: form.Key, State: state, Description: form.Description}, false) != nil {
			s.refuse(w, http.StatusNotFound, "Commit '"+r.PathValue("sha")+"' does not exist in repository 'apps'.", "NoSuchCommitException")
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET "+under, s.bitbucketList)
	mux.HandleFunc("POST "+under, s.bitbucketCreate)
	one("GET", "/{number}", func(w http.ResponseWriter, _ *http.Request, pr PullRequest) {
		s.write(w, http.StatusOK, s.bitbucketPR(pr))
	})
	one("PUT", "/{number}", func(w http.ResponseWriter, r *http.Request, pr PullRequest) {
		form := decode[bitbucketForm](s, r)
		if form.Version == nil || *form.Version != pr.version {
			s.outOfDate(w)
			return
		}
		s.write(w, http.StatusOK, s.bitbucketPR(s.change(pr.Number, func(p *PullRequest) {
			// Fields that are left out are emptied, also the reviewers.
			p.Title, p.Body, p.Reviewers = form.Title, form.Description, nil
			for _, reviewer := range form.Reviewers {
				p.Reviewers = add(p.Reviewers, reviewer.User.Name)
			}
		})))
	})
	act := func(path string, do func(pr PullRequest) (PullRequest, error)) {
		one("POST", path, func(w http.ResponseWriter, r *http.Request, pr PullRequest) {
			if r.Header.Get("X-Atlassian-Token") != "no-check" {
				s.refuse(w, http.StatusForbidden, "XSRF check failed", "")
				return
			}
			if integer(r, "version", -1, 1<<20) != pr.version {
				s.outOfDate(w)
				return
			}
			after, err := do(pr)
			if err != nil {
				s.refuse(w, http.StatusConflict, "This pull request has conflicts or was vetoed.", "PullRequestMergeVetoedException")
				return
			}
			s.write(w, http.StatusOK, s.bitbucketPR(after))
		})
	}
	act("/{number}/merge", func(pr PullRequest) (PullRequest, error) { return s.merge(pr, "") })
	act("/{number}/decline", func(pr PullRequest) (PullRequest, error) {
		if pr.State != Open {
			return pr, errNotOpen
		}
		return s.change(pr.Number, func(p *PullRequest) { p.State = Closed }), nil
	})
	one("GET", "/{number}/activities", s.bitbucketActivities)
	one("POST", "/{number}/comments", func(w http.ResponseWriter, r *http.Request, pr PullRequest) {
		form := decode[struct{ Text string }](s, r)
		s.comment(pr.Number, form.Text)
		s.write(w, http.StatusCreated, map[string]any{"id": 1, "text": form.Text})
	})
}

// bitbucketActivities: the newest first, of which comments are one kind.
func (s *Server) bitbucketActivities(w http.ResponseWriter, _ *http.Request, pr PullRequest) {
	values := []any{}
	for i, text := range slices.Backward(pr.Comments) {
		values = append(values, map[string]any{"id": i + 2, "action": "COMMENTED", "comment": map[string]any{"id": i + 1, "text": text}})
	}
	values = append(values, map[string]any{"id": 1, "action": "OPENED"})
	s.write(w, http.StatusOK, map[string]any{"values": values, "size": len(values), "isLastPage": true, "start": 0})
}

// comment does not increment the version, as on the service.
func (s *Server) comment(number int64, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prs[number-1].Comments = append(s.prs[number-1].Comments, text)
}

func (s *Server) outOfDate(w http.ResponseWriter) {
	s.refuse(w, http.StatusConflict, "You are attempting to modify a pull request based on out-of-date information.", "PullRequestOutOfDateException")
}

func (s *Server) bitbucketPR(pr PullRequest) map[string]any {
	ref := func(branch, sha, slug string) map[string]any {
		return map[string]any{"id": heads + branch, "displayId": branch, "latestCommit": sha, "repository": map[string]any{"slug": slug, "project": map[string]any{"key": "FLEET"}}}
	}
	slug := "apps"
	if pr.Fork {
		slug = "fork"
	}
	reviewers := []any{}
	for _, name := range pr.Reviewers {
		reviewers = append(reviewers, map[string]any{"user": map[string]any{"name": name}, "role": "REVIEWER", "approved": false})
	}
	answer := map[string]any{
		"id": pr.Number, "version": pr.version, "title": pr.Title, "description": pr.Body,
		"state":   map[State]string{Open: "OPEN", Merged: "MERGED", Closed: "DECLINED"}[pr.State],
		"fromRef": ref(pr.Head, pr.HeadSHA, slug), "toRef": ref(pr.Base, "base", "apps"), "reviewers": reviewers,
		"links": map[string]any{"self": []any{map[string]any{"href": fmt.Sprintf("%s/projects/FLEET/repos/apps/pull-requests/%d", s.http.URL, pr.Number)}}},
	}
	if pr.State == Merged {
		answer["properties"] = map[string]any{"mergeCommit": map[string]any{"id": pr.MergeSHA}}
	}
	return answer
}

func (s *Server) bitbucketList(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	all := s.newest(func(pr PullRequest) bool {
		state := map[State]string{Open: "OPEN", Merged: "MERGED", Closed: "DECLINED"}[pr.State]
		branch := pr.Base
		if q.Get("direction") == "OUTGOING" {
			branch = pr.Head
		}
		return (q.Get("at") == "" || q.Get("at") == heads+branch) && (q.Get("state") == "ALL" || q.Get("state") == state || q.Get("state") == "" && pr.State == Open)
	})
	start := min(integer(r, "start", 0, 1<<20), len(all))
	// Operators may lower the largest page; this server has a lower one.
	cut, more := page(all[start:], 1, integer(r, "limit", 25, 75))
	answer := []any{}
	for _, pr := range cut {
		answer = append(answer, s.bitbucketPR(s.current(pr)))
	}
	body := map[string]any{"values": answer, "size": len(answer), "isLastPage": !more, "start": start, "nextPageStart": nil}
	if more {
		body["nextPageStart"] = start + len(cut)
	}
	s.write(w, http.StatusOK, body)
}

func (s *Server) bitbucketCreate(w http.ResponseWriter, r *http.Request) {
	form := decode[bitbucketForm](s, r)
	if form.FromRef.Repository.Slug != "apps" || form.ToRef.Repository.Project.Key != "FLEET" {
		s.refuse(w, http.StatusNotFound, "Repository does not exist.", "NoSuchRepositoryException")
		return
	}
	pr, err := s.open(strings.TrimPrefix(form.FromRef.ID, heads), strings.TrimPrefix(form.ToRef.ID, heads), form.Title, form.Description)
	switch {
	case errors.Is(err, errExists):
		s.refuse(w, http.StatusConflict, "Only one pull request may be open for a given source and target branch", "DuplicatePullRequestException")
	case err != nil:
		s.refuse(w, http.StatusNotFound, "Branch does not exist in FLEET/apps.", "NoSuchBranchException")
	default:
		s.write(w, http.StatusCreated, s.bitbucketPR(pr))
	}
}
