package pullrequest

import (
	"context"
	"errors"
	"slices"

	"github.com/capstan-hub/capstan/strategy/pullrequest/failures"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider"
)

// deleteBranch deletes the branch of a finished promotion at the service. It keeps a branch
// with a person's commit, with the claim of another Pipeline or of a promotion with a higher
// number, and one that has an open pull request. The deletion names the commit that was
// read, so that a push in between is not lost.
//
// It also keeps the branch if a promotion with a higher number exists, which pushes to it next,
// or soon, and deletes it at its own end. Gitea closes the pull requests of a deleted branch
// some time after the deletion, and so also one that was opened from the branch after it was
// pushed again. For a promotion that is created after the deletion, closed opens it again.
//
// A rule of the service may forbid the deletion. Nothing depends on it, so this is no error.
func (a *act) deleteBranch(ctx context.Context) error {
	prs, err := a.find(ctx)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(prs, func(pr provider.PullRequest) bool { return pr.State == provider.Open && pr.Head == a.branch }) {
		return nil
	}
	err = a.clone(ctx, func(ctx context.Context, c *gitrepo.Clone) error {
		head, err := a.head(ctx, c)
		if err != nil || head == nil {
			return err
		}
		deletable, err := a.deletable(ctx, c, *head)
		if err != nil || !deletable {
			return err
		}
		switch err := a.outranked(ctx); {
		case errors.Is(err, errOutranked):
			return nil
		case err != nil:
			return err
		}
		return c.DeleteBranch(ctx, a.branch, head.Hash)
	})
	if class := failures.Of(err); gitrepo.IsMoved(err) || class != nil && class.Name == failures.ReasonBranchProtected {
		return nil
	}
	return err
}

// head returns the commit at the head of the promotion's branch; nil if there is no branch.
func (a *act) head(ctx context.Context, c *gitrepo.Clone) (*gitrepo.Commit, error) {
	at, exists := c.Branch(a.branch)
	if !exists {
		return nil, nil
	}
	if err := c.Fetch(ctx, 1, at); err != nil {
		return nil, err
	}
	head, err := c.Commit(at)
	return &head, err
}

// deletable reports whether the head of the branch is a commit of this promotion or of an
// earlier one, or such a commit that was updated from the base branch.
func (a *act) deletable(ctx context.Context, c *gitrepo.Clone, head gitrepo.Commit) (bool, error) {
	relation := readClaim(head.Message).relationTo(a.p)
	if ownCommit(head) {
		return relation == mine || relation == older, nil
	}
	base, exists := c.Branch(a.spec.BaseBranch)
	if !exists || len(head.Parents) != 2 {
		return false, nil
	}
	if err := c.Fetch(ctx, 1, base); err != nil {
		return false, err
	}
	own, err := a.updated(ctx, c, head, base)
	return own != nil, err
}
