package promotion

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/internal/backoff"
	"github.com/capstan-hub/capstan/internal/truncate"
	"github.com/capstan-hub/capstan/strategy"
)

const (
	// claimMargin is how much longer an attempt blocks others than the strategy may take:
	// for the write of the outcome, and for clocks that differ.
	claimMargin = 5 * time.Second

	// heldDelay is the wait after a step was held for a cause that the cache does not have.
	heldDelay = 2 * time.Second

	// maxError is how much of an error is kept in the status, in bytes.
	maxError = 512
)

// recordTimeout bounds the record of an attempt with all its retries. It is shorter than the
// time that a pod has to end.
const recordTimeout = 10 * time.Second

// outcomeBackoff is for the write of an outcome: a short failure of the API server must
// not lose the outcome of an attempt. It takes about 6 s in total.
var outcomeBackoff = wait.Backoff{Steps: 8, Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.1}

// untilFree returns the time until no other promotion into the environment makes an attempt.
// Notifications of two revisions at a time could arrive in the wrong order. Pull requests
// need no such wait: a branch that belongs to a higher number is not changed.
func (r *Reconciler) untilFree(p *capstanv1.Promotion, v view) time.Duration {
	if p.Spec.Strategy.Notification == nil {
		return 0
	}
	until := v.ledger.BusyUntil(decision.EntryOf(p))
	if until.IsZero() {
		return 0
	}
	longest := time.Duration(0)
	for _, way := range r.Strategies {
		longest = max(longest, way.Deadline()+claimMargin)
	}
	return r.waits.left(p.UID, forOthers, until, longest)
}

// untilNextAttempt returns the time until another attempt may start.
func (r *Reconciler) untilNextAttempt(p *capstanv1.Promotion) time.Duration {
	if p.Status.Attempt == nil {
		return r.waits.held(p.UID)
	}
	a := p.Status.Attempt
	return max(r.waits.held(p.UID), r.waits.left(p.UID, forAttempt, a.NextAttemptTime.Time, a.NextAttemptTime.Sub(a.StartTime.Time)))
}

// act makes one attempt, if the promotion is still in the phase: read uncached, claim,
// carry out, record.
func (r *Reconciler) act(ctx context.Context, cached *capstanv1.Promotion, phase capstanv1.PromotionPhase) error {
	p := &capstanv1.Promotion{}
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(cached), p); err != nil {
		return err
	}
	v, err := r.view(ctx, r.APIReader, p)
	if err != nil {
		return err
	}
	if v.pruned() {
		return errPruned
	}
	before := p.DeepCopy()
	r.advance(p, v, decision.OutcomeNone, "", "")
	if p.UID != cached.UID || p.Status.Phase != phase || v.suspended() || v.closed(p) != nil || r.untilNextAttempt(p) > 0 || r.untilFree(p, v) > 0 ||
		phase == capstanv1.PhaseFailed && (obsolete(p, v) || r.untilTryAgain(p) > 0) {
		return r.write(ctx, before, p)
	}

	way, err := r.Strategies.For(p)
	if err != nil {
		return r.record(ctx, before, p, r.outcomeWriter(ctx, strategy.Result{}, err))
	}
	last, repeats := p.Status.Attempt.DeepCopy(), maybeSent(p)
	r.claim(p, way.Deadline())
	if err := r.write(ctx, before, p); err != nil {
		return err
	}
	allowed := &permission{r: r, p: p.DeepCopy(), repeats: repeats}
	result, err := r.carryOut(ctx, way, p, allowed.permit)
	var outranked *strategy.OutrankedError
	if errors.As(err, &outranked) {
		if failed := r.renumber(ctx, p, outranked); failed != nil {
			err = errors.Join(err, failed)
		}
	}
	ctx, done := untilRecorded(ctx)
	defer done()
	var held *strategy.HeldError
	if errors.As(err, &held) {
		return r.record(ctx, p.DeepCopy(), p, func(p *capstanv1.Promotion, v view) { r.heldBack(ctx, p, v, held, last, allowed.taken) })
	}
	return r.record(ctx, p.DeepCopy(), p, r.outcomeWriter(ctx, result, err))
}

// heldBack puts into the status that an attempt was held. If no step was taken, it is as if there had
// been no attempt since the last one: what that may have sent is still not known. Else the attempt
// has ended, and the next one continues when the gates are open.
func (r *Reconciler) heldBack(ctx context.Context, p *capstanv1.Promotion, v view, held *strategy.HeldError, last *capstanv1.Attempt, taken bool) {
	log.FromContext(ctx).Info("a step of the promotion is held", "step", held.Step, "reason", held.Reason)
	if v.closed(p) == nil { // The cache does not have yet what the permit has read.
		r.waits.hold(p.UID, heldDelay)
	}
	if taken {
		p.Status.Attempt.Error = cut(held.Error())
		p.Status.Attempt.NextAttemptTime = metav1.NewMicroTime(r.Clock.Now())
	} else {
		p.Status.Attempt = last
	}
	r.advance(p, v, decision.OutcomeNone, "", "")
}

