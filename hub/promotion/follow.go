package promotion

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/internal/backoff"
	"github.com/capstan-hub/capstan/strategy"
)

const (
	// minFollow and maxFollow bound the time between two checks of a pull request. Between
	// the bounds it is a tenth of the age of the pull request: a merge at once is found
	// soon, and a pull request that is open for days costs one request in five minutes.
	minFollow   = 15 * time.Second
	maxFollow   = 5 * time.Minute
	followShare = 10

	// followJitter is the share of the interval by which a check is earlier or later.
	followJitter = 0.2

	// maxWithdrawBackoff bounds the time between attempts to close the pull request of an
	// ended promotion. No user waits for it, and the cause of a failure may last long.
	maxWithdrawBackoff = time.Hour

	// neededAgain is the time between checks of a pull request that stays open after its
	// promotion succeeded, because Git does not have the revision.
	neededAgain = time.Hour

	// withdrawFor bounds how long after the end of a promotion its pull request is checked
	// and closed. After that, the service or the credentials are not expected to return.
	withdrawFor = 7 * 24 * time.Hour
)

// ReasonNotInGit is the reason of the condition NotInGit, and of an Event when it becomes
// True.
const ReasonNotInGit = "NotInGit"

// follow checks an open pull request when the check is due.
func (r *Reconciler) follow(ctx context.Context, p *capstanv1.Promotion, v view) (ctrl.Result, error) {
	way, ok := r.follower(p)
	if !ok {
		return r.wait(p), nil
	}
	if left := r.follows.left(p.UID); left > 0 {
		return r.sooner(left, p), nil
	}
	leave, ok := r.tenants.enter(client.ObjectKeyFromObject(p))
	if !ok {
		return withoutPlace()
	}
	next := r.follows.checked(p)
	result, err := checkPullRequest(ctx, way, p, leave)
	if ctx.Err() != nil {
		return ctrl.Result{}, ctx.Err()
	}
	var after *strategy.RetryAfterError
	if errors.As(err, &after) {
		next = r.follows.later(p.UID, after.After)
	}
	if terminal(err) != nil && p.Status.Failure != nil {
		next = r.follows.later(p.UID, doubled(p.Status.Failure.Count, strategy.MaxRetry))
	}
	if err == nil && result.State == strategy.Due {
		if v.closed(p) != nil {
			return r.sooner(next, p), nil
		}
		log.FromContext(ctx).V(1).Info("an attempt is due", "why", result.Message)
		return r.attemptWhenDue(ctx, p, func() error { return r.act(ctx, p, capstanv1.PhaseAwaitingMerge) })
	}
	var outranked *strategy.OutrankedError
	if errors.As(err, &outranked) {
		if err := r.renumber(ctx, p, outranked); err != nil {
			return ctrl.Result{}, err
		}
		return r.sooner(next, p), nil // The promotion with the higher number supersedes this one.
	}
	if err := r.followed(ctx, p, v, result, err); err != nil {
		return requeueOnConflict(ctx, err)
	}
	return r.sooner(next, p), nil
}

// checkPullRequest calls Follow, and leaves its place also if Follow panics. An attempt that is due takes
// a place of its own.
func checkPullRequest(ctx context.Context, way strategy.Follower, p *capstanv1.Promotion, leave func()) (strategy.Result, error) {
	defer leave()
	return way.Follow(ctx, p.DeepCopy())
}

// followed writes the result of a check, if it changes the status. An end is decided from
// uncached objects.
func (r *Reconciler) followed(ctx context.Context, cached *capstanv1.Promotion, v view, result strategy.Result, cause error) error {
	before, p := cached, cached.DeepCopy()
	r.applyCheck(ctx, p, v, result, cause)
	if p.Status.Phase != before.Status.Phase {
		now := &capstanv1.Promotion{}
		if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(cached), now); err != nil {
			return err
		}
		if now.UID != cached.UID || now.Status.Phase != cached.Status.Phase || r.untilNextAttempt(now) > 0 {
			return nil // Another hub makes an attempt, or has written an end.
		}
		v, err := r.view(ctx, r.APIReader, now)
		if err != nil {
			return err
		}
		if v.pruned() {
			return errPruned
		}
		before, p = now, now.DeepCopy()
		r.applyCheck(ctx, p, v, result, cause)
	}
	return r.write(ctx, before, p)
}

