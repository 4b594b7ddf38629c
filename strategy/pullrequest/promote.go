package pullrequest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/strategy"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider"
)

// maxRounds is the number of rounds of reading and acting in one attempt, when another
// process or a person changes the pull request meanwhile.
const maxRounds = 3

// errChanged is returned when another process or a person changed the pull request.
var errChanged = errors.New("the pull request was changed meanwhile")

// promote reads the existing pull requests, and creates what is missing.
func (a *act) promote(ctx context.Context) (result strategy.Result, err error) {
	for range maxRounds {
		result, err = a.round(ctx)
		if errors.Is(err, errBehind) {
			a.upToDate = true
			continue
		}
		if !errors.Is(err, errChanged) {
			break
		}
	}
	return result, err
}

func (a *act) round(ctx context.Context) (strategy.Result, error) {
	prs, err := a.find(ctx)
	if err != nil {
		return strategy.Result{}, err
	}
	f, err := a.sift(prs)
	if err != nil {
		return strategy.Result{}, err
	}
	switch {
	case f.merged != nil:
		return a.merged(*f.merged), nil
	case f.open == nil && f.closed != nil:
		result, err := a.closed(ctx, *f.closed)
		switch {
		case err == nil && result.State == strategy.Due:
			return strategy.Result{}, a.reopen(ctx, *f.closed)
		case err == nil && result.State == strategy.Open:
			return strategy.Result{}, errJustClosed
		}
		return result, err
	}
	if f.open != nil && f.mine && a.untouched(*f.open) && !a.upToDate && !a.comparisons.due(a.p.UID) {
		return a.settle(ctx, *f.open, a.kept())
	}
	began := a.o.Clock.Now()
	b, err := a.build(ctx, prs, f.open != nil && f.mine)
	if err != nil {
		return strategy.Result{}, err
	}
	a.comparisons.done(a.p.UID, a.o.Clock.Since(began))
	switch {
	case b.nothing:
		return a.nothing(ctx, f.open)
	case b.unchanged:
		return a.nothingNew(f.open), nil
	case b.foreign:
		kept := a.kept()
		kept.ForeignSHA = b.head.String() // BaseSHA stays the base that the hub's commit was last compared with.
		return a.open(*f.open, kept), nil
	}
	pr, err := a.ensure(ctx, f, b)
	switch {
	case err != nil:
		return strategy.Result{}, err
	case !f.mine && pr.HeadSHA != "" && !strings.EqualFold(pr.HeadSHA, b.head.String()):
		// A person has added a commit since the push, or the service is not up to date. The
		// next round reads Git to find which, now that this promotion owns the pull request.
		return strategy.Result{}, errChanged
	}
	return a.settle(ctx, pr, capstanv1.PullRequestStatus{HeadSHA: b.head.String(), BaseSHA: b.base.String()})
}

// find returns all pull requests of the branch, and the one in the status, whose base
// people may have changed.
func (a *act) find(ctx context.Context) ([]provider.PullRequest, error) {
	prs, err := a.provider.Find(ctx, provider.Query{Head: a.branch, Base: a.spec.BaseBranch})
	if err != nil {
		return nil, err
	}
	known := a.p.Status.PullRequest
	if known == nil || slices.ContainsFunc(prs, func(pr provider.PullRequest) bool { return pr.Number == known.Number }) {
		return prs, nil
	}
	pr, err := a.provider.Get(ctx, known.Number)
	switch {
	case errors.Is(err, provider.ErrNotFound):
		return prs, nil
	case err != nil:
		return nil, err
	}
	return append(prs, pr), nil
}

// sifted has the pull requests that concern the promotion.
type sifted struct {
	merged, closed *provider.PullRequest
	// open is the open one to use; mine is true if it already belongs to this promotion.
	open *provider.PullRequest
	mine bool
}

