package provider

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/microsoft/azure-devops-go-api/azuredevops/v7"
	"github.com/microsoft/azure-devops-go-api/azuredevops/v7/core"
	"github.com/microsoft/azure-devops-go-api/azuredevops/v7/git"
)

const (
	// azureListedBody is the length to which Azure DevOps cuts descriptions in lists. A
	// pull request with a description of this length is read again separately.
	azureListedBody = 400

	// azureReads bounds those reads in one Find. The older pull requests beyond them are
	// left out, because their bodies would be cut.
	azureReads = 30

	headsPrefix = "refs/heads/"
)

// azurePullRequests is the id of the resource that must be in the service's table of
// resources.
var azurePullRequests = uuid.MustParse("9946fd70-0d40-406e-b686-b4744cbbcc37")

// azureBackend implements
// https://learn.microsoft.com/rest/api/azure/devops/git/pull-requests.
type azureBackend struct {
	client git.Client
	r      Repository
}

// azureTable passes only a usable table of resources. The client keeps the first table
// until the process ends, and does not check its fields. A proxy's page in its place would
// be used until a restart.
type azureTable struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t azureTable) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	if err != nil || request.Method != http.MethodOptions {
		return response, err
	}
	var table struct {
		Value []azuredevops.ApiResourceLocation `json:"value"`
	}
	// The wire has buffered the body, so it can be read here and restored.
	decodeErr := json.NewDecoder(response.Body).Decode(&table)
	_ = response.Body.Close()
	usable := table.Value[:0]
	found := false
	for _, l := range table.Value {
		if l.Id == nil || l.Area == nil || l.ResourceName == nil || l.RouteTemplate == nil || l.MinVersion == nil ||
			l.MaxVersion == nil || l.ReleasedVersion == nil || l.ResourceVersion == nil {
			continue
		}
		found = found || *l.Id == azurePullRequests
		usable = append(usable, l)
	}
	if decodeErr != nil || !found {
		return nil, unreadable("the response is not a table of Azure DevOps' resources")
	}
	table.Value = usable
	body, err := json.Marshal(table)
	if err != nil {
		return nil, err
	}
	response.Body = newBody(body)
	response.ContentLength = int64(len(body))
	return response, nil
}

func newAzureDevOps(_ Options, r Repository, c *http.Client) backend {
	guarded := *c
	guarded.Transport = azureTable{next: c.Transport}
	// The git area is at the organization's URL itself, so the client needs no location
	// lookup, and no lowercased URL.
	connection := azuredevops.NewAnonymousConnection(r.Server)
	client := azuredevops.NewClientWithOptions(connection, r.Server, azuredevops.WithHTTPClient(&guarded))
	return &azureBackend{client: &git.ClientImpl{Client: *client}, r: r}
}

// limits: a title has at most 400 characters, a description 4,000.
func (*azureBackend) limits() Limits { return Limits{Title: 400, Body: 4000, Labels: true} }

func (b *azureBackend) pullRequest(pr *git.GitPullRequest) PullRequest {
	p := PullRequest{Number: int64(deref(pr.PullRequestId)), Title: deref(pr.Title), Body: deref(pr.Description)}
	p.URL = join(b.r.Server, b.r.Project, "_git", b.r.Name, "pullrequest", strconv.FormatInt(p.Number, 10))
	p.Head, p.Base = strings.TrimPrefix(deref(pr.SourceRefName), headsPrefix), strings.TrimPrefix(deref(pr.TargetRefName), headsPrefix)
	if pr.LastMergeSourceCommit != nil {
		p.HeadSHA = deref(pr.LastMergeSourceCommit.CommitId)
	}
	switch deref(pr.Status) {
	case git.PullRequestStatusValues.Active:
		p.State = Open
	case git.PullRequestStatusValues.Abandoned:
		p.State = Closed
	case git.PullRequestStatusValues.Completed:
		p.State = Merged
		if pr.LastMergeCommit != nil {
			p.MergeSHA = deref(pr.LastMergeCommit.CommitId)
		}
	}
	return p
}

