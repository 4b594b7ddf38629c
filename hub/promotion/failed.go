package promotion

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/internal/backoff"
	"github.com/capstan-hub/capstan/strategy"
)

// followFailed is the time between two checks of the open pull request of a failed
// promotion. A user may merge or close it, and no other work depends on a fast answer.
const followFailed = 15 * time.Minute

// terminal returns the error that ends a promotion, at once or after its patience; nil for
// every other error.
func terminal(err error) *strategy.TerminalError {
	var t *strategy.TerminalError
	if errors.As(err, &t) {
		return t
	}
	return nil
}

// countFailure counts a failure that ends the promotion, or will end it if it is repeated.
// Other failures neither count nor end the sequence: a service that responds with 503 has
// not accepted the credentials.
func (r *Reconciler) countFailure(p *capstanv1.Promotion, cause error) {
	t := terminal(cause)
	if t == nil {
		return
	}
	if p.Status.Failure == nil {
		p.Status.Failure = &capstanv1.PromotionFailure{FirstTime: metav1.NewMicroTime(r.Clock.Now())}
	}
	p.Status.Failure.Reason = t.Reason
	p.Status.Failure.Count++
	p.Status.Secret = t.Secret
}

// skipBackoff ends the wait for the next attempt, and for the next check of a pull request,
// when the Secret was changed with which the last one failed.
func (r *Reconciler) skipBackoff(p *capstanv1.Promotion, v view) {
	if !v.secretChanged || p.Status.Secret == nil || p.Status.Phase.Finished() {
		return
	}
	p.Status.Secret = nil
	r.follows.forget(p.UID)
	r.shown.forget(p.UID)
	if a := p.Status.Attempt; a != nil && a.Error != "" { // Without an error, the attempt may still run.
		a.NextAttemptTime = metav1.NewMicroTime(r.Clock.Now())
	}
}

// impossible ends the promotion if its cause was repeated for its patience, and returns
// true; false if the promotion is retried.
func (r *Reconciler) impossible(p *capstanv1.Promotion, v view, cause error) bool {
	t := terminal(cause)
	if t == nil || !t.Patience.Ends(p.Status.Failure.Count, r.Clock.Since(p.Status.Failure.FirstTime.Time)) {
		return false
	}
	r.advance(p, v, decision.OutcomeImpossible, t.Reason, failedMessage(p, t))
	if p.Status.Phase == capstanv1.PhaseFailed {
		r.recordFailure(p, t)
	}
	return true
}

// failedAgain puts the failure of another try of a failed promotion into the status.
func (r *Reconciler) failedAgain(p *capstanv1.Promotion, cause error) {
	t := terminal(cause)
	if t == nil {
		// The service does not respond at present. The last failure is still the reason.
		p.Status.Attempt.Error = cut(cause.Error())
		r.scheduleTry(p)
		return
	}
	p.Status.Reason, p.Status.Message = t.Reason, failedMessage(p, t)
	r.recordFailure(p, t)
	r.conditions(p, metav1.NewTime(r.Clock.Now()))
}

// recordFailure records the end of the attempt, and the time of another try.
func (r *Reconciler) recordFailure(p *capstanv1.Promotion, t *strategy.TerminalError) {
	if p.Status.Attempt != nil {
		p.Status.Attempt.Error = cut(t.Error())
		p.Status.Attempt.NextAttemptTime = metav1.NewMicroTime(r.Clock.Now()) // It has ended.
	}
	p.Status.Failure.RetryTime = nil
	if t.TryAgain {
		r.scheduleTry(p)
	}
}

func (r *Reconciler) scheduleTry(p *capstanv1.Promotion) {
	if p.Status.Failure == nil { // An earlier version of the hub wrote the failure.
		p.Status.Failure = &capstanv1.PromotionFailure{Reason: p.Status.Reason, Count: 1, FirstTime: metav1.NewMicroTime(r.Clock.Now())}
	}
	next := metav1.NewMicroTime(r.Clock.Now().Add(strategy.TryAgainEvery + jitter(p, strategy.TryAgainEvery)))
	p.Status.Failure.RetryTime = &next
}

