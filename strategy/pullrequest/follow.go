package pullrequest

import (
	"context"
	"errors"
	"strings"

	"github.com/capstan-hub/capstan/strategy"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider"
)

// follow reads the state of the pull request in the status. It changes nothing.
func (a *act) follow(ctx context.Context) (strategy.Result, error) {
	kept := a.kept()
	pr, err := a.provider.Get(ctx, kept.Number)
	switch {
	case errors.Is(err, provider.ErrNotFound):
		return strategy.Result{State: strategy.Due, Message: "the pull request no longer exists"}, nil
	case err != nil:
		return strategy.Result{}, err
	}
	switch a.whose(pr) {
	case newer:
		return a.open(pr, kept), nil // The hub reconciles the newer promotion next.
	case foreign:
		return strategy.Result{}, a.taken(pr)
	case older:
		return strategy.Result{State: strategy.Due, Message: "the pull request was changed back to that of an earlier promotion"}, nil
	case mine, unclaimed:
	}
	switch pr.State {
	case provider.Merged:
		return a.merged(pr), nil
	case provider.Closed:
		return a.closed(ctx, pr)
	case provider.Open:
	}
	head := strings.ToLower(pr.HeadSHA)
	switch {
	case head != "" && head == kept.HeadSHA:
		kept.ForeignSHA = "" // The commits that a person added were removed again.
	case head != "" && head != kept.ForeignSHA:
		return strategy.Result{State: strategy.Due, Message: "the head of the branch is another commit"}, nil
	}
	if kept.ForeignSHA != "" {
		return a.open(pr, kept), nil
	}
	if a.spec.AutoMerge {
		return strategy.Result{State: strategy.Due, Message: "the pull request can be merged"}, nil
	}
	if a.comparisons.due(a.p.UID) {
		began := a.o.Clock.Now()
		base, fits, err := a.compare(ctx, kept.BaseSHA)
		if err != nil {
			return strategy.Result{}, err
		}
		if !fits {
			return strategy.Result{State: strategy.Due, Message: "the base branch has changed a file that the pull request edits"}, nil
		}
		kept.BaseSHA = base
		a.comparisons.done(a.p.UID, a.o.Clock.Since(began))
	}
	return a.open(pr, kept), nil
}

// compare compares an open pull request with the base branch. fits is true when its branch
// need not be rebuilt.
func (a *act) compare(ctx context.Context, known string) (base string, fits bool, err error) {
	err = a.clone(ctx, func(ctx context.Context, c *gitrepo.Clone) error {
		now, err := a.base(c)
		if err != nil {
			return err
		}
		base = now.String()
		head, exists := c.Branch(a.branch)
		switch {
		case !exists:
			return nil
		case base == known:
			fits = true
			return nil
		}
		if err := c.Fetch(ctx, 2, now, head); err != nil {
			return err
		}
		commit, err := c.Commit(head)
		if err != nil {
			return err
		}
		e, err := a.edits(ctx, c, now)
		if err != nil || e.empty() {
			return err
		}
		fits, err = a.fits(ctx, c, commit, now, e)
		return err
	})
	return base, fits, err
}

// closed distinguishes a pull request that a person rejected from one whose change reached
// the base in another way.
func (a *act) closed(ctx context.Context, pr provider.PullRequest) (strategy.Result, error) {
	elsewhere := false
	err := a.clone(ctx, func(ctx context.Context, c *gitrepo.Clone) error {
		base, err := a.base(c)
		if err != nil {
			return err
		}
		if err := c.Fetch(ctx, 1, base); err != nil {
			return err
		}
		e, err := a.edits(ctx, c, base)
		elsewhere = err == nil && e.empty()
		return err
	})
	if err != nil && judge(err) == nil && !isFailure(err) {
		return strategy.Result{}, err
	}
	if elsewhere {
		return a.result(strategy.Done, pr, a.kept(), "pull request %d was closed, and branch %s has %s", pr.Number, a.spec.BaseBranch, oneLine(a.p.Spec.Revision)), nil
	}
	return a.result(strategy.Closed, pr, a.kept(), "pull request %d was closed unmerged", pr.Number), nil
}

func isFailure(err error) bool {
	var known *failure
	return errors.As(err, &known)
}

// withdraw closes the open pull requests of a superseded promotion, of promotions with
// lower numbers, and of its own attempts before a retry. A pull request that the next
// promotion has adopted meanwhile stays open.
func (a *act) withdraw(ctx context.Context, why string) error {
	prs, err := a.find(ctx)
	if err != nil {
		return err
	}
	for _, pr := range prs {
		if pr.State != provider.Open || !a.owns(pr) {
			continue
		}
		if _, err := a.provider.Close(ctx, pr.Number, provider.Closing{Comment: comment(a.p, why), Still: a.owns}); err != nil {
			return err
		}
	}
	return nil
}

// owns reports whether a pull request belongs to this promotion or to an earlier one.
func (a *act) owns(pr provider.PullRequest) bool {
	whose := a.whose(pr)
	return whose == mine || whose == older
}