func deref[T any](p *T) (value T) {
	if p != nil {
		value = *p
	}
	return value
}

func ptr[T any](value T) *T { return &value }

// list: https://learn.microsoft.com/rest/api/azure/devops/git/pull-requests/get-pull-requests,
// the newest first.
func (b *azureBackend) list(ctx context.Context, q Query) ([]PullRequest, error) {
	var found []PullRequest
	reads := 0
	for page := range maxPages {
		answer, err := b.client.GetPullRequests(ctx, git.GetPullRequestsArgs{
			RepositoryId: &b.r.Name, Project: &b.r.Project, Top: ptr(pageSize), Skip: ptr(page * pageSize),
			SearchCriteria: &git.GitPullRequestSearchCriteria{
				Status:        &git.PullRequestStatusValues.All,
				SourceRefName: ptr(headsPrefix + q.Head), TargetRefName: ptr(headsPrefix + q.Base),
			},
		})
		if err != nil {
			return nil, err
		}
		for _, pr := range *answer {
			p := b.pullRequest(&pr)
			if p.Head != q.Head || p.Base != q.Base || pr.ForkSource != nil {
				continue
			}
			if len([]rune(p.Body)) >= azureListedBody {
				if reads++; reads > azureReads {
					continue
				}
				if p, err = b.get(ctx, p.Number); err != nil {
					return nil, err
				}
			}
			if found = append(found, p); q.Limit > 0 && len(found) >= q.Limit {
				return found, nil
			}
		}
		if len(*answer) < pageSize {
			break
		}
	}
	return found, nil
}

// get: https://learn.microsoft.com/rest/api/azure/devops/git/pull-requests/get-pull-request
func (b *azureBackend) get(ctx context.Context, number int64) (PullRequest, error) {
	pr, err := b.client.GetPullRequest(ctx, git.GetPullRequestArgs{RepositoryId: &b.r.Name, Project: &b.r.Project, PullRequestId: ptr(int(number))})
	if err != nil {
		return PullRequest{}, err
	}
	return b.pullRequest(pr), nil
}

// create: https://learn.microsoft.com/rest/api/azure/devops/git/pull-requests/create
func (b *azureBackend) create(ctx context.Context, n NewPullRequest) (PullRequest, error) {
	pr, err := b.client.CreatePullRequest(ctx, git.CreatePullRequestArgs{
		RepositoryId: &b.r.Name, Project: &b.r.Project,
		GitPullRequestToCreate: &git.GitPullRequest{
			Title: &n.Title, Description: &n.Body, SourceRefName: ptr(headsPrefix + n.Head), TargetRefName: ptr(headsPrefix + n.Base),
		},
	})
	if err != nil {
		return PullRequest{}, err
	}
	return b.pullRequest(pr), nil
}

// update: https://learn.microsoft.com/rest/api/azure/devops/git/pull-requests/update
func (b *azureBackend) update(ctx context.Context, number int64, e Edit) (PullRequest, error) {
	return b.edit(ctx, number, &git.GitPullRequest{Title: e.Title, Description: e.Body})
}

func (b *azureBackend) close(ctx context.Context, pr PullRequest) error {
	_, err := b.edit(ctx, pr.Number, &git.GitPullRequest{Status: &git.PullRequestStatusValues.Abandoned})
	return err
}

// merge requests the completion, which the service does in the background.
func (b *azureBackend) merge(ctx context.Context, pr PullRequest, m MergeOptions) error {
	change := &git.GitPullRequest{
		Status:                &git.PullRequestStatusValues.Completed,
		LastMergeSourceCommit: &git.GitCommitRef{CommitId: &m.HeadSHA},
	}
	if m.Message != "" {
		change.CompletionOptions = &git.GitPullRequestCompletionOptions{MergeCommitMessage: &m.Message}
	}
	_, err := b.edit(ctx, pr.Number, change)
	return err
}

