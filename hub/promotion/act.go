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
	// claimMargin is how much longer an attempt holds the place than the strategy
	// may take: for the write of the outcome, and for clocks that differ.
	claimMargin = 5 * time.Second

	// firstBackoff and maxBackoff bound the time after failed attempts, which doubles
	// with each in sequence. A receiver that restarts is back within the first; one that is gone
	// for a day is asked 150 times.
	firstBackoff = 5 * time.Second
	maxBackoff   = 10 * time.Minute

	// maxError is how much of an error is kept in the status, in bytes.
	maxError = 512
)

// outcomeBackoff is for the write of an outcome: what was done outside must not
// be forgotten for a moment's trouble of the API server. Some 6 s in all.
var outcomeBackoff = wait.Backoff{Steps: 8, Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.1}

// untilNextAttempt is how long to wait before another attempt may be made.
func (r *Reconciler) untilNextAttempt(p *capstanv1.Promotion) time.Duration {
	if p.Status.Attempt == nil {
		return 0
	}
	return p.Status.Attempt.NextAttemptTime.Sub(r.Clock.Now())
}

// act makes one attempt, if the promotion is in the phase still: look again, claim,
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
	r.live(p, v, decision.OutcomeNone, "", "")
	if p.UID != cached.UID || p.Status.Phase != phase || v.suspended() || r.untilNextAttempt(p) > 0 {
		return r.write(ctx, before, p)
	}

	way, err := r.Strategies.For(p)
	if err != nil {
		return r.record(ctx, before, p, r.came(ctx, strategy.Result{}, err))
	}
	r.claim(p, way.Deadline())
	if err := r.write(ctx, before, p); err != nil {
		return err
	}
	result, err := r.carryOut(ctx, way, p)
	return r.record(ctx, p.DeepCopy(), p, r.came(ctx, result, err))
}

// claim writes the attempt before it is made.
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
		return // What it waits for, or why it ended, tells more.
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

// came puts what an attempt came to into a status.
func (r *Reconciler) came(ctx context.Context, result strategy.Result, cause error) func(*capstanv1.Promotion, view) {
	return func(p *capstanv1.Promotion, v view) { r.outcome(ctx, p, v, result, cause) }
}

// record writes what came of an attempt, on the attempt's own resourceVersion if
// nobody wrote since, and else onto what there is as long as the attempt is ours.
func (r *Reconciler) record(ctx context.Context, before, p *capstanv1.Promotion, came func(*capstanv1.Promotion, view)) error {
	mine := p.Status.Attempt.DeepCopy()
	worthAnother := func(err error) bool { return err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) }
	err := retry.OnError(outcomeBackoff, worthAnother, func() error {
		v, err := r.view(ctx, r.APIReader, p)
		if err != nil {
			return err
		}
		came(p, v)
		err = r.write(ctx, before, p)
		if err == nil {
			return nil
		}
		// Somebody wrote meanwhile (an approval, a retry), or the answer was lost.
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

// sameAttempt tells whether the attempt that stands in the status is still open
// and the one that was made.
func sameAttempt(now, mine *capstanv1.Attempt) bool {
	switch {
	case now == nil || mine == nil:
		return now == nil && mine == nil
	default:
		return now.Number == mine.Number && now.Holder == mine.Holder && now.Error == ""
	}
}

// outcome puts what came of an attempt into the status.
func (r *Reconciler) outcome(ctx context.Context, p *capstanv1.Promotion, v view, result strategy.Result, cause error) {
	if cause == nil {
		p.Status.Attempt.NextAttemptTime = metav1.NewMicroTime(r.Clock.Now()) // It is over: the next need not wait.
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
	r.live(p, v, decision.OutcomeNone, "", "")
	if p.Status.Phase == capstanv1.PhasePromoting || p.Status.Phase == capstanv1.PhaseAwaitingMerge {
		p.Status.Reason = "Retrying"
		p.Status.Message = fmt.Sprintf("attempt %d failed, the next follows in %s: %s", p.Status.Attempt.Number, wait.Round(time.Second), message)
		r.conditions(p, metav1.NewTime(r.Clock.Now()))
	}
}

// reached puts what a strategy has reached into the status.
func (r *Reconciler) reached(p *capstanv1.Promotion, v view, result strategy.Result) {
	before := p.Status.Phase
	p.Status.URL = result.URL
	p.Status.PullRequest = result.PullRequest
	r.live(p, v, outcomeOf(result.State), "", "")
	switch {
	case modified(p):
		p.Status.Reason = branchModified
		p.Status.Message = fmt.Sprintf("%s, and its branch %s has commits that are not the hub's (%s), which the hub leaves alone: merge the pull request, or close it to reject the promotion",
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

// impossible puts an error that no repetition heals into the status; false when it
// is another.
func (r *Reconciler) impossible(p *capstanv1.Promotion, v view, cause error) bool {
	var terminal *strategy.TerminalError
	if !errors.As(cause, &terminal) {
		return false
	}
	r.live(p, v, decision.OutcomeImpossible, terminal.Reason, cut(cause.Error())+mend(p, terminal))
	if p.Status.Phase == capstanv1.PhaseFailed {
		p.Status.Secret = terminal.Secret
	}
	return true
}

// mend is how people have a failed promotion begin again. Of what they mend at a service
// nothing is heard.
func mend(p *capstanv1.Promotion, failed *strategy.TerminalError) string {
	if failed.Secret == nil {
		return fmt.Sprintf("; once that is mended, raise spec.retry of Promotion %s (an edit of the Pipeline's strategy begins another by itself)", p.Name)
	}
	return fmt.Sprintf("; it begins again when the Secret %s is changed; where something else is mended, as rights at the Git service, raise spec.retry of Promotion %s", failed.Secret.Name, p.Name)
}

// postpone the next attempt after one that failed, or that was not made because the
// service is to be left alone.
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

// retryIn doubles with each failure in sequence, up to most, and adds jitter.
func retryIn(p *capstanv1.Promotion, most time.Duration) time.Duration {
	wait := backoff.Policy{First: firstBackoff, Max: most}.Doubled(p.Status.Attempt.Failures - 1)
	return wait + jitter(p, wait)
}

// jitter is up to a fifth of a wait. It is computed from the identity, so promotions
// that failed together are not repeated together, and a repetition of this computation
// returns the same time.
func jitter(p *capstanv1.Promotion, wait time.Duration) time.Duration {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s/%d", p.UID, p.Status.Attempt.Number)
	return wait * time.Duration(h.Sum32()%20) / 100
}

// shortSHA is how much of a commit's hash people are shown.
const shortSHA = 12

// cut shortens an error to what the status keeps.
func cut(s string) string { return truncate.Bytes(s, maxError) }
