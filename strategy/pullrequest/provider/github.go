package provider

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/google/go-github/v89/github"
)

// githubBackend implements https://docs.github.com/en/rest/pulls/pulls.
type githubBackend struct {
	client *github.Client
	r      Repository
}

func newGitHub(o Options, r Repository, c *http.Client) (backend, error) {
	// The client's own rate limit is off: it would refuse requests by earlier responses, and
	// the wire reads the headers of every response.
	client, err := github.NewClient(github.WithHTTPClient(c), github.WithURLs(&r.APIURL, &r.APIURL), github.WithDisableRateLimitCheck())
	if err != nil {
		return nil, invalid(o.Type, "apiURL is not a valid URL")
	}
	return &githubBackend{client: client, r: r}, nil
}

// limits: a title has at most 256 characters, a body 65,536.
func (*githubBackend) limits() Limits { return Limits{Title: 256, Body: 65536, Labels: true} }

func (b *githubBackend) pullRequest(pr *github.PullRequest) PullRequest {
	p := PullRequest{
		Number: int64(pr.GetNumber()), URL: pr.GetHTMLURL(),
		HeadSHA: pr.GetHead().GetSHA(), Title: pr.GetTitle(), Body: pr.GetBody(),
		Head: pr.GetHead().GetRef(), Base: pr.GetBase().GetRef(),
		behind: pr.GetMergeableState() == "behind",
	}
	switch {
	case pr.GetMerged() || pr.MergedAt != nil: // lists have merged_at only
		// Before the merge, merge_commit_sha is the commit of a test merge.
		p.State, p.MergeSHA = Merged, pr.GetMergeCommitSHA()
	case pr.GetState() == "closed":
		p.State = Closed
	case pr.GetState() == "open":
		p.State = Open
	}
	return p
}

// list: https://docs.github.com/en/rest/pulls/pulls#list-pull-requests
func (b *githubBackend) list(ctx context.Context, q Query) ([]PullRequest, error) {
	var found []PullRequest
	options := &github.PullRequestListOptions{
		State: "all", Head: b.r.Owner + ":" + q.Head, Base: q.Base, Sort: "created", Direction: "desc",
		ListOptions: github.ListOptions{Page: 1, PerPage: pageSize},
	}
	for range maxPages {
		page, response, err := b.client.PullRequests.List(ctx, b.r.Owner, b.r.Name, options)
		if err != nil {
			return nil, err
		}
		for _, pr := range page {
			// The filter also matches the owner's forks, and a head that GitHub cannot parse
			// disables the filter.
			p := b.pullRequest(pr)
			if p.Head == q.Head && p.Base == q.Base && pr.GetHead().GetRepo().GetID() == pr.GetBase().GetRepo().GetID() {
				found = append(found, p)
			}
		}
		if response.NextPage == 0 || q.Limit > 0 && len(found) >= q.Limit {
			break
		}
		options.Page = response.NextPage
	}
	return found, nil
}

// get: https://docs.github.com/en/rest/pulls/pulls#get-a-pull-request
func (b *githubBackend) get(ctx context.Context, number int64) (PullRequest, error) {
	pr, _, err := b.client.PullRequests.Get(ctx, b.r.Owner, b.r.Name, int(number))
	if err != nil {
		return PullRequest{}, err
	}
	return b.pullRequest(pr), nil
}

// create: https://docs.github.com/en/rest/pulls/pulls#create-a-pull-request
func (b *githubBackend) create(ctx context.Context, n NewPullRequest) (PullRequest, error) {
	pr, _, err := b.client.PullRequests.Create(ctx, b.r.Owner, b.r.Name, &github.NewPullRequest{
		Title: &n.Title, Body: &n.Body, Head: &n.Head, Base: &n.Base,
	})
	if err != nil {
		return PullRequest{}, err
	}
	return b.pullRequest(pr), nil
}

// update: https://docs.github.com/en/rest/pulls/pulls#update-a-pull-request
func (b *githubBackend) update(ctx context.Context, number int64, e Edit) (PullRequest, error) {
	return b.edit(ctx, number, &github.PullRequest{Title: e.Title, Body: e.Body})
}