// untilRecorded returns a context for the record of an attempt, which also is written while
// the hub ends: without it, the next hub would wait until the deadline of the attempt.
func untilRecorded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
}

// claim sets the attempt in the status, which is written before the attempt is made.
func (r *Reconciler) claim(p *capstanv1.Promotion, deadline time.Duration) {
	now := r.Clock.Now()
	attempt := &capstanv1.Attempt{
		Number: 1, Holder: r.Holder,
		StartTime:       metav1.NewMicroTime(now),
		NextAttemptTime: metav1.NewMicroTime(now.Add(deadline + claimMargin)),
	}
	if last := p.Status.Attempt; last != nil {
		attempt.Number, attempt.Failures = last.Number+1, last.Failures
	}
	p.Status.Attempt = attempt
	if p.Status.Phase != capstanv1.PhasePromoting {
		return // The present message says what it waits for, or why it ended.
	}
	p.Status.Reason, p.Status.Message = "Acting", fmt.Sprintf("attempt %d is under way", attempt.Number)
	r.conditions(p, metav1.NewTime(now))
}

func (r *Reconciler) carryOut(ctx context.Context, way strategy.Strategy, p *capstanv1.Promotion, permit strategy.Permit) (strategy.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, way.Deadline())
	defer cancel()
	started := r.Clock.Now()
	result, err := way.Promote(ctx, p.DeepCopy(), permit)
	var held *strategy.HeldError
	if errors.As(err, &held) {
		return result, err // It is no attempt.
	}
	r.metrics.attempts.WithLabelValues(way.Name(), verdict(err)).Inc()
	r.metrics.attemptSeconds.WithLabelValues(way.Name()).Observe(r.Clock.Since(started).Seconds())
	return result, err
}

func verdict(err error) string {
	switch t := terminal(err); {
	case err == nil:
		return "done"
	case t != nil && t.Patience == (strategy.Patience{}):
		return "impossible"
	default:
		return "failed"
	}
}

// outcomeWriter returns a function that puts the outcome of an attempt into a status.
func (r *Reconciler) outcomeWriter(ctx context.Context, result strategy.Result, cause error) func(*capstanv1.Promotion, view) {
	return func(p *capstanv1.Promotion, v view) { r.outcome(ctx, p, v, result, cause) }
}

// record writes the outcome of an attempt with the resourceVersion of the claim. After a
// conflict it reads the Promotion again, and writes the outcome as long as the status has
// the same attempt.
func (r *Reconciler) record(ctx context.Context, before, p *capstanv1.Promotion, putOutcome func(*capstanv1.Promotion, view)) error {
	mine := p.Status.Attempt.DeepCopy()
	worthAnother := func(err error) bool { return err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) }
	err := retry.OnError(outcomeBackoff, worthAnother, func() error {
		v, err := r.view(ctx, r.APIReader, p)
		if err != nil {
			return err
		}
		putOutcome(p, v)
		err = r.write(ctx, before, p)
		if err == nil {
			return nil
		}
		// The Promotion was written meanwhile (an approval, a retry), or the answer was lost.
		if gerr := r.APIReader.Get(ctx, client.ObjectKeyFromObject(p), p); gerr != nil {
			return gerr
		}
		before = p.DeepCopy()
		if !sameAttempt(p.Status.Attempt, mine) {
			return nil
		}
		return err
	})
	return client.IgnoreNotFound(err)
}

// sameAttempt returns whether the attempt in the status has no outcome yet and is the one
// that was made.
func sameAttempt(now, mine *capstanv1.Attempt) bool {
	switch {
	case now == nil || mine == nil:
		return now == nil && mine == nil
	default:
		return now.Number == mine.Number && now.Holder == mine.Holder && now.Error == ""
	}
}

// outcome puts the outcome of an attempt into the status.
func (r *Reconciler) outcome(ctx context.Context, p *capstanv1.Promotion, v view, result strategy.Result, cause error) {
	now := r.Clock.Now()
	if cause == nil {
		p.Status.Attempt.NextAttemptTime = metav1.NewMicroTime(now) // It has ended: the next need not wait.
		p.Status.Attempt.Failures = 0
		r.reached(p, v, result)
		return
	}
	message := cut(cause.Error())
	r.countFailure(p, cause)
	if p.Status.Phase == capstanv1.PhaseFailed {
		log.FromContext(ctx).Info("a failed promotion was tried again and failed", "attempt", p.Status.Attempt.Number, "error", message)
		r.failedAgain(p, cause)
		return
	}
	if r.impossible(p, v, cause) {
		return
	}
	log.FromContext(ctx).Info("an attempt failed, another follows", "attempt", p.Status.Attempt.Number, "error", message)
	wait := postpone(p, cause, strategy.MaxRetry, now)
	r.advance(p, v, decision.OutcomeNone, "", "")
	if p.Status.Phase == capstanv1.PhasePromoting || p.Status.Phase == capstanv1.PhaseAwaitingMerge {
		p.Status.Reason = retrying
		p.Status.Message = fmt.Sprintf("attempt %d failed, the next follows in %s: %s%s", p.Status.Attempt.Number, wait.Round(time.Second), message, untilFailed(p, cause))
		r.conditions(p, metav1.NewTime(now))
	}
}

