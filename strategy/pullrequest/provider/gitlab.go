package provider

import (
	"context"
	"errors"
	"net/http"
	"strings"

	gitlab "gitlab.com/gitlab-org/api/client-go/v2"
)

// gitlabBackend implements https://docs.gitlab.com/api/merge_requests/.
type gitlabBackend struct {
	client  *gitlab.Client
	project string
}

// unlimited disables the client's own rate limiter, which would block callers: the wire
// returns an error with the wait.
type unlimited struct{}

// Wait implements gitlab.RateLimiter.
func (unlimited) Wait(context.Context) error { return nil }

func newGitLab(o Options, r Repository, c *http.Client) (backend, error) {
	client, err := gitlab.NewAuthSourceClient(gitlab.Unauthenticated{},
		gitlab.WithBaseURL(r.APIURL), gitlab.WithHTTPClient(c), gitlab.WithoutRetries(), gitlab.WithCustomLimiter(unlimited{}))
	if err != nil {
		return nil, invalid(o.Type, "apiURL is not a valid URL")
	}
	return &gitlabBackend{client: client, project: r.Owner + "/" + r.Name}, nil
}

// limits: a title has at most 255 characters, a description 1,048,576.
func (*gitlabBackend) limits() Limits { return Limits{Title: 255, Body: 1 << 20, Labels: true} }

func (*gitlabBackend) pullRequest(mr *gitlab.BasicMergeRequest) PullRequest {
	p := PullRequest{
		Number: mr.IID, URL: mr.WebURL, HeadSHA: mr.SHA, Title: mr.Title, Body: mr.Description,
		Head: mr.SourceBranch, Base: mr.TargetBranch, behind: mr.DetailedMergeStatus == "need_rebase",
	}
	switch mr.State {
	case "opened", "locked": // locked: it is being merged
		p.State = Open
	case "closed":
		p.State = Closed
	case "merged":
		p.State = Merged
		// Fast-forward merges make no merge commit.
		p.MergeSHA = first(mr.MergeCommitSHA, mr.SquashCommitSHA, mr.SHA)
	}
	return p
}

// list: https://docs.gitlab.com/api/merge_requests/#list-project-merge-requests
func (b *gitlabBackend) list(ctx context.Context, q Query) ([]PullRequest, error) {
	var found []PullRequest
	options := &gitlab.ListProjectMergeRequestsOptions{
		State: gitlab.Ptr("all"), SourceBranch: &q.Head, TargetBranch: &q.Base,
		OrderBy: gitlab.Ptr("created_at"), Sort: gitlab.Ptr("desc"),
	}
	options.Page, options.PerPage = 1, pageSize
	for range maxPages {
		page, response, err := b.client.MergeRequests.ListProjectMergeRequests(b.project, options, gitlab.WithContext(ctx))
		if err != nil {
			return nil, err
		}
		for _, mr := range page {
			if mr.SourceBranch == q.Head && mr.TargetBranch == q.Base && mr.SourceProjectID == mr.TargetProjectID {
				found = append(found, b.pullRequest(mr))
			}
		}
		if response.NextPage == 0 || q.Limit > 0 && len(found) >= q.Limit {
			break
		}
		options.Page = response.NextPage
	}
	return found, nil
}

// get: https://docs.gitlab.com/api/merge_requests/#get-single-mr
func (b *gitlabBackend) get(ctx context.Context, number int64) (PullRequest, error) {
	mr, _, err := b.client.MergeRequests.GetMergeRequest(b.project, number, nil, gitlab.WithContext(ctx))
	if err != nil {
		return PullRequest{}, err
	}
	return b.pullRequest(&mr.BasicMergeRequest), nil
}

// create: https://docs.gitlab.com/api/merge_requests/#create-mr
func (b *gitlabBackend) create(ctx context.Context, n NewPullRequest) (PullRequest, error) {
	mr, _, err := b.client.MergeRequests.CreateMergeRequest(b.project, &gitlab.CreateMergeRequestOptions{
		Title: &n.Title, Description: &n.Body, SourceBranch: &n.Head, TargetBranch: &n.Base,
	}, gitlab.WithContext(ctx))
	if err != nil {
		return PullRequest{}, err
	}
	return b.pullRequest(&mr.BasicMergeRequest), nil
}

// update: https://docs.gitlab.com/api/merge_requests/#update-mr
func (b *gitlabBackend) update(ctx context.Context, number int64, e Edit) (PullRequest, error) {
	return b.edit(ctx, number, &gitlab.UpdateMergeRequestOptions{Title: e.Title, Description: e.Body})
}

func (b *gitlabBackend) close(ctx context.Context, pr PullRequest) error {
	_, err := b.edit(ctx, pr.Number, &gitlab.UpdateMergeRequestOptions{StateEvent: gitlab.Ptr("close"), Description: &pr.Body})
	return err
}