func (b *githubBackend) close(ctx context.Context, pr PullRequest) error {
	closed := "closed"
	_, err := b.edit(ctx, pr.Number, &github.PullRequest{State: &closed, Body: &pr.Body})
	return err
}

func (b *githubBackend) edit(ctx context.Context, number int64, change *github.PullRequest) (PullRequest, error) {
	pr, _, err := b.client.PullRequests.Edit(ctx, b.r.Owner, b.r.Name, int(number), change)
	if err != nil {
		return PullRequest{}, err
	}
	return b.pullRequest(pr), nil
}

// merge: https://docs.github.com/en/rest/pulls/pulls#merge-a-pull-request. The
// repository's response names the allowed methods. It names none to a token without the
// right to read them; GitHub then uses its default.
func (b *githubBackend) merge(ctx context.Context, pr PullRequest, m MergeOptions) error {
	repository, _, err := b.client.Repositories.Get(ctx, b.r.Owner, b.r.Name)
	if err != nil {
		return err
	}
	method := ""
	switch {
	case repository.GetAllowMergeCommit():
		method = "merge"
	case repository.GetAllowSquashMerge():
		method = "squash"
	case repository.GetAllowRebaseMerge():
		method = "rebase"
	}
	_, _, err = b.client.PullRequests.Merge(ctx, b.r.Owner, b.r.Name, int(pr.Number), m.Message,
		&github.PullRequestOptions{SHA: m.HeadSHA, MergeMethod: method})
	return err
}

// comment: https://docs.github.com/en/rest/issues/comments#create-an-issue-comment
func (b *githubBackend) comment(ctx context.Context, number int64, text string) error {
	_, _, err := b.client.Issues.CreateComment(ctx, b.r.Owner, b.r.Name, int(number), &github.IssueComment{Body: &text})
	return err
}

// comments: https://docs.github.com/en/rest/issues/comments#list-issue-comments
func (b *githubBackend) comments(ctx context.Context, number int64) (texts []string, err error) {
	err = pages(func(page int) (int, error) {
		found, response, err := b.client.Issues.ListComments(ctx, b.r.Owner, b.r.Name, int(number), &github.IssueListCommentsOptions{
			ListOptions: github.ListOptions{Page: page, PerPage: pageSize},
		})
		if err != nil {
			return 0, err
		}
		for _, c := range found {
			texts = append(texts, c.GetBody())
		}
		return response.NextPage, nil
	})
	return texts, err
}

// addLabels: https://docs.github.com/en/rest/issues/labels#add-labels-to-an-issue
func (b *githubBackend) addLabels(ctx context.Context, number int64, labels []string) error {
	_, _, err := b.client.Issues.AddLabelsToIssue(ctx, b.r.Owner, b.r.Name, int(number), labels)
	return err
}

// requestReviews: https://docs.github.com/en/rest/pulls/review-requests. A name with
// a slash, as in CODEOWNERS, is a team: owner/team.
func (b *githubBackend) requestReviews(ctx context.Context, number int64, reviewers []string) error {
	var request github.ReviewersRequest
	for _, name := range reviewers {
		if _, team, ok := strings.Cut(name, "/"); ok {
			request.TeamReviewers = append(request.TeamReviewers, team)
		} else if !slices.Contains(request.Reviewers, name) {
			request.Reviewers = append(request.Reviewers, name)
		}
	}
	_, _, err := b.client.PullRequests.RequestReviewers(ctx, b.r.Owner, b.r.Name, int(number), request)
	return err
}

// setStatus: https://docs.github.com/en/rest/commits/statuses#create-a-commit-status
func (b *githubBackend) setStatus(ctx context.Context, status CommitStatus) error {
	state, name := string(status.State), status.Context.String()
	if status.State == StatusCanceled {
		state = "error"
	}
	_, _, err := b.client.Repositories.CreateStatus(ctx, b.r.Owner, b.r.Name, status.SHA, github.RepoStatus{
		State: &state, Context: &name, Description: &status.Description, TargetURL: &status.URL,
	})
	return err
}
