package providertest

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

const heads = "refs/heads/"

// azureResources has the rows of the table that OPTIONS on _apis returns: id, last part of
// the route.
var azureResources = map[string]string{
	"9946fd70-0d40-406e-b686-b4744cbbcc37": "{resource}/{pullRequestId}|pullRequests",
	"ab6e2e5d-a0b7-4153-b64a-a4efe0d49449": "pullRequests/{pullRequestId}/{resource}/{threadId}|threads",
	"f22387e3-984e-4c52-9c6d-fbb8f14c812d": "pullRequests/{pullRequestId}/{resource}/{labelIdOrName}|labels",
	"4b6702c7-aa35-4b89-9c96-b9abf6d3e540": "pullRequests/{pullRequestId}/{resource}/{reviewerId}|reviewers",
	"b5f6bb4f-8d1e-4d79-8d11-4c9172c99c35": "pullRequests/{pullRequestId}/{resource}/{statusId}|statuses",
}

// azureListedBody is the length to which lists cut descriptions.
const azureListedBody = 400

type azurePR struct {
	Title, Description    *string
	Status                string
	SourceRefName         string
	TargetRefName         string
	LastMergeSourceCommit struct{ CommitID string }
}

// azureDevOps: https://learn.microsoft.com/rest/api/azure/devops/git/pull-requests
func (s *Server) azureDevOps(mux *http.ServeMux) {
	mux.HandleFunc("OPTIONS /fleet/_apis", func(w http.ResponseWriter, _ *http.Request) {
		var table []any
		for id, route := range azureResources {
			path, name, _ := strings.Cut(route, "|")
			table = append(table, map[string]any{
				"id": id, "area": "git", "resourceName": name, "routeTemplate": "{project}/_apis/{area}/repositories/{repositoryId}/" + path,
				"resourceVersion": 1, "minVersion": "3.0", "maxVersion": "7.2", "releasedVersion": "7.1",
			})
		}
		s.write(w, http.StatusOK, map[string]any{"count": len(table), "value": table})
	})
	const under = "/fleet/platform/_apis/git/repositories/apps/pullRequests"
	handle := func(method, path string, act http.HandlerFunc) {
		mux.HandleFunc(method+" "+under+path, func(w http.ResponseWriter, r *http.Request) {
			if !strings.Contains(r.Header.Get("Accept"), "api-version=") {
				s.refuse(w, http.StatusBadRequest, "No api-version was supplied", "VssVersionNotSpecifiedException")
				return
			}
			act(w, r)
		})
	}
	one := func(method, path string, act func(w http.ResponseWriter, r *http.Request, pr PullRequest)) {
		handle(method, path, s.numbered(act, "TF401180: The requested pull request was not found.", "GitPullRequestNotFoundException"))
	}
	handle("GET", "", s.azureList)
	handle("POST", "", s.azureCreate)
	one("GET", "/{number}", func(w http.ResponseWriter, _ *http.Request, pr PullRequest) {
		s.write(w, http.StatusOK, s.azurePR(pr, false))
	})
	one("PATCH", "/{number}", s.azureUpdate)
	one("POST", "/{number}/threads", func(w http.ResponseWriter, r *http.Request, pr PullRequest) {
		form := decode[struct{ Comments []struct{ Content string } }](s, r)
		s.change(pr.Number, func(p *PullRequest) { p.Comments = append(p.Comments, form.Comments[0].Content) })
		s.write(w, http.StatusOK, map[string]any{"id": 1})
	})
	one("GET", "/{number}/threads", func(w http.ResponseWriter, _ *http.Request, pr PullRequest) {
		threads := []any{}
		for _, text := range pr.Comments {
			threads = append(threads, map[string]any{"id": len(threads) + 1, "comments": []any{map[string]any{"id": 1, "content": text}}})
		}
		s.write(w, http.StatusOK, map[string]any{"value": threads, "count": len(threads)})
	})
	one("POST", "/{number}/labels", func(w http.ResponseWriter, r *http.Request, pr PullRequest) {
		form := decode[struct{ Name string }](s, r)
		s.change(pr.Number, func(p *PullRequest) { p.Labels = add(p.Labels, form.Name) })
		s.write(w, http.StatusOK, map[string]any{"name": form.Name, "active": true})
	})
	one("POST", "/{number}/statuses", func(w http.ResponseWriter, r *http.Request, pr PullRequest) {
		form := decode[struct {
			State, Description string
			Context            struct{ Genre, Name string }
		}](s, r)
		state := map[string]string{"pending": "pending", "succeeded": "success"}[form.State]
		_ = s.status(Status{Number: pr.Number, Name: form.Context.Genre + "/" + form.Context.Name, State: state, Description: form.Description}, false)
		s.write(w, http.StatusOK, map[string]any{"id": 1, "state": form.State})
	})
	one("PUT", "/{number}/reviewers/{reviewer}", func(w http.ResponseWriter, r *http.Request, pr PullRequest) {
		s.change(pr.Number, func(p *PullRequest) { p.Reviewers = add(p.Reviewers, r.PathValue("reviewer")) })
		s.write(w, http.StatusOK, map[string]any{"id": r.PathValue("reviewer"), "vote": 0})
	})
}