func (b *azureBackend) edit(ctx context.Context, number int64, change *git.GitPullRequest) (PullRequest, error) {
	pr, err := b.client.UpdatePullRequest(ctx, git.UpdatePullRequestArgs{
		RepositoryId: &b.r.Name, Project: &b.r.Project, PullRequestId: ptr(int(number)), GitPullRequestToUpdate: change,
	})
	if err != nil {
		return PullRequest{}, err
	}
	return b.pullRequest(pr), nil
}

// comment: https://learn.microsoft.com/rest/api/azure/devops/git/pull-request-threads/create.
// The thread is closed at once: an open one may block the completion.
func (b *azureBackend) comment(ctx context.Context, number int64, text string) error {
	_, err := b.client.CreateThread(ctx, git.CreateThreadArgs{
		RepositoryId: &b.r.Name, Project: &b.r.Project, PullRequestId: ptr(int(number)),
		CommentThread: &git.GitPullRequestCommentThread{
			Status:   &git.CommentThreadStatusValues.Closed,
			Comments: &[]git.Comment{{Content: &text, ParentCommentId: ptr(0), CommentType: &git.CommentTypeValues.Text}},
		},
	})
	return err
}

// comments: https://learn.microsoft.com/rest/api/azure/devops/git/pull-request-threads/list
func (b *azureBackend) comments(ctx context.Context, number int64) ([]string, error) {
	threads, err := b.client.GetThreads(ctx, git.GetThreadsArgs{RepositoryId: &b.r.Name, Project: &b.r.Project, PullRequestId: ptr(int(number))})
	if err != nil {
		return nil, err
	}
	var texts []string
	for _, thread := range deref(threads) {
		for _, c := range deref(thread.Comments) {
			texts = append(texts, deref(c.Content))
		}
	}
	return texts, nil
}

// addLabels: https://learn.microsoft.com/rest/api/azure/devops/git/pull-request-labels/create
func (b *azureBackend) addLabels(ctx context.Context, number int64, labels []string) error {
	for _, name := range labels {
		_, err := b.client.CreatePullRequestLabel(ctx, git.CreatePullRequestLabelArgs{
			RepositoryId: &b.r.Name, Project: &b.r.Project, PullRequestId: ptr(int(number)),
			Label: &core.WebApiCreateTagRequestData{Name: &name},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// requestReviews: https://learn.microsoft.com/rest/api/azure/devops/git/pull-request-reviewers/create-pull-request-reviewer
func (b *azureBackend) requestReviews(ctx context.Context, number int64, reviewers []string) error {
	for _, id := range reviewers {
		if _, err := uuid.Parse(id); err != nil {
			return refused(Validation, "%q is not the id of an identity; Azure DevOps names reviewers by GUID", id)
		}
	}
	for _, id := range reviewers {
		_, err := b.client.CreatePullRequestReviewer(ctx, git.CreatePullRequestReviewerArgs{
			RepositoryId: &b.r.Name, Project: &b.r.Project, PullRequestId: ptr(int(number)),
			ReviewerId: &id, Reviewer: &git.IdentityRefWithVote{Id: &id, Vote: ptr(0)},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// setStatus: https://learn.microsoft.com/rest/api/azure/devops/git/pull-request-statuses/create
func (b *azureBackend) setStatus(ctx context.Context, status CommitStatus) error {
	if status.Number <= 0 {
		return refused(Unsupported, "states of commits without a pull request are not set on Azure DevOps")
	}
	state := git.GitStatusStateValues.Pending
	switch status.State {
	case StatusSuccess:
		state = git.GitStatusStateValues.Succeeded
	case StatusFailure:
		state = git.GitStatusStateValues.Failed
	case StatusCanceled:
		state = git.GitStatusStateValues.NotApplicable
	case StatusPending:
	}
	_, err := b.client.CreatePullRequestStatus(ctx, git.CreatePullRequestStatusArgs{
		RepositoryId: &b.r.Name, Project: &b.r.Project, PullRequestId: ptr(int(status.Number)),
		Status: &git.GitPullRequestStatus{
			State: &state, Description: &status.Description, TargetUrl: &status.URL,
			Context: &git.GitStatusContext{Genre: &status.Context.Genre, Name: &status.Context.Name},
		},
	})
	return err
}
