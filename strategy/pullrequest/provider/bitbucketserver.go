package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// bitbucketBackend implements
// https://developer.atlassian.com/server/bitbucket/rest/ (Pull Requests), of
// Bitbucket Server and Data Center.
type bitbucketBackend struct {
	http *http.Client
	r    Repository
}

func newBitbucketServer(r Repository, c *http.Client) backend {
	return &bitbucketBackend{http: c, r: r}
}

// bitbucketPullRequest has the used fields of RestPullRequest.
type bitbucketPullRequest struct {
	ID          int64               `json:"id,omitempty"`
	Version     int                 `json:"version"`
	Title       string              `json:"title"`
	Description string              `json:"description"`
	State       string              `json:"state,omitempty"`
	FromRef     *bitbucketRef       `json:"fromRef,omitempty"`
	ToRef       *bitbucketRef       `json:"toRef,omitempty"`
	Reviewers   []bitbucketReviewer `json:"reviewers,omitempty"`
	Links       *bitbucketLinks     `json:"links,omitempty"`
	Properties  *struct {
		MergeCommit struct {
			ID string `json:"id"`
		} `json:"mergeCommit"`
	} `json:"properties,omitempty"`
}

type bitbucketLinks struct {
	Self []struct {
		Href string `json:"href"`
	} `json:"self"`
}

type bitbucketRef struct {
	ID           string              `json:"id"`
	LatestCommit string              `json:"latestCommit,omitempty"`
	Repository   bitbucketRepository `json:"repository"`
}

type bitbucketRepository struct {
	Slug    string           `json:"slug"`
	Project bitbucketProject `json:"project"`
}

type bitbucketProject struct {
	Key string `json:"key"`
}

type bitbucketReviewer struct {
	User bitbucketUser `json:"user"`
}

type bitbucketUser struct {
	Name string `json:"name"`
}

// limits: a title has at most 255 characters, a description 32,768.
func (*bitbucketBackend) limits() Limits { return Limits{Title: 255, Body: 32768} }

// call calls one resource under the repository's pull requests.
func (b *bitbucketBackend) call(ctx context.Context, method, path string, query url.Values, body, answer any) error {
	return b.callRepository(ctx, method, "/pull-requests"+path, query, body, answer)
}

// callRepository calls one resource under the repository.
func (b *bitbucketBackend) callRepository(ctx context.Context, method, path string, query url.Values, body, answer any) error {
	address := b.r.APIURL + "projects/" + url.PathEscape(b.r.Owner) + "/repos/" + url.PathEscape(b.r.Name) + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	encoded := []byte("{}")
	if body != nil {
		var err error
		if encoded, err = json.Marshal(body); err != nil {
			return err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, address, http.NoBody)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "application/json")
	if method != http.MethodGet {
		request.Body, request.ContentLength = newBody(encoded), int64(len(encoded))
		request.Header.Set("Content-Type", "application/json")
		// Without this header, the service's protection against forged requests refuses some
		// writes.
		request.Header.Set("X-Atlassian-Token", "no-check")
	}
	response, err := b.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if answer == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(answer)
}

func newBody(b []byte) *body { return &body{Reader: bytes.NewReader(b)} }

// body is a message body in memory.
type body struct{ *bytes.Reader }

// Close implements io.Closer.
func (*body) Close() error { return nil }

func (b *bitbucketBackend) pullRequest(pr *bitbucketPullRequest) PullRequest {
	p := PullRequest{Number: pr.ID, Title: pr.Title, Body: pr.Description, version: pr.Version}
	if pr.Links != nil && len(pr.Links.Self) > 0 {
		p.URL = pr.Links.Self[0].Href
	}
	if pr.FromRef != nil && pr.ToRef != nil {
		p.Head, p.Base = strings.TrimPrefix(pr.FromRef.ID, headsPrefix), strings.TrimPrefix(pr.ToRef.ID, headsPrefix)
		p.HeadSHA = pr.FromRef.LatestCommit
	}
	switch pr.State {
	case "OPEN":
		p.State = Open
	case "DECLINED":
		p.State = Closed
	case "MERGED":
		p.State = Merged
		if pr.Properties != nil {
			p.MergeSHA = pr.Properties.MergeCommit.ID
		}
	}
	return p
}