func (s *Server) azurePR(pr PullRequest, listed bool) map[string]any {
	status := map[State]string{Open: "active", Merged: "completed", Closed: "abandoned"}[pr.State]
	body := []rune(pr.Body)
	if listed && len(body) > azureListedBody {
		body = body[:azureListedBody]
	}
	answer := map[string]any{
		"pullRequestId": pr.Number, "status": status, "title": pr.Title, "description": string(body),
		"sourceRefName": heads + pr.Head, "targetRefName": heads + pr.Base,
		"lastMergeSourceCommit": map[string]any{"commitId": pr.HeadSHA},
		"lastMergeCommit":       map[string]any{"commitId": "trial"},
		"creationDate":          "2026-01-02T03:04:05.1234567Z",
	}
	if pr.State == Merged {
		answer["lastMergeCommit"] = map[string]any{"commitId": pr.MergeSHA}
	}
	if pr.Fork {
		answer["forkSource"] = map[string]any{"name": heads + pr.Head}
	}
	return answer
}

func (s *Server) azureList(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	status := q.Get("searchCriteria.status")
	all := s.newest(func(pr PullRequest) bool {
		is := map[State]string{Open: "active", Merged: "completed", Closed: "abandoned"}[pr.State]
		return (q.Get("searchCriteria.sourceRefName") == "" || q.Get("searchCriteria.sourceRefName") == heads+pr.Head) &&
			(q.Get("searchCriteria.targetRefName") == "" || q.Get("searchCriteria.targetRefName") == heads+pr.Base) &&
			(status == "all" || status == is || status == "" && pr.State == Open)
	})
	skip := min(integer(r, "$skip", 0, 1<<20), len(all))
	cut, _ := page(all[skip:], 1, integer(r, "$top", 101, 1000))
	answer := []any{}
	for _, pr := range cut {
		answer = append(answer, s.azurePR(s.current(pr), true))
	}
	s.write(w, http.StatusOK, map[string]any{"value": answer, "count": len(answer)})
}

func (s *Server) azureCreate(w http.ResponseWriter, r *http.Request) {
	form := decode[azurePR](s, r)
	if form.Title == nil || form.Description == nil || !strings.HasPrefix(form.SourceRefName, heads) || !strings.HasPrefix(form.TargetRefName, heads) {
		s.refuse(w, http.StatusBadRequest, "TF400898: Invalid argument value.", "ArgumentException")
		return
	}
	pr, err := s.open(strings.TrimPrefix(form.SourceRefName, heads), strings.TrimPrefix(form.TargetRefName, heads), *form.Title, *form.Description)
	switch {
	case errors.Is(err, errExists):
		s.refuse(w, http.StatusConflict, "TF401179: An active pull request for the source and target branch already exists.", "GitPullRequestExistsException")
	case err != nil:
		s.refuse(w, http.StatusBadRequest, fmt.Sprintf("TF401398: The pull request cannot be activated because the source branch %s does not exist.", form.SourceRefName), "GitPullRequestCannotBeActivatedException")
	default:
		s.write(w, http.StatusCreated, s.azurePR(pr, false))
	}
}

func (s *Server) azureUpdate(w http.ResponseWriter, r *http.Request, pr PullRequest) {
	form := decode[azurePR](s, r)
	switch form.Status {
	case "completed":
		if form.LastMergeSourceCommit.CommitID == "" {
			s.refuse(w, http.StatusBadRequest, "Invalid argument value. Parameter name: lastMergeSourceCommit", "InvalidArgumentValueException")
			return
		}
		merged, err := s.merge(pr, form.LastMergeSourceCommit.CommitID)
		switch {
		case errors.Is(err, errHeadMoved):
			s.refuse(w, http.StatusConflict, "TF401192: The source branch has been modified since the last merge attempt.", "GitPullRequestStaleException")
		case err != nil:
			s.refuse(w, http.StatusForbidden, "TF402455: Pushes to this branch are not permitted; the update was rejected by policy.", "GitPullRequestUpdateRejectedByPolicyException")
		default:
			s.write(w, http.StatusOK, s.azurePR(merged, false))
		}
	case "abandoned", "":
		s.write(w, http.StatusOK, s.azurePR(s.change(pr.Number, func(p *PullRequest) {
			edit(p, form.Title, form.Description, nil)
			if form.Status != "" {
				p.State = Closed
			}
		}), false))
	default:
		s.refuse(w, http.StatusBadRequest, "Invalid argument value. Parameter name: status", "InvalidArgumentValueException")
	}
}
