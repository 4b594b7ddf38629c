package promotion

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/hub/pipeline/quorum"
	"github.com/capstan-hub/capstan/hub/pipeline/verify"
	"github.com/capstan-hub/capstan/internal/soak"
)

// trials are the running sums of the promotions that are rolled out or verified. The status has what a
// later process continues with.
//
// Locking: one worker at a time uses the sums of a promotion.
type trials struct {
	// mu guards lockedOf, for field access only.
	mu       sync.Mutex
	lockedOf map[types.UID]trial
}

// trial are the running sums of one phase of one run of a promotion.
type trial struct {
	soak.Trial
	key   types.NamespacedName
	phase capstanv1.PromotionPhase
	retry int64
}

func (t *trials) of(p *capstanv1.Promotion) (trial, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	of, runs := t.lockedOf[p.UID]
	return of, runs && of.phase == p.Status.Phase && of.retry == p.Status.Retry
}

func (t *trials) set(p types.UID, of trial) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lockedOf == nil {
		t.lockedOf = map[types.UID]trial{}
	}
	t.lockedOf[p] = of
}

// forget ends the sums of a promotion. If it is noted again, it continues with what is stored, and the
// time until then counts as not observed.
func (t *trials) forget(p types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.lockedOf, p)
}

// all returns the running sums.
func (t *trials) all() []trial {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]trial, 0, len(t.lockedOf))
	for _, of := range t.lockedOf {
		all = append(all, of)
	}
	return all
}

// noteTrial counts the time of a roll-out or a verification until now, and puts the sums into the status
// when they must be stored.
func (r *Reconciler) noteTrial(p *capstanv1.Promotion, v view) {
	t, runs := r.trials.of(p)
	status := v.status(p.Spec.Environment)
	switch {
	case p.Status.Phase != capstanv1.PhaseAwaitingRollout && p.Status.Phase != capstanv1.PhaseVerifying:
		r.trials.forget(p.UID)
		return
	case status == nil, v.pruned(), v.verification.Err() != nil, v.pipeline.Spec.AppRef != p.Spec.App: // Nothing that is known is about it.
		if runs {
			t.Trial = t.Note(r.Clock.Now(), soak.Unobserved)
			r.trials.set(p.UID, t)
		}
		return
	case !v.verification.Counts(p.Status.Phase):
		r.trials.forget(p.UID)
		return
	}
	i := placeOf(v.pipeline, p)
	if !runs {
		t = trial{Trial: soak.ResumeTrial(sumsOf(p)), key: client.ObjectKeyFromObject(p), phase: p.Status.Phase, retry: p.Status.Retry}
	}
	verdict := quorum.FleetOf(v.pipeline, i).Judged(p.Spec.Wave).Observe(p.Spec.Revision, soak.Unready)
	if p.Status.Phase == capstanv1.PhaseAwaitingRollout && verdict == soak.Ready {
		verdict = soak.Unobserved // It waits for clusters that joined, for which no deadline holds.
	}
	t.Trial = t.Note(r.Clock.Now(), verdict)
	r.trials.set(p.UID, t)
	if now := t.status(); mustStore(p.Status.Trial, now, v.verification) {
		p.Status.Trial = now
	}
}

// sumsOf returns the sums that a status has of its phase.
func sumsOf(p *capstanv1.Promotion) soak.Sums {
	s := p.Status.Trial
	if s == nil || s.Phase != p.Status.Phase {
		return soak.Sums{}
	}
	seconds := func(n int64) time.Duration { return time.Duration(n) * time.Second }
	return soak.Sums{State: soak.Verdict(s.State), Ready: seconds(s.ReadySeconds), Unready: seconds(s.UnreadySeconds), Observed: seconds(s.ObservedSeconds)}
}

// status returns the sums for the status.
func (t trial) status() *capstanv1.Trial {
	s := t.Sums()
	seconds := func(d time.Duration) int64 { return int64(d / time.Second) }
	status := &capstanv1.Trial{
		Phase: t.phase, State: capstanv1.TrialState(s.State),
		ReadySeconds: seconds(s.Ready), UnreadySeconds: seconds(s.Unready), ObservedSeconds: seconds(s.Observed),
	}
	if s.State == "" { // Nothing was observed yet.
		status.State = capstanv1.TrialUnready
		if t.phase == capstanv1.PhaseVerifying {
			status.State = capstanv1.TrialReady
		}
	}
	return status
}