// reached puts the result of a strategy into the status.
func (r *Reconciler) reached(p *capstanv1.Promotion, v view, result strategy.Result) {
	before := p.Status.Phase
	if p.Status.Reason == retrying {
		p.Status.Reason = string(decision.PullRequestOpened)
	}
	if before != capstanv1.PhaseFailed { // Of a failed promotion only another phase ends the failure: enter.
		p.Status.Failure, p.Status.Secret = nil, nil
	}
	p.Status.URL = result.URL
	p.Status.PullRequest = result.PullRequest
	r.advance(p, v, outcomeOf(result.State), "", "")
	switch {
	case modified(p):
		p.Status.Reason = branchModified
		p.Status.Message = fmt.Sprintf("%s, and its branch %s has commits that are not the hub's (%s). The hub does not change them: merge the pull request, or close it to reject the promotion",
			result.Message, p.Status.PullRequest.Branch, truncate.Prefix(p.Status.PullRequest.ForeignSHA, shortSHA))
	case p.Status.Phase == capstanv1.PhaseAwaitingMerge && aGateIsClosed(p): // showGates says what it waits for.
		return
	case p.Status.Phase == capstanv1.PhaseAwaitingMerge:
		p.Status.Reason = string(decision.PullRequestOpened)
		p.Status.Message = fmt.Sprintf("%s; %s", result.Message, sentence(p, decision.PullRequestOpened))
	case result.Message != "" && p.Status.Phase != before && !p.Status.Phase.Finished():
		p.Status.Message = fmt.Sprintf("%s; %s", result.Message, p.Status.Message)
	default:
		return
	}
	r.conditions(p, metav1.NewTime(r.Clock.Now()))
}

// postpone sets the time of the next attempt after one that failed, or that was not made
// because the service requested a wait. It returns the wait, which is at most most unless
// the service requested longer.
func postpone(p *capstanv1.Promotion, cause error, most time.Duration, now time.Time) time.Duration {
	var after *strategy.RetryAfterError
	wait := strategy.FirstRetry
	if !errors.As(cause, &after) || !after.Untried {
		p.Status.Attempt.Failures++
		wait = retryIn(p, most)
	}
	if after != nil {
		wait = max(wait, after.After+jitter(p, after.After))
	}
	p.Status.Attempt.Error = cut(cause.Error())
	p.Status.Attempt.NextAttemptTime = metav1.NewMicroTime(now.Add(wait))
	return wait
}

func outcomeOf(s strategy.State) decision.Outcome {
	switch s {
	case strategy.Done:
		return decision.OutcomeDone
	case strategy.Unchanged:
		return decision.OutcomeUnchanged
	case strategy.Open:
		return decision.OutcomeOpen
	case strategy.Merged:
		return decision.OutcomeMerged
	case strategy.Closed:
		return decision.OutcomeClosed
	case strategy.Due:
	}
	return decision.OutcomeNone
}

// retryIn returns a wait that doubles with each failure in sequence, up to most, plus
// jitter.
func retryIn(p *capstanv1.Promotion, most time.Duration) time.Duration {
	wait := doubled(p.Status.Attempt.Failures, most)
	return wait + jitter(p, wait)
}

// doubled returns the wait after so many failures in sequence, up to most.
func doubled(failures int64, most time.Duration) time.Duration {
	return backoff.Policy{First: strategy.FirstRetry, Max: most}.Doubled(failures - 1)
}

// jitter returns up to a fifth of a wait. It is computed from the identity of the
// promotion, so promotions that failed together are not repeated together, and a second
// computation returns the same value.
func jitter(p *capstanv1.Promotion, wait time.Duration) time.Duration {
	number := int64(0)
	if p.Status.Attempt != nil {
		number = p.Status.Attempt.Number
	}
	h := fnv.New32a()
	fmt.Fprintf(h, "%s/%d", p.UID, number)
	return wait * time.Duration(h.Sum32()%20) / 100
}

// retrying is the reason after an attempt or a check that failed and is repeated.
const retrying = "Retrying"

// shortSHA is how many characters of a commit hash messages show.
const shortSHA = 12

// cut shortens an error to what the status keeps.
func cut(s string) string { return truncate.Bytes(s, maxError) }
