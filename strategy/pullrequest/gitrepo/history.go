package gitrepo

import (
	"context"
	"errors"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// Leads tells whether a branch's commit leads back to an earlier one. It fetches the
// commits in between, if they are not too many for a clone.
func (c *Clone) Leads(ctx context.Context, from, back Hash) (bool, error) {
	if from == back {
		return true, nil
	}
	// What the server sends to one who has the earlier commit is what lies between;
	// if the way leads there, one of those has it as its parent.
	if err := c.fetch(ctx, 0, []Hash{from}, []Hash{back}); err != nil {
		return false, err
	}
	seen, next := map[Hash]bool{}, []Hash{from}
	for len(next) > 0 {
		if ctx.Err() != nil {
			return false, c.explain(ctx, "log", ctx.Err())
		}
		hash := next[len(next)-1]
		next = next[:len(next)-1]
		if hash == back {
			return true, nil
		}
		if seen[hash] {
			continue
		}
		seen[hash] = true
		commit, err := object.GetCommit(c.storage, hash)
		if err != nil {
			continue // the other has it: it is on another way back
		}
		next = append(next, commit.ParentHashes...)
	}
	return false, nil
}

// Foreign looks through the commits of a branch that base does not have, from its head
// down, for one that known does not take for its own. Those below a commit that is over,
// as one that was merged, are not looked at. It looks at so many at most, and returns
// the one after them then; nil when there is none.
func (c *Clone) Foreign(ctx context.Context, head, base Hash, most int, known, over func(Commit) bool) (*Commit, error) {
	// The server leaves out what base has.
	if err := c.fetch(ctx, 0, []Hash{head}, []Hash{base}); err != nil {
		return nil, err
	}
	seen, next := map[Hash]bool{}, []Hash{head}
	for len(next) > 0 {
		hash := next[0]
		next = next[1:]
		if seen[hash] || hash == base {
			continue
		}
		if _, err := object.GetCommit(c.storage, hash); errors.Is(err, plumbing.ErrObjectNotFound) {
			continue
		}
		seen[hash] = true
		commit, err := c.Commit(hash)
		switch {
		case err != nil:
			return nil, err
		case over(commit):
			continue
		case known(commit) && len(seen) <= most:
			next = append(next, commit.Parents...)
			continue
		}
		// It may be here since base has it.
		if in, err := c.Leads(ctx, base, hash); err != nil || in {
			if err != nil {
				return nil, err
			}
			continue
		}
		return &commit, nil
	}
	return nil, nil //nolint:nilnil // None is the answer.
}
