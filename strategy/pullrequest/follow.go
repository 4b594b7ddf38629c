package pullrequest

import (
	"context"
	"errors"
	"strings"

	"github.com/capstan-hub/capstan/strategy"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider"
)

// follow looks at the pull request that the status knows. It reads only.
func (a *act) follow(ctx context.Context) (strategy.Result, error) {
	kept := a.kept()
	pr, err := a.provider.Get(ctx, kept.Number)
	switch {
	case errors.Is(err, provider.ErrNotFound):
		return strategy.Result{State: strategy.Due, Message: "the pull request is gone"}, nil
	case err != nil:
		return strategy.Result{}, err
	}
	switch a.whose(pr) {
	case newer:
		return a.open(pr, kept), nil // the hub sees the newer promotion as soon as it looks
	case foreign:
		return strategy.Result{}, a.taken(pr)
	case older:
		return strategy.Result{State: strategy.Due, Message: "the pull request was changed back to an earlier promotion's"}, nil
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
		kept.ForeignSHA = "" // whoever added commits has taken them back
	case head != "" && head != kept.ForeignSHA:
		return strategy.Result{State: strategy.Due, Message: "the branch has another commit at its head"}, nil
	}
	if kept.ForeignSHA != "" {
		return a.open(pr, kept), nil
	}
	if a.spec.AutoMerge {
		return strategy.Result{State: strategy.Due, Message: "it is to be merged"}, nil
	}
	if a.looks.due(a.p.UID) {
		began := a.o.Clock.Now()
		base, fits, err := a.compare(ctx, kept.BaseSHA)
		if err != nil {
			return strategy.Result{}, err
		}
		if !fits {
			return strategy.Result{State: strategy.Due, Message: "the base branch has changed what it edits"}, nil
		}
		kept.BaseSHA = base
		a.looks.looked(a.p.UID, a.o.Clock.Since(began))
	}
	return a.open(pr, kept), nil
}

// compare an open pull request with the base branch; fits when its branch need not
// be rebuilt.
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

// closed tells a pull request that a person rejected from one whose change was
// carried into the base by another way.
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

// withdraw closes what a superseded promotion has open, and what those before it
// left to it: the promotions of lower numbers, or its own lives before a retry. What
// the next promotion makes its own meanwhile is left to it.
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

// owns tells whether a pull request is this promotion's, or was left to it.
func (a *act) owns(pr provider.PullRequest) bool {
	whose := a.whose(pr)
	return whose == mine || whose == older
}
