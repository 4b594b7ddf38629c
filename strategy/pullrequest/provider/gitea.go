package provider

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"code.gitea.io/sdk/gitea"
)

// giteaPage is the largest page of a Gitea, unless its operator changed
// MAX_RESPONSE_ITEMS.
const giteaPage = 50

// giteaDeletion is longer than Gitea takes from the record that it closed a pull request to
// the record that this was because of the deletion of its branch.
const giteaDeletion = 10 * time.Second

// giteaBackend implements https://docs.gitea.com/api/#tag/repository, of Gitea and
// Forgejo.
type giteaBackend struct {
	http *http.Client
	r    Repository
}

func newGitea(_ Options, r Repository, c *http.Client) backend {
	return &giteaBackend{http: c, r: r}
}

// client returns the client of one call: the SDK keeps the context in the client. The empty
// version prevents a request for the server's version, which would have no context.
func (b *giteaBackend) client(ctx context.Context) (*gitea.Client, error) {
	return gitea.NewClient(b.r.Server, gitea.SetHTTPClient(b.http), gitea.SetContext(ctx), gitea.SetGiteaVersion(""))
}

// limits: a title has at most 255 characters.
func (*giteaBackend) limits() Limits { return Limits{Title: 255, Labels: true} }

func (*giteaBackend) pullRequest(pr *gitea.PullRequest) PullRequest {
	p := PullRequest{Number: pr.Index, URL: pr.HTMLURL, Title: pr.Title, Body: pr.Body}
	if pr.Head != nil {
		// Once the branch is deleted, ref is refs/pull/N/head; label stays.
		p.Head, p.HeadSHA = first(pr.Head.Name, pr.Head.Ref), pr.Head.Sha
	}
	if pr.Base != nil {
		p.Base = first(pr.Base.Name, pr.Base.Ref)
	}
	switch {
	case pr.HasMerged:
		p.State = Merged
		if pr.MergedCommitID != nil {
			p.MergeSHA = *pr.MergedCommitID
		}
	case pr.State == gitea.StateClosed:
		p.State = Closed
	case pr.State == gitea.StateOpen:
		p.State = Open
	}
	return p
}

// list: https://docs.gitea.com/api/#tag/repository/operation/repoListPullRequests.
// It cannot filter by head, so the newest are searched. In a repository with more than the
// bound, the open ones are searched again, so that none is missed.
func (b *giteaBackend) list(ctx context.Context, q Query) ([]PullRequest, error) {
	found, complete, err := b.scan(ctx, q, gitea.StateAll)
	if err != nil || complete {
		return found, err
	}
	open, _, err := b.scan(ctx, q, gitea.StateOpen)
	if err != nil {
		return nil, err
	}
	for _, pr := range open {
		if !slices.ContainsFunc(found, func(f PullRequest) bool { return f.Number == pr.Number }) {
			found = append(found, pr)
		}
	}
	return found, nil
}

// scan reports whether it reached the end of the list, or the limit.
func (b *giteaBackend) scan(ctx context.Context, q Query, state gitea.StateType) (found []PullRequest, complete bool, err error) {
	client, err := b.client(ctx)
	if err != nil {
		return nil, false, err
	}
	options := gitea.ListPullRequestsOptions{State: state}
	options.Page, options.PageSize = 1, giteaPage
	for range maxPages {
		page, response, err := client.ListRepoPullRequests(b.r.Owner, b.r.Name, options)
		if err != nil {
			return nil, false, err
		}
		for _, pr := range page {
			p := b.pullRequest(pr)
			if p.Head == q.Head && p.Base == q.Base && pr.Head.RepoID == pr.Base.RepoID {
				found = append(found, p)
			}
		}
		if response.NextPage == 0 || q.Limit > 0 && len(found) >= q.Limit {
			return found, true, nil
		}
		options.Page = response.NextPage
	}
	return found, false, nil
}

