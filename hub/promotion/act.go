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

	// firstBackoff and maxBackoff bound the wait after a failed attempt, which doubles with
	// each failure in sequence. A receiver that restarts is reachable again after the first
	// wait; one that is unreachable for a day receives 150 requests.
	firstBackoff = 5 * time.Second
	maxBackoff   = 10 * time.Minute

	// maxError is how much of an error is kept in the status, in bytes.
	maxError = 512
)

// outcomeBackoff is for the write of an outcome: a short failure of the API server must
// not lose the outcome of an attempt. It takes about 6 s in total.
var outcomeBackoff = wait.Backoff{Steps: 8, Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.1}

// untilNextAttempt returns the time until another attempt may start.
func (r *Reconciler) untilNextAttempt(p *capstanv1.Promotion) time.Duration {
	if p.Status.Attempt == nil {
		return 0
	}
	return p.Status.Attempt.NextAttemptTime.Sub(r.Clock.Now())
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
	before := p.DeepCopy()
	r.advance(p, v, decision.OutcomeNone, "", "")
	if p.UID != cached.UID || p.Status.Phase != phase || v.suspended() || r.untilNextAttempt(p) > 0 {
		return r.write(ctx, before, p)
	}

	way, err := r.Strategies.For(p)
	if err != nil {
		return r.record(ctx, before, p, r.outcomeWriter(ctx, strategy.Result{}, err))
	}
	r.claim(p, way.Deadline())
	if err := r.write(ctx, before, p); err != nil {
		return err
	}
	result, err := r.carryOut(ctx, way, p)
	return r.record(ctx, p.DeepCopy(), p, r.outcomeWriter(ctx, result, err))
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

func (r *Reconciler) carryOut(ctx context.Context, way strategy.Strategy, p *capstanv1.Promotion) (strategy.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, way.Deadline())
	defer cancel()
	started := r.Clock.Now()
	result, err := way.Promote(ctx, p.DeepCopy())
	r.metrics.attempts.WithLabelValues(way.Name(), verdict(err)).Inc()
	r.metrics.attemptSeconds.WithLabelValues(way.Name()).Observe(r.Clock.Since(started).Seconds())
	return result, err
}

func verdict(err error) string {
	var terminal *strategy.TerminalError
	switch {
	case err == nil:
		return "done"
	case errors.As(err, &terminal):
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
	if cause == nil {
		p.Status.Attempt.NextAttemptTime = metav1.NewMicroTime(r.Clock.Now()) // It has ended: the next need not wait.
		p.Status.Attempt.Failures = 0
		r.reached(p, v, result)
		return
	}
	if r.impossible(p, v, cause) {
		return
	}
	message := cut(cause.Error())
	log.FromContext(ctx).Info("an attempt failed, another follows", "attempt", p.Status.Attempt.Number, "error", message)
	wait := postpone(p, cause, maxBackoff, r.Clock.Now())
	r.advance(p, v, decision.OutcomeNone, "", "")
	if p.Status.Phase == capstanv1.PhasePromoting || p.Status.Phase == capstanv1.PhaseAwaitingMerge {
		p.Status.Reason = "Retrying"
		p.Status.Message = fmt.Sprintf("attempt %d failed, the next follows in %s: %s", p.Status.Attempt.Number, wait.Round(time.Second), message)
		r.conditions(p, metav1.NewTime(r.Clock.Now()))
	}
}

// reached puts the result of a strategy into the status.
func (r *Reconciler) reached(p *capstanv1.Promotion, v view, result strategy.Result) {
	before := p.Status.Phase
	p.Status.URL = result.URL
	p.Status.PullRequest = result.PullRequest
	r.advance(p, v, outcomeOf(result.State), "", "")
	switch {
	case modified(p):
		p.Status.Reason = branchModified
		p.Status.Message = fmt.Sprintf("%s, and its branch %s has commits that are not the hub's (%s). The hub does not change them: merge the pull request, or close it to reject the promotion",
			result.Message, p.Status.PullRequest.Branch, truncate.Prefix(p.Status.PullRequest.ForeignSHA, shortSHA))
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

// impossible puts an error that a repetition cannot fix into the status, and returns true;
// false for another error.
func (r *Reconciler) impossible(p *capstanv1.Promotion, v view, cause error) bool {
	var terminal *strategy.TerminalError
	if !errors.As(cause, &terminal) {
		return false
	}
	r.advance(p, v, decision.OutcomeImpossible, terminal.Reason, cut(cause.Error())+howToRestart(p, terminal))
	if p.Status.Phase == capstanv1.PhaseFailed {
		p.Status.Secret = terminal.Secret
	}
	return true
}

// howToRestart says how a user starts a failed promotion again. The hub does not notice
// what a user fixes at a service.
func howToRestart(p *capstanv1.Promotion, failed *strategy.TerminalError) string {
	if failed.Secret == nil {
		return fmt.Sprintf("; fix this, then raise spec.retry of Promotion %s (an edit of the Pipeline's strategy starts another promotion)", p.Name)
	}
	return fmt.Sprintf("; it starts again when the Secret %s is changed; if you fix something else, such as permissions at the Git service, raise spec.retry of Promotion %s", failed.Secret.Name, p.Name)
}

// postpone sets the time of the next attempt after one that failed, or that was not made
// because the service requested a wait. It returns the wait, which is at most most unless
// the service requested longer.
func postpone(p *capstanv1.Promotion, cause error, most time.Duration, now time.Time) time.Duration {
	var after *strategy.RetryAfterError
	wait := firstBackoff
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
	wait := backoff.Policy{First: firstBackoff, Max: most}.Doubled(p.Status.Attempt.Failures - 1)
	return wait + jitter(p, wait)
}

// jitter returns up to a fifth of a wait. It is computed from the identity of the
// promotion, so promotions that failed together are not repeated together, and a second
// computation returns the same value.
func jitter(p *capstanv1.Promotion, wait time.Duration) time.Duration {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s/%d", p.UID, p.Status.Attempt.Number)
	return wait * time.Duration(h.Sum32()%20) / 100
}

// shortSHA is how many characters of a commit hash messages show.
const shortSHA = 12

// cut shortens an error to what the status keeps.
func cut(s string) string { return truncate.Bytes(s, maxError) }