// list: GET …/pull-requests, with the branch as source.
func (b *bitbucketBackend) list(ctx context.Context, q Query) ([]PullRequest, error) {
	var found []PullRequest
	start := 0
	for range maxPages {
		var page struct {
			Values        []bitbucketPullRequest `json:"values"`
			IsLastPage    *bool                  `json:"isLastPage"`
			NextPageStart int                    `json:"nextPageStart"`
		}
		query := url.Values{
			"state": {"ALL"}, "direction": {"OUTGOING"}, "at": {headsPrefix + q.Head}, "order": {"NEWEST"},
			"start": {strconv.Itoa(start)}, "limit": {strconv.Itoa(pageSize)},
		}
		if err := b.call(ctx, http.MethodGet, "", query, nil, &page); err != nil {
			return nil, err
		}
		if page.IsLastPage == nil {
			return nil, unreadable("the response is not a page of the service's API")
		}
		for _, pr := range page.Values {
			p := b.pullRequest(&pr)
			if p.Head == q.Head && p.Base == q.Base && pr.FromRef.Repository == pr.ToRef.Repository {
				found = append(found, p)
			}
		}
		if *page.IsLastPage || page.NextPageStart <= start || q.Limit > 0 && len(found) >= q.Limit {
			break
		}
		start = page.NextPageStart
	}
	return found, nil
}

func (b *bitbucketBackend) read(ctx context.Context, number int64) (*bitbucketPullRequest, error) {
	var pr bitbucketPullRequest
	if err := b.call(ctx, http.MethodGet, path(number, ""), nil, nil, &pr); err != nil {
		return nil, err
	}
	return &pr, nil
}

func path(number int64, under string) string { return fmt.Sprintf("/%d%s", number, under) }

// get: GET …/pull-requests/{id}
func (b *bitbucketBackend) get(ctx context.Context, number int64) (PullRequest, error) {
	pr, err := b.read(ctx, number)
	if err != nil {
		return PullRequest{}, err
	}
	return b.pullRequest(pr), nil
}

// create: POST …/pull-requests
func (b *bitbucketBackend) create(ctx context.Context, n NewPullRequest) (PullRequest, error) {
	here := bitbucketRepository{Slug: b.r.Name, Project: bitbucketProject{Key: b.r.Owner}}
	var pr bitbucketPullRequest
	err := b.call(ctx, http.MethodPost, "", nil, bitbucketPullRequest{
		Title: n.Title, Description: n.Body,
		FromRef: &bitbucketRef{ID: headsPrefix + n.Head, Repository: here},
		ToRef:   &bitbucketRef{ID: headsPrefix + n.Base, Repository: here},
	}, &pr)
	if err != nil {
		return PullRequest{}, err
	}
	return b.pullRequest(&pr), nil
}

// update: PUT …/pull-requests/{id}, which empties fields that are left out, also the
// reviewers.
func (b *bitbucketBackend) update(ctx context.Context, number int64, e Edit) (PullRequest, error) {
	pr, err := b.read(ctx, number)
	if err != nil {
		return PullRequest{}, err
	}
	if e.Title != nil {
		pr.Title = *e.Title
	}
	if e.Body != nil {
		pr.Description = *e.Body
	}
	return b.put(ctx, number, pr)
}

func (b *bitbucketBackend) put(ctx context.Context, number int64, pr *bitbucketPullRequest) (PullRequest, error) {
	var after bitbucketPullRequest
	err := b.call(ctx, http.MethodPut, path(number, ""), nil, bitbucketPullRequest{
		Version: pr.Version, Title: pr.Title, Description: pr.Description, Reviewers: pr.Reviewers,
	}, &after)
	if err != nil {
		return PullRequest{}, err
	}
	return b.pullRequest(&after), nil
}

