package pullrequest

import (
	"context"
	"strings"

	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo"
)

// descends reports whether the base has the commit in its history that the head of the branch
// was built on. The base of the last check is in the status, and is known to have it: only the
// commits since then are fetched. If these exceed the limits of a clone, the answer is no: the
// branch is built again on the present base, from which the next check begins.
func (a *act) descends(ctx context.Context, c *gitrepo.Clone, head, base, builtOn gitrepo.Hash) (bool, error) {
	var checked []gitrepo.Hash
	if kept := a.kept(); kept.BaseSHA != "" && strings.EqualFold(kept.HeadSHA, head.String()) {
		checked = append(checked, gitrepo.ParseHash(kept.BaseSHA))
	}
	leads, err := c.Leads(ctx, base, builtOn, checked...)
	if err != nil && gitrepo.ClassOf(err) == gitrepo.TooLarge {
		return false, nil
	}
	return leads, err
}