func (a *act) sift(prs []provider.PullRequest) (sifted, error) {
	var f sifted
	var outranked error
	for i := range prs {
		pr := &prs[i]
		whose := a.whose(*pr)
		known := a.p.Status.PullRequest != nil && a.p.Status.PullRequest.Number == pr.Number
		switch {
		case whose == newer:
			outranked = higher(outranked, readClaim(pr.Body))
		case whose == foreign && known, pr.State == provider.Open && readClaim(pr.Body).stranger(a.p):
			return sifted{}, a.taken(*pr)
		case whose == mine && pr.State == provider.Merged:
			f.merged = first(f.merged, pr)
		case whose == mine && pr.State == provider.Closed:
			f.closed = first(f.closed, pr)
		case pr.State == provider.Open && pr.Head == a.branch && (f.open == nil || whose == mine && !f.mine):
			f.open, f.mine = pr, whose == mine
		}
	}
	if outranked != nil {
		return sifted{}, outranked
	}
	return f, nil
}

func first(found, candidate *provider.PullRequest) *provider.PullRequest {
	if found != nil {
		return found
	}
	return candidate
}

func (a *act) taken(pr provider.PullRequest) error {
	by := readClaim(pr.Body)
	return fail(ReasonBranchTaken, "pull request %d belongs to another Pipeline %s (UID %s): two hubs, or two Pipelines, use the branch %s; rename one of them",
		pr.Number, oneLine(by.pipeline), by.pipelineUID, a.branch)
}

// untouched reports whether an open pull request is as the status records it.
func (a *act) untouched(pr provider.PullRequest) bool {
	kept := a.p.Status.PullRequest
	return kept != nil && kept.Number == pr.Number && kept.ForeignSHA == "" && strings.EqualFold(kept.HeadSHA, pr.HeadSHA)
}

// ensure returns an open pull request that belongs to the promotion; it creates or adopts
// one if necessary.
func (a *act) ensure(ctx context.Context, f sifted, b built) (provider.PullRequest, error) {
	if f.open != nil && f.mine {
		return *f.open, nil
	}
	if err := a.may(ctx, strategy.StepOpen); err != nil {
		return provider.PullRequest{}, err
	}
	limits := a.provider.Limits()
	subject, text := fit(title(a.p), limits.Title), fitBody(body(a.p, b.places), limits)
	if f.open != nil {
		return a.adopt(ctx, *f.open, provider.Edit{Title: &subject, Body: &text})
	}
	pr, err := a.provider.Create(ctx, provider.NewPullRequest{Head: a.branch, Base: a.spec.BaseBranch, Title: subject, Body: text})
	switch {
	case errors.Is(err, provider.ErrAlreadyExists):
		return pr, errChanged
	}
	return pr, err
}

// adopt takes over an open pull request of an earlier promotion, or one without owner. If
// it was closed or merged meanwhile, it did not belong to this promotion at that time. Its
// old text is restored: with this promotion's claim it would count as a rejection, or as a
// merge, of this promotion.
func (a *act) adopt(ctx context.Context, was provider.PullRequest, claim provider.Edit) (provider.PullRequest, error) {
	pr, err := a.provider.Update(ctx, was.Number, claim)
	switch {
	case errors.Is(err, provider.ErrConflict):
		return pr, errChanged
	case err != nil || pr.State == provider.Open:
		return pr, err
	}
	if _, err := a.provider.Update(ctx, was.Number, provider.Edit{Title: &was.Title, Body: &was.Body}); err != nil {
		return pr, err
	}
	return pr, errChanged
}

// settle does the remaining work at an open pull request of the promotion: labels and
// reviewers if it is not recorded in the status yet, and the merge.
func (a *act) settle(ctx context.Context, pr provider.PullRequest, kept capstanv1.PullRequestStatus) (strategy.Result, error) {
	var notes []string
	if a.p.Status.PullRequest == nil {
		var err error
		if notes, err = a.decorate(ctx, pr); err != nil {
			return strategy.Result{}, err
		}
	}
	result := a.open(pr, kept)
	if a.spec.AutoMerge {
		merged, note, err := a.merge(ctx, pr, kept.HeadSHA)
		switch {
		case err != nil:
			return strategy.Result{}, err
		case merged.State == provider.Merged:
			return a.merged(merged), nil
		}
		notes = append(notes, note)
	}
	result.Message = strings.Join(append([]string{result.Message}, notes...), "; ")
	return result, nil
}

