package pullrequest

import (
	"context"
	"errors"

	"github.com/capstan-hub/capstan/strategy"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider"
)

// errJustClosed ends an attempt while the service may not have recorded yet why it closed the
// pull request. Another round at once would only clone again.
var errJustClosed = errors.New("the pull request was closed a moment ago; the next attempt finds out why")

// closed distinguishes a pull request that a person rejected from one whose change reached
// the base in another way, and from one that the service closed late. The result for the last
// is Due: it must be opened again. It is Open as long as the service may not have recorded why
// it closed the pull request.
//
// It reads the events of the pull request after the clone, so that the service had time to
// record them.
func (a *act) closed(ctx context.Context, pr provider.PullRequest) (strategy.Result, error) {
	elsewhere, err := a.baseHasRevision(ctx)
	if err != nil && !terminal(err) {
		return strategy.Result{}, err
	}
	if elsewhere {
		return a.result(strategy.Done, pr, a.kept(), "pull request %d was closed, and branch %s has %s", pr.Number, a.spec.BaseBranch, oneLine(a.p.Spec.Revision)), nil
	}
	closure, err := a.provider.Closure(ctx, pr.Number)
	if err != nil && judge(err) == nil {
		return strategy.Result{}, err
	}
	if closure == provider.ByDeletion || closure == provider.Unclear {
		stands, err := a.branchStands(ctx)
		switch {
		case err != nil:
			return strategy.Result{}, err
		case stands && closure == provider.Unclear:
			return a.result(strategy.Open, pr, a.kept(), "pull request %d was closed a moment ago; the next check finds out why", pr.Number), nil
		case stands:
			return strategy.Result{State: strategy.Due, Message: "the service closed the pull request because of an earlier deletion of its branch"}, nil
		}
	}
	return a.result(strategy.Closed, pr, a.kept(), "pull request %d was closed unmerged", pr.Number), nil
}

// branchStands reports whether the branch has the promotion's commit. A branch that was deleted
// and has it was pushed again after the deletion: no person rejected the pull request by
// deleting the branch.
func (a *act) branchStands(ctx context.Context) (stands bool, err error) {
	err = a.clone(ctx, func(ctx context.Context, c *gitrepo.Clone) error {
		head, err := a.head(ctx, c)
		if err != nil || head == nil {
			return err
		}
		stands = ownCommit(*head) && readClaim(head.Message).relationTo(a.p) == mine
		return nil
	})
	return stands, err
}

// reopen opens a pull request again that the service closed late. It returns errChanged: the
// next round reads what there is now.
func (a *act) reopen(ctx context.Context, pr provider.PullRequest) error {
	if err := a.may(ctx, strategy.StepOpen); err != nil {
		return err
	}
	if _, err := a.provider.Reopen(ctx, pr.Number); err != nil {
		return err
	}
	return errChanged
}