// merge: POST …/pull-requests/{id}/merge. It has no guard by commit. The
// version that was read with the head replaces it, because a push increments the version.
func (b *bitbucketBackend) merge(ctx context.Context, pr PullRequest, m MergeOptions) error {
	var body any
	if m.Message != "" {
		body = map[string]string{"message": m.Message}
	}
	return b.call(ctx, http.MethodPost, path(pr.Number, "/merge"), version(pr.version), body, nil)
}

func version(v int) url.Values { return url.Values{"version": {strconv.Itoa(v)}} }

// close: POST …/pull-requests/{id}/decline
func (b *bitbucketBackend) close(ctx context.Context, pr PullRequest) error {
	return b.call(ctx, http.MethodPost, path(pr.Number, "/decline"), version(pr.version), nil, nil)
}

// comment: POST …/pull-requests/{id}/comments
func (b *bitbucketBackend) comment(ctx context.Context, number int64, text string) error {
	return b.call(ctx, http.MethodPost, path(number, "/comments"), nil, map[string]string{"text": text}, nil)
}

// comments: GET …/pull-requests/{id}/activities
func (b *bitbucketBackend) comments(ctx context.Context, number int64) (texts []string, err error) {
	start := 0
	for range maxPages {
		var page struct {
			Values []struct {
				Comment struct {
					Text string `json:"text"`
				} `json:"comment"`
			} `json:"values"`
			IsLastPage    *bool `json:"isLastPage"`
			NextPageStart int   `json:"nextPageStart"`
		}
		query := url.Values{"start": {strconv.Itoa(start)}, "limit": {strconv.Itoa(pageSize)}}
		if err := b.call(ctx, http.MethodGet, path(number, "/activities"), query, nil, &page); err != nil {
			return nil, err
		}
		if page.IsLastPage == nil {
			return nil, unreadable("the response is not a page of the service's API")
		}
		for _, activity := range page.Values {
			if activity.Comment.Text != "" {
				texts = append(texts, activity.Comment.Text)
			}
		}
		if *page.IsLastPage || page.NextPageStart <= start {
			break
		}
		start = page.NextPageStart
	}
	return texts, nil
}

func (*bitbucketBackend) addLabels(context.Context, int64, []string) error {
	return refused(Unsupported, "Bitbucket Server does not support labels on pull requests")
}

// requestReviews: PUT …/pull-requests/{id} with the added reviewers.
func (b *bitbucketBackend) requestReviews(ctx context.Context, number int64, reviewers []string) error {
	pr, err := b.read(ctx, number)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, r := range pr.Reviewers {
		known[r.User.Name] = true
	}
	before := len(pr.Reviewers)
	for _, name := range reviewers {
		if !known[name] {
			known[name] = true
			pr.Reviewers = append(pr.Reviewers, bitbucketReviewer{User: bitbucketUser{Name: name}})
		}
	}
	if len(pr.Reviewers) == before {
		return nil
	}
	_, err = b.put(ctx, number, pr)
	return err
}

// setStatus: https://developer.atlassian.com/server/bitbucket/rest/v811/api-group-builds-and-deployments/,
// since Bitbucket Server 7.4.
func (b *bitbucketBackend) setStatus(ctx context.Context, status CommitStatus) error {
	state, name := "FAILED", status.Context.String()
	switch status.State {
	case StatusPending:
		state = "INPROGRESS"
	case StatusSuccess:
		state = "SUCCESSFUL"
	case StatusFailure, StatusCanceled:
	}
	return b.callRepository(ctx, http.MethodPost, "/commits/"+url.PathEscape(status.SHA)+"/builds", nil, map[string]any{
		"key": name, "name": name, "state": state, "description": status.Description, "url": status.URL,
	}, nil)
}