// mustStore returns whether sums have to be stored after the last ones: the state or the verdict changed,
// or too much would be lost if the hub ended.
func mustStore(last, now *capstanv1.Trial, rules verify.Rules) bool {
	if last == nil || last.Phase != now.Phase || last.State != now.State || !rules.SameVerdict(last, now) {
		return true
	}
	return time.Duration(now.ObservedSeconds-last.ObservedSeconds)*time.Second >= rules.StoreEvery(now.Phase)
}

// untilVerdict returns the time until the sums of a promotion decide, or have to be stored; 0 if time
// alone changes nothing.
func (r *Reconciler) untilVerdict(p *capstanv1.Promotion, v view) time.Duration {
	t, runs := r.trials.of(p)
	if !runs {
		return 0
	}
	left := v.verification.Left(p.Status.Phase, t.Trial)
	if left == 0 {
		return 0
	}
	store := v.verification.StoreEvery(p.Status.Phase)
	if last := p.Status.Trial; last != nil && last.Phase == p.Status.Phase {
		store -= t.Sums().Observed - time.Duration(last.ObservedSeconds)*time.Second
	}
	return min(left, max(store, time.Second))
}

// showTrial says what a verification waits for, and when it ends if nothing changes.
func (r *Reconciler) showTrial(p *capstanv1.Promotion, v view) {
	if p.Status.Phase != capstanv1.PhaseVerifying {
		return
	}
	t, runs := r.trials.of(p)
	p.Status.Message = v.verification.Waits(p, runs && (t.Now() == soak.Unobserved || t.Now() == soak.Progressing))
	var expected time.Time
	if runs && t.Now() == soak.Ready && (len(v.verification.Checks()) == 0 || t.Sums().Ready < v.verification.Required()) {
		expected = r.Clock.Now().Add(max(0, v.verification.Required()-t.Sums().Ready))
	}
	p.Status.ExpectedTime = keepTime(p.Status.ExpectedTime, expected)
}

// StoreTrials waits until the process ends, and stores the sums of all roll-outs and verifications, so
// that the next hub continues with them.
func (r *Reconciler) StoreTrials(ctx context.Context) error {
	<-ctx.Done()
	ctx, done := untilRecorded(ctx)
	defer done()
	var group errgroup.Group
	group.SetLimit(workers)
	for _, t := range r.trials.all() {
		group.Go(func() error {
			if err := r.storeTrial(ctx, t); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
				log.FromContext(ctx).Info("the sums of a verification could not be stored; what was counted since the last write is lost", "promotion", t.key, "cause", err.Error())
			}
			return nil
		})
	}
	return group.Wait()
}

func (r *Reconciler) storeTrial(ctx context.Context, t trial) error {
	p := &capstanv1.Promotion{}
	if err := r.Client.Get(ctx, t.key, p); err != nil {
		return err
	}
	if _, runs := r.trials.of(p); !runs {
		return nil
	}
	before := p.DeepCopy()
	t.Trial = t.At(r.Clock.Now())
	p.Status.Trial = t.status()
	return r.write(ctx, before, p)
}

// endTrial puts the verdict about the environment into a status whose phase has just changed.
func (v view) endTrial(p *capstanv1.Promotion, why decision.PhaseReason, now metav1.Time) {
	var verdict verify.Verdict
	switch why { //nolint:exhaustive // The others are not about the environment.
	case decision.RolloutDeadline:
		verdict = verify.Late
	case decision.Degraded:
		verdict = verify.Degraded
	case decision.VerificationFailed:
		verdict = verify.ChecksFailed
	case decision.Inconclusive:
		verdict = verify.Inconclusive
	default:
		return
	}
	p.Status.Message = v.verification.Failed(p, verdict)
	// Without a time of another try: it would change nothing.
	p.Status.Failure = &capstanv1.PromotionFailure{Reason: string(why), Count: 1, FirstTime: metav1.NewMicroTime(now.Time)}
}