// get: https://docs.gitea.com/api/#tag/repository/operation/repoGetPullRequest
func (b *giteaBackend) get(ctx context.Context, number int64) (PullRequest, error) {
	client, err := b.client(ctx)
	if err != nil {
		return PullRequest{}, err
	}
	pr, _, err := client.GetPullRequest(b.r.Owner, b.r.Name, number)
	if err != nil {
		return PullRequest{}, err
	}
	return b.pullRequest(pr), nil
}

// create: https://docs.gitea.com/api/#tag/repository/operation/repoCreatePullRequest
func (b *giteaBackend) create(ctx context.Context, n NewPullRequest) (PullRequest, error) {
	client, err := b.client(ctx)
	if err != nil {
		return PullRequest{}, err
	}
	pr, _, err := client.CreatePullRequest(b.r.Owner, b.r.Name, gitea.CreatePullRequestOption{
		Head: n.Head, Base: n.Base, Title: n.Title, Body: n.Body,
	})
	if err != nil {
		return PullRequest{}, err
	}
	return b.pullRequest(pr), nil
}

// update: https://docs.gitea.com/api/#tag/repository/operation/repoEditPullRequest
func (b *giteaBackend) update(ctx context.Context, number int64, e Edit) (PullRequest, error) {
	change := gitea.EditPullRequestOption{Body: e.Body}
	if e.Title != nil {
		change.Title = *e.Title
	}
	return b.edit(ctx, number, change)
}

func (b *giteaBackend) close(ctx context.Context, pr PullRequest) error {
	closed := gitea.StateClosed
	_, err := b.edit(ctx, pr.Number, gitea.EditPullRequestOption{State: &closed, Body: &pr.Body})
	return err
}

var _ lateCloser = &giteaBackend{}

// closure: https://docs.gitea.com/api/#tag/issue/operation/issueGetCommentsAndTimeline.
// When Gitea acts upon the deletion of a branch, it first records that it closed the pull
// request, and then the deletion. Both have the account that deleted the branch.
func (b *giteaBackend) closure(ctx context.Context, number int64) (Closure, error) {
	client, err := b.client(ctx)
	if err != nil {
		return "", err
	}
	pr, _, err := client.GetPullRequest(b.r.Owner, b.r.Name, number)
	if err != nil {
		return "", err
	}
	// Without a page, Gitea returns all events. It has no links to further pages.
	all := gitea.ListIssueCommentOptions{ListOptions: gitea.ListOptions{Page: -1}}
	events, response, err := client.ListIssueTimeline(b.r.Owner, b.r.Name, number, all)
	if err != nil {
		return "", err
	}
	var closed *gitea.TimelineComment
	deleted := false
	for _, e := range events {
		switch e.Type {
		case "close":
			closed, deleted = e, false
		case "reopen":
			closed, deleted = nil, false
		case "delete_branch":
			deleted = closed != nil
		}
	}
	switch {
	case deleted:
		return ByDeletion, nil
	case closed == nil || !sameGiteaUser(closed.Poster, pr.Poster):
		return ByRequest, nil
	}
	if now, err := http.ParseTime(response.Header.Get("Date")); err == nil && now.Sub(closed.Created) < giteaDeletion {
		return Unclear, nil
	}
	return ByRequest, nil
}

func sameGiteaUser(a, b *gitea.User) bool {
	return a != nil && b != nil && a.UserName == b.UserName
}

func (b *giteaBackend) reopen(ctx context.Context, number int64) (PullRequest, error) {
	open := gitea.StateOpen
	return b.edit(ctx, number, gitea.EditPullRequestOption{State: &open})
}

func (b *giteaBackend) edit(ctx context.Context, number int64, change gitea.EditPullRequestOption) (PullRequest, error) {
	client, err := b.client(ctx)
	if err != nil {
		return PullRequest{}, err
	}
	pr, _, err := client.EditPullRequest(b.r.Owner, b.r.Name, number, change)
	if err != nil {
		return PullRequest{}, err
	}
	return b.pullRequest(pr), nil
}

