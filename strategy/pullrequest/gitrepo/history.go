package gitrepo

import (
	"context"
	"errors"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
)

// historyFilters ask for commits without their trees and blobs. Git's servers allow both if
// they allow filters; GitLab allows only the second. Without a filter the server sends all
// objects.
var historyFilters = []packp.Filter{packp.FilterTreeDepth(0), "object:type=commit", ""}

// history fetches the commits that lead to one, except those that the haves lead to. It has
// the bounds of a clone for itself, so that a history that is too large does not end the clone.
func (c *Clone) history(ctx context.Context, of Hash, haves ...Hash) error {
	defer func(left int64) { c.guard.left = left }(c.guard.left)
	var err error
	for _, filter := range historyFilters {
		if filter != "" && !c.offered.Supports(capability.Filter) {
			continue
		}
		c.guard.left = c.guard.max
		err = c.fetch(ctx, request{filter: filter, wants: []Hash{of}, haves: haves})
		if filter == "" || !refusesFilter(ctx, err) {
			break
		}
	}
	return err
}

// refusesFilter reports whether a fetch with a filter may succeed without: Git refuses a filter
// in a packet of the response, for which go-git has no error of its own.
func refusesFilter(ctx context.Context, err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Class == Transient && e.Status == 0 && !e.TimedOut && ctx.Err() == nil
}

// Leads reports whether an earlier commit is in the history of a branch's commit. It fetches
// the commits between, without files where the server can filter. The error is TooLarge if
// they exceed the limits of a clone. checked are commits that are known to lead to the earlier
// one, such as that of the last check: the commits below them are not fetched.
func (c *Clone) Leads(ctx context.Context, from, back Hash, checked ...Hash) (bool, error) {
	ends := append(slices.Clone(checked), back)
	if slices.Contains(ends, from) {
		return true, nil
	}
	// To a client that has an earlier commit, the server sends the commits between. If the
	// earlier commit is in the history, one of them has it as its parent.
	if err := c.history(ctx, from, ends...); err != nil {
		return false, err
	}
	seen, next := map[Hash]bool{}, []Hash{from}
	for len(next) > 0 {
		if ctx.Err() != nil {
			return false, c.explain(ctx, "log", ctx.Err())
		}
		hash := next[len(next)-1]
		next = next[:len(next)-1]
		if slices.Contains(ends, hash) {
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
	if err := c.history(ctx, head, base); err != nil {
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