func (b *gitlabBackend) edit(ctx context.Context, number int64, change *gitlab.UpdateMergeRequestOptions) (PullRequest, error) {
	mr, _, err := b.client.MergeRequests.UpdateMergeRequest(b.project, number, change, gitlab.WithContext(ctx))
	if err != nil {
		return PullRequest{}, err
	}
	return b.pullRequest(&mr.BasicMergeRequest), nil
}

// merge: https://docs.gitlab.com/api/merge_requests/#merge-a-merge-request
func (b *gitlabBackend) merge(ctx context.Context, pr PullRequest, m MergeOptions) error {
	options := &gitlab.AcceptMergeRequestOptions{SHA: &m.HeadSHA}
	if m.Message != "" {
		options.MergeCommitMessage = &m.Message
	}
	_, _, err := b.client.MergeRequests.AcceptMergeRequest(b.project, pr.Number, options, gitlab.WithContext(ctx))
	var refusal *Error
	if errors.As(err, &refusal) && refusal.Class == Unauthorized {
		// GitLab responds with 401 if the token may not merge. The pull request was read
		// with the same token just before, so the token is valid.
		may := *refusal
		may.Class, may.Remedy = Forbidden, rights(refusal.Provider)
		return &may
	}
	return err
}

// comment: https://docs.gitlab.com/api/notes/#create-new-merge-request-note
func (b *gitlabBackend) comment(ctx context.Context, number int64, text string) error {
	_, _, err := b.client.Notes.CreateMergeRequestNote(b.project, number, &gitlab.CreateMergeRequestNoteOptions{Body: &text}, gitlab.WithContext(ctx))
	return err
}

// comments: https://docs.gitlab.com/api/notes/#list-all-merge-request-notes
func (b *gitlabBackend) comments(ctx context.Context, number int64) (texts []string, err error) {
	err = pages(func(page int) (int, error) {
		options := &gitlab.ListMergeRequestNotesOptions{}
		options.Page, options.PerPage = int64(page), pageSize
		found, response, err := b.client.Notes.ListMergeRequestNotes(b.project, number, options, gitlab.WithContext(ctx))
		if err != nil {
			return 0, err
		}
		for _, note := range found {
			texts = append(texts, note.Body)
		}
		return int(response.NextPage), nil
	})
	return texts, err
}

// addLabels: https://docs.gitlab.com/api/merge_requests/#update-mr
func (b *gitlabBackend) addLabels(ctx context.Context, number int64, labels []string) error {
	add := gitlab.LabelOptions(labels)
	_, err := b.edit(ctx, number, &gitlab.UpdateMergeRequestOptions{AddLabels: &add})
	return err
}

// requestReviews: https://docs.gitlab.com/api/users/#list-users for the ids, and
// https://docs.gitlab.com/api/merge_requests/#update-mr, which replaces all
// reviewers, so the existing ones are sent too.
func (b *gitlabBackend) requestReviews(ctx context.Context, number int64, reviewers []string) error {
	mr, _, err := b.client.MergeRequests.GetMergeRequest(b.project, number, nil, gitlab.WithContext(ctx))
	if err != nil {
		return err
	}
	known := map[int64]bool{}
	var ids []int64
	add := func(id int64) {
		if !known[id] {
			known[id] = true
			ids = append(ids, id)
		}
	}
	for _, user := range mr.Reviewers {
		add(user.ID)
	}
	before := len(ids)
	for _, name := range reviewers {
		users, _, err := b.client.Users.ListUsers(&gitlab.ListUsersOptions{Username: &name}, gitlab.WithContext(ctx))
		if err != nil {
			return err
		}
		if len(users) == 0 {
			return refused(Validation, "the user %q does not exist", name)
		}
		add(users[0].ID)
	}
	if len(ids) == before {
		return nil
	}
	_, err = b.edit(ctx, number, &gitlab.UpdateMergeRequestOptions{ReviewerIDs: &ids})
	return err
}

// setStatus: https://docs.gitlab.com/api/commits/#set-commit-pipeline-status
func (b *gitlabBackend) setStatus(ctx context.Context, status CommitStatus) error {
	options := &gitlab.SetCommitStatusOptions{
		State: gitlab.BuildStateValue(status.State), Name: gitlab.Ptr(status.Context.String()), Description: &status.Description, TargetURL: &status.URL,
	}
	if status.State == StatusFailure {
		options.State = gitlab.Failed
	}
	_, _, err := b.client.Commits.SetCommitStatus(b.project, status.SHA, options, gitlab.WithContext(ctx))
	var refusal *Error
	if errors.As(err, &refusal) && strings.Contains(refusal.Message, "Cannot transition status") {
		return nil
	}
	return err
}
