package pullrequest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
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
		return strategy.Result{}, higher(nil, readClaim(pr.Body))
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

// baseHasRevision reports whether the base branch has the revision at every marker.
func (a *act) baseHasRevision(ctx context.Context) (has bool, err error) {
	err = a.clone(ctx, func(ctx context.Context, c *gitrepo.Clone) error {
		base, err := a.base(c)
		if err != nil {
			return err
		}
		if known := a.p.Status.PullRequest; known != nil && known.BaseSHA == base.String() {
			return nil // The pull request changes something at this commit.
		}
		if err := c.Fetch(ctx, 1, base); err != nil {
			return err
		}
		e, err := a.edits(ctx, c, base)
		has = err == nil && e.empty()
		return err
	})
	return has, err
}

// terminal reports whether no repetition can fix an error.
func terminal(err error) bool {
	var known *failure
	return errors.As(err, &known) || judge(err) != nil
}

// withdraw closes the open pull requests of a superseded promotion, of promotions with
// lower numbers, and of its own attempts before a retry. A pull request that the next
// promotion has adopted meanwhile stays open. So does the own one of a promotion that
// succeeded, as long as the base branch does not have the revision: people changed the
// environment, and Git still has another revision. When none is left open, it deletes the
// branch.
func (a *act) withdraw(ctx context.Context, why string) (stillNeeded string, err error) {
	prs, err := a.find(ctx)
	if err != nil {
		return "", err
	}
	for _, pr := range prs {
		if pr.State != provider.Open || !a.owns(pr) || a.p.Status.Phase == capstanv1.PhaseRejected {
			continue // A person who closed a pull request may have opened it again.
		}
		if a.p.Status.Phase == capstanv1.PhaseSucceeded && a.whose(pr) == mine {
			switch needed, err := a.needed(ctx, pr); {
			case err != nil:
				return "", err
			case needed:
				stillNeeded = fmt.Sprintf("branch %s does not have %s: merge pull request %d, which stays open, or the environment may return to the revision in Git",
					a.spec.BaseBranch, oneLine(a.p.Spec.Revision), pr.Number)
				continue
			}
		}
		if _, err := a.provider.Close(ctx, pr.Number, provider.Closing{Comment: comment(a.p, why), Still: a.owns}); err != nil {
			return "", err
		}
	}
	if stillNeeded != "" || a.spec.KeepBranch {
		return stillNeeded, nil
	}
	return "", a.deleteBranch(ctx)
}

// needed reports whether the base branch lacks the revision of the promotion's open pull
// request, and says so in the pull request. A newer promotion decides about it itself.
func (a *act) needed(ctx context.Context, pr provider.PullRequest) (bool, error) {
	has, err := a.baseHasRevision(ctx)
	if has || err != nil && !onlyEdit(err) {
		return false, err
	}
	text := noted(a.p, pr.Body)
	limit := a.provider.Limits().Body
	if text == pr.Body || limit > 0 && utf8.RuneCountInString(text) > limit {
		return true, nil
	}
	switch err := a.outranked(ctx); {
	case errors.Is(err, errOutranked):
		return true, nil
	case err != nil:
		return false, err
	}
	_, err = a.provider.Update(ctx, pr.Number, provider.Edit{Body: &text})
	return true, err
}

// onlyEdit reports whether an error is about the files of the base branch, such as a missing
// marker: the branch then does not have the revision.
func onlyEdit(err error) bool {
	var service *provider.Error
	var git *gitrepo.Error
	return terminal(err) && !errors.As(err, &service) && !errors.As(err, &git)
}

// owns reports whether a pull request belongs to this promotion or to an earlier one.
func (a *act) owns(pr provider.PullRequest) bool {
	whose := a.whose(pr)
	return whose == mine || whose == older
}