// failedMessage returns the message of a failed promotion: the cause, and what starts it
// again.
func failedMessage(p *capstanv1.Promotion, t *strategy.TerminalError) string {
	retry := fmt.Sprintf("raise spec.retry of Promotion %s", p.Name)
	var again string
	switch {
	case t.TryAgain && t.Secret != nil:
		again = fmt.Sprintf("; the hub tries again about every hour, and when the Secret %s is changed; to try at once, %s", t.Secret.Name, retry)
	case t.TryAgain:
		again = "; the hub tries again about every hour; to try at once, " + retry
	case t.Secret != nil:
		again = fmt.Sprintf("; it starts again when the Secret %s is changed; if you fix something else, %s", t.Secret.Name, retry)
	default:
		again = fmt.Sprintf("; fix this, then %s (an edit of the Pipeline's strategy starts another promotion)", retry)
	}
	return cut(t.Error()) + again
}

// untilFailed returns the end of the message of a failure that is retried, and that ends
// the promotion if it is repeated: how often it occurred, and when the promotion fails.
func untilFailed(p *capstanv1.Promotion, cause error) string {
	t, f := terminal(cause), p.Status.Failure
	if t == nil || f == nil {
		return ""
	}
	text := fmt.Sprintf("; failures in sequence: %d since %s; the promotion becomes Failed after %d", f.Count, f.FirstTime.UTC().Format(time.RFC3339), t.Patience.Failures)
	if t.Patience.For > 0 {
		text += fmt.Sprintf(" over %d minutes", int(t.Patience.For.Minutes()))
	}
	return text
}

// recovered prepares the status of a failed promotion for another phase. If the promotion
// continues, it is as old as this moment: it was not carried out while it was Failed.
func recovered(p *capstanv1.Promotion, next capstanv1.PromotionPhase, now metav1.Time) {
	p.Status.Secret, p.Status.Failure = nil, nil
	if !next.Finished() {
		p.Status.StartTime, p.Status.FinishTime = &now, nil
	}
}

// obsolete returns whether a promotion that ended would be superseded if it were in flight.
func obsolete(p *capstanv1.Promotion, v view) bool {
	phase, _, _ := decision.Next(capstanv1.PhaseAwaitingMerge, v.facts(p, decision.OutcomeNone))
	return phase == capstanv1.PhaseSuperseded
}

// never is the wait for a try that does not come.
const never = time.Duration(1<<63 - 1)

// untilTryAgain returns the time until a failed promotion is tried again.
func (r *Reconciler) untilTryAgain(p *capstanv1.Promotion) time.Duration {
	longest := strategy.TryAgainEvery + jitter(p, strategy.TryAgainEvery)
	switch f := p.Status.Failure; {
	case f != nil && f.RetryTime != nil:
		return r.waits.left(p.UID, forAnotherTry, f.RetryTime.Time, longest)
	case f == nil && p.Status.FinishTime != nil:
		// An earlier version of the hub wrote the failure. One try tells its class.
		return r.waits.left(p.UID, forAnotherTry, p.Status.FinishTime.Add(longest), longest)
	default:
		return never
	}
}

// tryAgain handles a failed promotion that is not obsolete: it makes another attempt when
// one is due, and until then checks the pull request that may be open.
func (r *Reconciler) tryAgain(ctx context.Context, p *capstanv1.Promotion, v view) (ctrl.Result, error) {
	if v.suspended() {
		return ctrl.Result{}, nil
	}
	left := r.untilTryAgain(p)
	if left <= 0 && v.closed(p) != nil {
		left = never // Until the gates are judged again.
	}
	if left <= 0 {
		return r.attemptWhenDue(ctx, p, func() error { return r.act(ctx, p, capstanv1.PhaseFailed) })
	}
	if way, ok := r.follower(p); ok && p.Status.PullRequest != nil {
		next := r.follows.left(p.UID)
		if next <= 0 {
			leave, ok := r.tenants.enter(client.ObjectKeyFromObject(p))
			if !ok {
				return withoutPlace()
			}
			next = r.follows.later(p.UID, backoff.Spread(followFailed, followJitter, nil))
			if err := r.checkFailed(ctx, way, p, v, leave); err != nil {
				return requeueOnConflict(ctx, err)
			}
		}
		left = min(left, next)
	}
	if left == never {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: max(left, time.Millisecond)}, nil
}

// checkFailed checks the pull request of a failed promotion. Only its end changes the
// promotion: the next try finds out whether an open one can be used.
func (r *Reconciler) checkFailed(ctx context.Context, way strategy.Follower, p *capstanv1.Promotion, v view, leave func()) error {
	result, err := checkPullRequest(ctx, way, p, leave)
	if err != nil {
		return ctx.Err() // The cause of the failure still holds, or another one.
	}
	switch result.State {
	case strategy.Merged, strategy.Closed, strategy.Done, strategy.Unchanged:
		return r.followed(ctx, p, v, result, nil)
	case strategy.Open, strategy.Due:
	}
	return nil
}