// applyCheck puts the result of a check into the status.
func (r *Reconciler) applyCheck(ctx context.Context, p *capstanv1.Promotion, v view, result strategy.Result, cause error) {
	if cause != nil {
		r.countFailure(p, cause)
	}
	switch {
	case cause == nil:
		r.reached(p, v, result)
	case r.impossible(p, v, cause):
	case tooOften(cause):
	default:
		message := fmt.Sprintf("the pull request cannot be checked; the hub tries again: %s%s", cut(cause.Error()), untilFailed(p, cause))
		if p.Status.Message != message {
			log.FromContext(ctx).Info("the pull request cannot be checked, another try follows", "error", cut(cause.Error()))
			p.Status.Reason, p.Status.Message = retrying, message
			r.conditions(p, metav1.NewTime(r.Clock.Now()))
		}
	}
}

// tooOften returns whether an error only requests a later call. Its text changes with the
// remaining time, and a user has nothing to do.
func tooOften(err error) bool {
	var after *strategy.RetryAfterError
	return errors.As(err, &after)
}

func (r *Reconciler) follower(p *capstanv1.Promotion) (strategy.Follower, bool) {
	way, err := r.Strategies.For(p)
	if err != nil {
		return nil, false
	}
	f, ok := way.(strategy.Follower)
	return f, ok
}

// sooner requeues at the earlier of next and the time when the promotion is stalled.
func (r *Reconciler) sooner(next time.Duration, p *capstanv1.Promotion) ctrl.Result {
	return within(r.wait(p), max(next, time.Millisecond))
}

// mayBeOpen returns whether a promotion that ended may have left an open pull request or a
// branch: from an attempt, or from an attempt before a retry.
func (r *Reconciler) mayBeOpen(p *capstanv1.Promotion) bool {
	s := &p.Status
	switch {
	case s.Withdrawn, s.Phase != capstanv1.PhaseFailed && s.FinishTime != nil && r.Clock.Since(s.FinishTime.Time) > withdrawFor:
		return false
	case s.Phase == capstanv1.PhaseSuperseded && (s.Attempt != nil || s.PullRequest != nil || s.Retry > 0),
		s.Phase == capstanv1.PhaseSucceeded && (s.Attempt != nil || s.PullRequest != nil),
		s.Phase == capstanv1.PhaseRejected && s.PullRequest != nil && !keepsBranch(p),
		s.Phase == capstanv1.PhaseFailed && s.PullRequest != nil:
		_, ok := r.follower(p)
		return ok
	default:
		return false
	}
}

// leftOpen returns whether a promotion may have an open pull request that must be closed,
// and why. A promotion that succeeded does not need its pull request, unless that was
// merged or Git does not have the revision yet, which the strategy finds. The pull request
// of a promotion that failed stays open, because the promotion may start again, unless it
// would be superseded now.
func (r *Reconciler) leftOpen(p *capstanv1.Promotion, v view) (why string, left bool) {
	if !r.mayBeOpen(p) {
		return "", false
	}
	switch p.Status.Phase { //nolint:exhaustive // The others have no open pull request, or wait.
	case capstanv1.PhaseSuperseded, capstanv1.PhaseRejected: // Of a rejected one, only the branch may be left.
		return p.Status.Message, true
	case capstanv1.PhaseSucceeded:
		return sentence(p, decision.RolledOut) + ", so this pull request is not needed", true
	}
	phase, reason, _ := decision.Next(capstanv1.PhaseAwaitingMerge, v.facts(p, decision.OutcomeNone))
	return sentence(p, reason), phase == capstanv1.PhaseSuperseded
}

func keepsBranch(p *capstanv1.Promotion) bool {
	return p.Spec.Strategy.PullRequest != nil && p.Spec.Strategy.PullRequest.KeepBranch
}

// withdraw makes one attempt to close the pull request that a promotion left open: read
// uncached, claim, close, record.
func (r *Reconciler) withdraw(ctx context.Context, cached *capstanv1.Promotion) error {
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
	way, ok := r.follower(p)
	why, left := r.leftOpen(p, v)
	if p.UID != cached.UID || !ok || !left || v.suspended() || retryDue(p) || r.untilNextAttempt(p) > 0 {
		return nil
	}
	before := p.DeepCopy()
	r.claim(p, way.Deadline())
	if err := r.write(ctx, before, p); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, way.Deadline())
	defer cancel()
	needed, cause := way.Withdraw(limited, p.DeepCopy(), why)
	ctx, done := untilRecorded(ctx)
	defer done()
	return r.record(ctx, p.DeepCopy(), p, func(p *capstanv1.Promotion, _ view) {
		switch {
		case cause == nil && needed != "":
			r.noteNeeded(p, needed)
			return
		case cause == nil:
			p.Status.Withdrawn = true
			meta.RemoveStatusCondition(&p.Status.Conditions, capstanv1.NotInGitCondition)
			log.FromContext(ctx).Info("the promotion has left no pull request open", "url", p.Status.URL)
			return
		}
		wait := postpone(p, cause, maxWithdrawBackoff, r.Clock.Now())
		log.FromContext(ctx).Info("the pull request of the promotion could not be closed, another attempt follows", "in", wait, "error", cut(cause.Error()))
	})
}

