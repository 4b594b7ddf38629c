package pullrequest

import (
	"context"

	"github.com/capstan-hub/capstan/internal/revision"
	"github.com/capstan-hub/capstan/strategy"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo"
	"github.com/capstan-hub/capstan/strategy/pullrequest/manifest"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider"
)

// commitDigits is the length of a commit's name.
const commitDigits = 40

// unchanged reports whether the commit of the revision brings nothing new: it differs from each
// commit that it would replace only in commits that promotions wrote. That is so where the
// source environment is deployed from the repository that the hub writes to: each merge gives it
// another commit, and without this rule each would be promoted by the next merge, without end.
func (a *act) unchanged(ctx context.Context, c *gitrepo.Clone, e edit) (bool, error) {
	for _, p := range e.places {
		if p.part != revision.Commit || len(p.from) != commitDigits || len(p.to) != commitDigits {
			return false, nil
		}
		from, to := gitrepo.ParseHash(p.from), gitrepo.ParseHash(p.to)
		for _, commit := range []gitrepo.Hash{to, from} {
			if has, err := c.Has(ctx, commit); err != nil || !has {
				return false, err
			}
		}
		if alike, err := c.Alike(from, to, manifest.OnlyCommits); err != nil || !alike {
			return false, err
		}
	}
	return len(e.places) > 0, nil
}

// nothingNew returns the result for a revision that brings nothing new. An open pull request of
// the promotion stays in its status, so that it is withdrawn.
func (a *act) nothingNew(open *provider.PullRequest) strategy.Result {
	const why = "the commit differs from the one in Git only in what promotions wrote"
	if open != nil && a.owns(*open) {
		return a.result(strategy.Unchanged, *open, a.kept(), why)
	}
	return strategy.Result{State: strategy.Unchanged, Message: why}
}
