package gitrepo

import (
	"context"
	"errors"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// Leads reports whether an earlier commit is in the history of a branch's commit. It
// fetches the commits between them, if the limits of a clone allow it.
func (c *Clone) Leads(ctx context.Context, from, back Hash) (bool, error) {
	if from == back {
		return true, nil
	}
	// To a client that has the earlier commit, the server sends the commits between. If the
	// earlier commit is in the history, one of them has it as its parent.
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
			continue // The clone has this commit; the path is another one.
		}
		next = append(next, commit.ParentHashes...)
	}
	return false, nil
}

// Foreign searches the commits of a branch that base does not have, from its head down,
// for one for which known returns false. It does not search below a commit for which over
// returns true, such as a merged one. After most commits it stops and returns the next
// one. It returns nil when there is none.
func (c *Clone) Foreign(ctx context.Context, head, base Hash, most int, known, over func(Commit) bool) (*Commit, error) {
	// The server does not send what base has.
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
		// It may be in the clone because base has it.
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