// merge: https://docs.gitea.com/api/#tag/repository/operation/repoMergePullRequest.
// It uses the default style of the repository, which is always allowed.
func (b *giteaBackend) merge(ctx context.Context, pr PullRequest, m MergeOptions) error {
	client, err := b.client(ctx)
	if err != nil {
		return err
	}
	repository, _, err := client.GetRepo(b.r.Owner, b.r.Name)
	if err != nil {
		return err
	}
	style := repository.DefaultMergeStyle
	if style == "" {
		style = gitea.MergeStyleMerge
	}
	_, _, err = client.MergePullRequest(b.r.Owner, b.r.Name, pr.Number, gitea.MergePullRequestOption{
		Style: style, HeadCommitId: m.HeadSHA, Message: m.Message,
	})
	return err
}

// comment: https://docs.gitea.com/api/#tag/issue/operation/issueCreateComment
func (b *giteaBackend) comment(ctx context.Context, number int64, text string) error {
	client, err := b.client(ctx)
	if err != nil {
		return err
	}
	_, _, err = client.CreateIssueComment(b.r.Owner, b.r.Name, number, gitea.CreateIssueCommentOption{Body: text})
	return err
}

// comments: https://docs.gitea.com/api/#tag/issue/operation/issueGetComments, which has no
// pages.
func (b *giteaBackend) comments(ctx context.Context, number int64) ([]string, error) {
	client, err := b.client(ctx)
	if err != nil {
		return nil, err
	}
	found, _, err := client.ListIssueComments(b.r.Owner, b.r.Name, number, gitea.ListIssueCommentOptions{})
	if err != nil {
		return nil, err
	}
	texts := make([]string, 0, len(found))
	for _, c := range found {
		texts = append(texts, c.Body)
	}
	return texts, nil
}

// addLabels: https://docs.gitea.com/api/#tag/issue/operation/issueAddLabel, which
// requires ids: those of the repository's own labels.
func (b *giteaBackend) addLabels(ctx context.Context, number int64, labels []string) error {
	client, err := b.client(ctx)
	if err != nil {
		return err
	}
	ids := map[string]int64{}
	err = pages(func(page int) (int, error) {
		known, response, err := client.ListRepoLabels(b.r.Owner, b.r.Name, gitea.ListLabelsOptions{ListOptions: gitea.ListOptions{Page: page, PageSize: giteaPage}})
		if err != nil {
			return 0, err
		}
		for _, l := range known {
			ids[strings.ToLower(l.Name)] = l.ID
		}
		return response.NextPage, nil
	})
	if err != nil {
		return err
	}
	var wanted []int64
	for _, name := range labels {
		id, ok := ids[strings.ToLower(name)]
		if !ok {
			return refused(Validation, "the repository has no label %q", name)
		}
		wanted = append(wanted, id)
	}
	_, _, err = client.AddIssueLabels(b.r.Owner, b.r.Name, number, gitea.IssueLabelsOption{Labels: wanted})
	return err
}

// pages calls its function with each page number until there is no next page, or too many.
func pages(read func(page int) (next int, err error)) error {
	page := 1
	for range maxPages {
		next, err := read(page)
		if err != nil || next == 0 {
			return err
		}
		page = next
	}
	return nil
}

// requestReviews: https://docs.gitea.com/api/#tag/repository/operation/repoCreatePullReviewRequests
func (b *giteaBackend) requestReviews(ctx context.Context, number int64, reviewers []string) error {
	client, err := b.client(ctx)
	if err != nil {
		return err
	}
	_, err = client.CreateReviewRequests(b.r.Owner, b.r.Name, number, gitea.PullReviewRequestOptions{Reviewers: reviewers})
	return err
}

// setStatus: https://docs.gitea.com/api/#tag/repository/operation/repoCreateStatus
func (b *giteaBackend) setStatus(ctx context.Context, status CommitStatus) error {
	client, err := b.client(ctx)
	if err != nil {
		return err
	}
	state := gitea.StatusState(status.State)
	if status.State == StatusCanceled {
		state = gitea.StatusWarning
	}
	_, _, err = client.CreateStatus(b.r.Owner, b.r.Name, status.SHA, gitea.CreateStatusOption{
		State: state, Context: status.Context.String(), Description: status.Description, TargetURL: status.URL,
	})
	return err
}