// decorate adds labels and reviewers. If a service refuses one of them, the promotion
// continues.
func (a *act) decorate(ctx context.Context, pr provider.PullRequest) (notes []string, err error) {
	if len(a.spec.Labels) > 0 {
		err := a.provider.AddLabels(ctx, pr.Number, a.spec.Labels)
		if err != nil && judge(err) == nil {
			return nil, err
		}
		if err != nil {
			notes = append(notes, "without labels: "+err.Error())
		}
	}
	if len(a.spec.Reviewers) > 0 {
		err := a.provider.RequestReviews(ctx, pr.Number, a.spec.Reviewers)
		if err != nil && judge(err) == nil {
			return nil, err
		}
		if err != nil {
			notes = append(notes, "without reviewers: "+err.Error())
		}
	}
	return notes, nil
}

// merge merges the pull request if the service allows it and its head is the hub's own
// commit. A refusal, or a gate that
// is closed, is not an error: the next poll tries again.
func (a *act) merge(ctx context.Context, pr provider.PullRequest, head string) (provider.PullRequest, string, error) {
	var held *strategy.HeldError
	switch err := a.may(ctx, strategy.StepMerge); {
	case errors.As(err, &held):
		return pr, held.Error(), nil
	case err != nil:
		return pr, "", err
	}
	merged, err := a.provider.Merge(ctx, pr.Number, provider.MergeOptions{HeadSHA: head, Message: message(a.p)})
	if err != nil {
		a.pace.note(a.o.Clock.Now(), err)
		if a.behind(err) {
			return pr, "", errBehind
		}
		return pr, "not merged yet: " + err.Error(), nil
	}
	if merged.State == provider.Open {
		return merged, "the service is merging it", nil
	}
	return merged, "", nil
}

func (a *act) merged(pr provider.PullRequest) strategy.Result {
	if pr.Base != a.spec.BaseBranch {
		return a.result(strategy.Closed, pr, a.kept(), "pull request %d was merged into %s, not into %s", pr.Number, oneLine(pr.Base), a.spec.BaseBranch)
	}
	return a.result(strategy.Merged, pr, a.kept(), "pull request %d was merged", pr.Number)
}

func (a *act) open(pr provider.PullRequest, kept capstanv1.PullRequestStatus) strategy.Result {
	return a.result(strategy.Open, pr, kept, "pull request %d is open", pr.Number)
}

// nothing handles a base that already has the revision. It closes an open pull request of
// the promotion, which would have nothing to merge.
func (a *act) nothing(ctx context.Context, open *provider.PullRequest) (strategy.Result, error) {
	why := fmt.Sprintf("branch %s has %s already", a.spec.BaseBranch, oneLine(a.p.Spec.Revision))
	if open == nil {
		return strategy.Result{State: strategy.Done, Message: why + "; no pull request was needed"}, nil
	}
	if a.owns(*open) {
		if err := a.outranked(ctx); err != nil {
			return strategy.Result{}, err
		}
		if _, err := a.provider.Close(ctx, open.Number, provider.Closing{Comment: comment(a.p, why), Still: a.owns}); err != nil {
			return strategy.Result{}, err
		}
	}
	result := a.result(strategy.Done, *open, a.kept(), "%s; pull request %d had nothing left to change", why, open.Number)
	return result, nil
}

// comment returns the comment with which a pull request is closed.
func comment(p *capstanv1.Promotion, why string) string {
	return fmt.Sprintf("Capstan closes this pull request: %s. (Promotion %s, number %d)", codeUpTo(maxWhy, why), code(p.Namespace+"/"+p.Name), p.Spec.Number)
}
