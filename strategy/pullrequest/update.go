package pullrequest

import (
	"context"
	"errors"

	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider"
)

// errBehind is returned when the service does not merge the pull request because its branch
// does not have the head of the base branch. The next round rebuilds the branch.
var errBehind = errors.New("the branch is behind the base branch")

// behind reports whether the error of a merge requires a rebuild. An act rebuilds the branch
// once. The service then runs its checks, and the next poll tries the merge again.
func (a *act) behind(err error) bool {
	var refusal *provider.Error
	return errors.As(err, &refusal) && refusal.Behind && !a.upToDate
}

// current reports whether the hub's commit may stay on the base commit that it was built on.
func (a *act) current(head gitrepo.Commit, base gitrepo.Hash) bool {
	return !a.upToDate || head.Parents[0] == base
}

// updated returns the hub's commit below a commit that a service made when a person
// requested it to update the branch; nil for every other commit. Such a commit merges a
// commit of the base branch into the branch and changes nothing else: its files are those of
// the base branch's commit with the promotion's edits.
func (a *act) updated(ctx context.Context, c *gitrepo.Clone, head gitrepo.Commit, base gitrepo.Hash) (*gitrepo.Commit, error) {
	if len(head.Parents) != 2 {
		return nil, nil //nolint:nilnil // None is the answer.
	}
	// The parents of the hub's commit, too. go-git sorts the hashes that it fetches in place,
	// so it must not get head.Parents itself.
	if err := c.Fetch(ctx, 2, head.Parents[0], head.Parents[1]); err != nil {
		return nil, err
	}
	own, err := c.Commit(head.Parents[0])
	if err != nil {
		return nil, err
	}
	if relation := readClaim(own.Message).relationTo(a.p); !ownCommit(own) || len(own.Parents) != 1 || relation != mine && relation != older {
		return nil, nil //nolint:nilnil // None is the answer.
	}
	if in, err := c.Leads(ctx, base, head.Parents[1]); err != nil || !in {
		return nil, err
	}
	same, err := c.SameEdits(own, head)
	if err != nil || !same {
		return nil, err
	}
	return &own, nil
}

// updatedFits reports whether the head of the branch is an updated commit of this promotion
// that is still correct.
func (a *act) updatedFits(ctx context.Context, c *gitrepo.Clone, head gitrepo.Commit, base gitrepo.Hash, e edit) (bool, error) {
	own, err := a.updated(ctx, c, head, base)
	switch {
	case err != nil || own == nil:
		return false, err
	case readClaim(own.Message).relationTo(a.p) != mine, a.upToDate && head.Parents[1] != base:
		return false, nil
	}
	return a.fits(ctx, c, *own, base, e)
}

// refusedToken reports whether a service or Git refused the credentials. The token of a
// GitHub App's installation is then replaced: the service may not know a fresh one
// everywhere, and responds with 401 or 404 for some seconds.
func refusedToken(err error) bool {
	var service *provider.Error
	var git *gitrepo.Error
	switch {
	case errors.As(err, &service):
		return service.Class == provider.Unauthorized || service.Class == provider.Forbidden || service.Class == provider.NotFound
	case errors.As(err, &git):
		return git.Class == gitrepo.Unauthorized || git.Class == gitrepo.Forbidden || git.Class == gitrepo.NotFound
	default:
		return false
	}
}
