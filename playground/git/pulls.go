package git

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"code.gitea.io/sdk/gitea"
)

const (
	// pageSize is the largest page of a list in Gitea.
	pageSize = 50
	// mergeTimeout bounds the time in which Gitea finds that a pull request can be merged.
	// On a machine that is not very busy it is short.
	mergeTimeout = 2 * time.Minute
)

// PullRequests returns all pull requests, open and closed, oldest first.
func (r *Repository) PullRequests(ctx context.Context) ([]*gitea.PullRequest, error) {
	c, err := r.client(ctx)
	if err != nil {
		return nil, err
	}
	found, err := every(func(page gitea.ListOptions) ([]*gitea.PullRequest, *gitea.Response, error) {
		return c.ListRepoPullRequests(r.Owner, r.Name, gitea.ListPullRequestsOptions{ListOptions: page, State: gitea.StateAll})
	})
	if err != nil {
		return nil, fmt.Errorf("listing the pull requests of %s/%s: %w", r.Owner, r.Name, err)
	}
	slices.SortFunc(found, func(a, b *gitea.PullRequest) int { return int(a.Index - b.Index) })
	return found, nil
}

// Branches returns the sorted names of all branches.
func (r *Repository) Branches(ctx context.Context) ([]string, error) {
	c, err := r.client(ctx)
	if err != nil {
		return nil, err
	}
	found, err := every(func(page gitea.ListOptions) ([]*gitea.Branch, *gitea.Response, error) {
		return c.ListRepoBranches(r.Owner, r.Name, gitea.ListRepoBranchesOptions{ListOptions: page})
	})
	if err != nil {
		return nil, fmt.Errorf("listing the branches of %s/%s: %w", r.Owner, r.Name, err)
	}
	names := make([]string, 0, len(found))
	for _, b := range found {
		names = append(names, b.Name)
	}
	slices.Sort(names)
	return names, nil
}

// Head returns the newest commit of a branch.
func (r *Repository) Head(ctx context.Context, branch string) (string, error) {
	c, err := r.client(ctx)
	if err != nil {
		return "", err
	}
	found, _, err := c.GetRepoBranch(r.Owner, r.Name, branch)
	if err != nil {
		return "", fmt.Errorf("reading branch %s of %s/%s: %w", branch, r.Owner, r.Name, err)
	}
	if found.Commit == nil {
		return "", fmt.Errorf("branch %s of %s/%s has no commit", branch, r.Owner, r.Name)
	}
	return found.Commit.ID, nil
}

// Deletions returns how many deletions of a branch Gitea has handled. It does so up to 2 s after the deletion, and closes all
// open pull requests of the branch then, also those that were opened since from a new branch of the same name.
func (r *Repository) Deletions(ctx context.Context, branch string) (int, error) {
	c, err := r.client(ctx)
	if err != nil {
		return 0, err
	}
	found, err := every(func(page gitea.ListOptions) ([]*gitea.Activity, *gitea.Response, error) {
		return c.ListRepoActivityFeeds(r.Owner, r.Name, gitea.ListRepoActivityFeedsOptions{ListOptions: page})
	})
	if err != nil {
		return 0, fmt.Errorf("listing the activities in %s/%s: %w", r.Owner, r.Name, err)
	}
	deletions := 0
	for _, a := range found {
		if a.OpType == "delete_branch" && a.RefName == "refs/heads/"+branch {
			deletions++
		}
	}
	return deletions, nil
}

// Merge waits until Gitea finds that a pull request can be merged, and merges it.
func (r *Repository) Merge(ctx context.Context, number int64) error {
	ctx, cancel := context.WithTimeout(ctx, mergeTimeout)
	defer cancel()
	c, err := r.client(ctx)
	if err != nil {
		return err
	}
	err = r.server.poll(ctx, func() (bool, error) {
		merged, answer, err := c.MergePullRequest(r.Owner, r.Name, number, gitea.MergePullRequestOption{Style: gitea.MergeStyleMerge})
		switch {
		case err != nil || merged:
			return merged, err
		case answer.StatusCode == http.StatusMethodNotAllowed:
			// Not yet: Gitea checks for conflicts after the pull request was opened.
			return false, nil
		default:
			return false, fmt.Errorf("gitea responded with %s", answer.Status)
		}
	})
	if err != nil {
		return fmt.Errorf("merging pull request %d of %s/%s: %w", number, r.Owner, r.Name, err)
	}
	return nil
}

// Close closes a pull request without merging it.
func (r *Repository) Close(ctx context.Context, number int64) error {
	c, err := r.client(ctx)
	if err != nil {
		return err
	}
	closed := gitea.StateClosed
	if _, _, err := c.EditPullRequest(r.Owner, r.Name, number, gitea.EditPullRequestOption{State: &closed}); err != nil {
		return fmt.Errorf("closing pull request %d of %s/%s: %w", number, r.Owner, r.Name, err)
	}
	return nil
}

// every calls its function for each page of a list.
func every[T any](list func(gitea.ListOptions) ([]T, *gitea.Response, error)) ([]T, error) {
	var all []T
	for page := 1; ; page++ {
		some, _, err := list(gitea.ListOptions{Page: page, PageSize: pageSize})
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
		if len(some) < pageSize {
			return all, nil
		}
	}
}