// noteNeeded puts into the status of a promotion that succeeded why its pull request stays
// open, and when that is checked again. Phase, reason and message stay: the event of the end
// has them.
func (r *Reconciler) noteNeeded(p *capstanv1.Promotion, needed string) {
	now := r.Clock.Now()
	p.Status.Attempt.Failures = 0
	p.Status.Attempt.NextAttemptTime = metav1.NewMicroTime(now.Add(neededAgain))
	meta.SetStatusCondition(&p.Status.Conditions, metav1.Condition{
		Type: capstanv1.NotInGitCondition, Status: metav1.ConditionTrue, Reason: ReasonNotInGit,
		Message:            fmt.Sprintf("%s, but %s", sentence(p, decision.RolledOut), cut(needed)),
		ObservedGeneration: p.Generation, LastTransitionTime: metav1.NewTime(now),
	})
}

// follows holds the times of the next checks of open pull requests. A new process checks
// each one within minFollow.
type follows struct {
	clock clock.PassiveClock

	// mu guards lockedNext, and lockedArrived, which has the promotions whose arrival was noted.
	mu            sync.Mutex
	lockedNext    map[types.UID]time.Time
	lockedArrived map[types.UID]bool
}

func newFollows(c clock.PassiveClock) *follows {
	return &follows{clock: c, lockedNext: map[types.UID]time.Time{}, lockedArrived: map[types.UID]bool{}}
}

// left returns the time until the next check.
func (f *follows) left(p types.UID) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	next, ok := f.lockedNext[p]
	if !ok {
		next = f.clock.Now().Add(time.Duration(rand.Int64N(int64(minFollow)))) //nolint:gosec // It spreads load.
		f.lockedNext[p] = next
	}
	return next.Sub(f.clock.Now())
}

// checked notes a check, and returns the time until the next one.
func (f *follows) checked(p *capstanv1.Promotion) time.Duration {
	interval := minFollow
	if begun := begun(p); !begun.IsZero() {
		interval = min(max(f.clock.Since(begun)/followShare, minFollow), maxFollow)
	}
	return f.later(p.UID, backoff.Spread(interval, followJitter, nil))
}

// begun returns when a promotion could first be carried out, or again after its gates were closed;
// zero if it cannot yet. The
// time of the last attempt does not show it: with autoMerge each check makes an attempt.
func begun(p *capstanv1.Promotion) time.Time {
	switch s := &p.Status; {
	case s.StartTime == nil:
		return time.Time{}
	case s.GatesOpenTime != nil && s.GatesOpenTime.After(s.StartTime.Time) && (s.Approval == nil || s.GatesOpenTime.After(s.Approval.ApprovalTime.Time)):
		return s.GatesOpenTime.Time
	case s.Approval != nil && s.Approval.ApprovalTime.After(s.StartTime.Time):
		return s.Approval.ApprovalTime.Time
	default:
		return s.StartTime.Time
	}
}

// later moves the next check to a later time.
func (f *follows) later(p types.UID, in time.Duration) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := f.clock.Now().Add(in)
	if next.After(f.lockedNext[p]) {
		f.lockedNext[p] = next
	}
	return f.lockedNext[p].Sub(f.clock.Now())
}

// now makes the next check due.
func (f *follows) now(p types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lockedNext[p] = f.clock.Now()
}

// arrived makes the next check due when the targets run the revision, which a merge explains. It does so once:
// targets that become ready again and again cause no more checks.
func (f *follows) arrived(p types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.lockedArrived[p] {
		f.lockedArrived[p] = true
		f.lockedNext[p] = f.clock.Now()
	}
}

func (f *follows) forget(p types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.lockedNext, p)
	delete(f.lockedArrived, p)
}
