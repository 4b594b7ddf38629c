package verify

import (
	"fmt"
	"slices"
	"time"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/check"
	"github.com/capstan-hub/capstan/hub/pipeline/gate"
	"github.com/capstan-hub/capstan/internal/period"
	"github.com/capstan-hub/capstan/internal/soak"
)

const (
	// defaultTolerate is how long a target may be unready without a break.
	defaultTolerate = 5 * time.Minute
	// deadlineAfter is what the default deadline has in addition to twice the required time, which is also that of
	// the checks.
	deadlineAfter = time.Hour
	// MaxDeadline is the longest deadline: the default one of the longest required time.
	MaxDeadline = 2*gate.MaxSoak + deadlineAfter
)

// Rules are the verification of one environment. The zero value requires none.
type Rules struct {
	set bool
	// required is how long every target must be ready with the revision.
	required, tolerate, deadline time.Duration
	// rollout is the deadline of the roll-out; 0 for none.
	rollout time.Duration
	checks  []check.Check
	wrong   error
}

// Verdict about a roll-out or a verification.
type Verdict string

// Verdicts.
const (
	// Open: nothing is decided yet.
	Open Verdict = ""
	// Late: the roll-out took longer than its deadline.
	Late Verdict = "Late"
	// Verified: the environment was healthy for long enough.
	Verified Verdict = "Verified"
	// Degraded: a target was unready, or ran another revision, for longer than tolerated.
	Degraded Verdict = "Degraded"
	// ChecksFailed: a check failed as often as it may not.
	ChecksFailed Verdict = "ChecksFailed"
	// Inconclusive: the deadline passed without another verdict.
	Inconclusive Verdict = "Inconclusive"
)

// For returns the rules that apply to environment i of a Pipeline.
func For(p *pipelinesv1.Pipeline, i int) Rules {
	env := &p.Spec.Environments[i]
	path := "spec.verification"
	if env.Verification != nil {
		path = p.Path(i) + ".verification"
	}
	return Parse(p.VerificationFor(env), path)
}

// Parse makes Rules; v may be nil. path is that of the verification in the Pipeline, for errors.
func Parse(v *pipelinesv1.Verification, path string) Rules {
	if v == nil {
		return Rules{}
	}
	r := Rules{set: true, tolerate: defaultTolerate}
	for _, d := range []struct {
		field, text string
		to          *time.Duration
		least, most time.Duration
	}{
		{"for", v.For, &r.required, 0, gate.MaxSoak},
		{"tolerate", v.Tolerate, &r.tolerate, 0, gate.MaxSoak},
		{"deadline", v.Deadline, &r.deadline, time.Second, MaxDeadline},
		{"rolloutDeadline", v.RolloutDeadline, &r.rollout, time.Second, MaxDeadline},
	} {
		if d.text == "" {
			continue
		}
		var err error
		if *d.to, err = period.Parse(d.text, d.least, d.most); err != nil {
			return Rules{set: true, wrong: fmt.Errorf("%s.%s: %w", path, d.field, err)}
		}
	}
	if r.checks, r.wrong = check.Parse(v.Checks, path+".checks"); r.wrong != nil {
		return Rules{set: true, wrong: r.wrong}
	}
	switch {
	case r.deadline == 0:
		r.deadline = min(2*max(r.required, r.longestCheck())+deadlineAfter, MaxDeadline)
	case r.deadline <= r.required:
		return Rules{set: true, wrong: fmt.Errorf("%s.deadline: %s is not longer than for (%s): no revision could be verified", path, v.Deadline, period.Text(r.required))}
	}
	for _, c := range r.checks {
		if least := time.Duration(c.Passes-1) * c.Interval; r.deadline <= least { // The first is measured at once.
			return Rules{set: true, wrong: fmt.Errorf("%s.deadline: %s is not longer than the %d passes of check %q, which take %s: no revision could be verified",
				path, period.Text(r.deadline), c.Passes, c.Name, period.Text(least))}
		}
	}
	return r
}

// longestCheck returns the longest time that the passes of a check take.
func (r Rules) longestCheck() time.Duration {
	var longest time.Duration
	for _, c := range r.checks {
		longest = max(longest, time.Duration(c.Passes)*c.Interval)
	}
	return longest
}

// Set returns whether a verification is required.
func (r Rules) Set() bool { return r.set }

// Err returns what is invalid, with the path of the field and what to do; nil if all is valid.
func (r Rules) Err() error { return r.wrong }

// Counts returns whether the sums of a phase decide anything.
func (r Rules) Counts(phase capstanv1.PromotionPhase) bool {
	switch {
	case !r.set || r.wrong != nil:
		return false
	case phase == capstanv1.PhaseAwaitingRollout:
		return r.rollout > 0
	default:
		return phase == capstanv1.PhaseVerifying
	}
}

// Checks returns the checks of the verification.
func (r Rules) Checks() []check.Check { return r.checks }

// Judge returns the verdict about a trial, which may be nil, and the states of the checks.
func (r Rules) Judge(t *capstanv1.Trial, checks []capstanv1.CheckStatus) Verdict {
	if t == nil || t.Phase != capstanv1.PhaseVerifying || !r.Counts(t.Phase) || len(r.checks) == 0 {
		return r.JudgeTime(t)
	}
	passed := true
	for _, c := range r.checks {
		i := slices.IndexFunc(checks, func(s capstanv1.CheckStatus) bool { return s.Name == c.Name })
		if i >= 0 && check.Failed(&checks[i]) {
			return ChecksFailed
		}
		passed = passed && i >= 0 && check.Passed(&checks[i])
	}
	verdict := r.JudgeTime(t)
	if verdict != Verified || passed {
		return verdict
	}
	if r.over(t) {
		return Inconclusive
	}
	return Open
}

// over returns whether the deadline of the verification has passed.
func (r Rules) over(t *capstanv1.Trial) bool {
	return t.ObservedSeconds >= int64(r.deadline/time.Second)
}

// SameVerdict returns whether two sums of a trial decide the same, whatever the checks say.
func (r Rules) SameVerdict(a, b *capstanv1.Trial) bool {
	return r.JudgeTime(a) == r.JudgeTime(b) && (b.Phase != capstanv1.PhaseVerifying || r.over(a) == r.over(b))
}

// JudgeTime returns the verdict about a trial as if all checks had passed.
func (r Rules) JudgeTime(t *capstanv1.Trial) Verdict {
	if t == nil || !r.Counts(t.Phase) {
		return Open
	}
	seconds := func(n int64) time.Duration { return time.Duration(n) * time.Second }
	switch {
	case t.Phase == capstanv1.PhaseAwaitingRollout && seconds(t.ObservedSeconds) >= r.rollout:
		return Late
	case t.Phase == capstanv1.PhaseAwaitingRollout:
		return Open
	case t.State != capstanv1.TrialUnready && seconds(t.ReadySeconds) >= r.required:
		return Verified
	case seconds(t.UnreadySeconds) > r.tolerate:
		return Degraded
	case r.over(t):
		return Inconclusive
	}
	return Open
}

// Left returns the time until the verdict about a trial changes if the targets stay as they are; 0 if it
// does not.
func (r Rules) Left(phase capstanv1.PromotionPhase, t soak.Trial) time.Duration {
	if !r.Counts(phase) || t.Now() != soak.Ready && t.Now() != soak.Unready {
		return 0
	}
	sums, left := t.Sums(), time.Duration(0)
	at := func(d time.Duration) {
		if d = max(d, time.Millisecond); left == 0 || d < left {
			left = d
		}
	}
	if phase == capstanv1.PhaseAwaitingRollout {
		at(r.rollout - sums.Observed)
		return left
	}
	at(r.deadline - sums.Observed)
	if t.Now() == soak.Ready {
		if sums.Ready < r.required { // Else it waits for checks.
			at(r.required - sums.Ready)
		}
	} else {
		at(r.tolerate + time.Second - sums.Unready) // The status has whole seconds.
	}
	return left
}

// Required returns how long the environment must be healthy.
func (r Rules) Required() time.Duration { return r.required }

// StoreEvery returns how often to store the sums of a phase while they grow.
func (r Rules) StoreEvery(phase capstanv1.PromotionPhase) time.Duration {
	if phase == capstanv1.PhaseAwaitingRollout {
		return soak.StoreEvery(r.rollout)
	}
	return soak.StoreEvery(r.required)
}

// Waits says what a verification waits for. paused is whether time counts neither for nor against the
// revision at present.
func (r Rules) Waits(p *capstanv1.Promotion, paused bool) string {
	env, revision := p.Spec.Environment, p.Spec.Revision
	switch t := p.Status.Trial; {
	case r.wrong != nil:
		return fmt.Sprintf("the verification of environment %q cannot be judged: correct %v", env, r.wrong)
	case paused:
		return fmt.Sprintf("environment %q must be ready with %s for %s in all; the time does not count while a target is reconciled or cannot be observed", env, revision, period.Text(r.required))
	case r.JudgeTime(p.Status.Trial) == Verified && len(r.checks) > 0:
		return fmt.Sprintf("environment %q was ready with %s for long enough; %s", env, revision, r.pending(p.Status.Checks))
	case t != nil && t.State == capstanv1.TrialUnready:
		return fmt.Sprintf("a target of environment %q is not ready, or does not run %s; after %s the promotion fails", env, revision, period.Text(r.tolerate))
	}
	text := fmt.Sprintf("every target of environment %q runs %s, and must be ready for %s in all", env, revision, period.Text(r.required))
	if why := r.pending(p.Status.Checks); why != "" {
		text += "; " + why
	}
	return text
}

// pending says what the first check that has not passed waits for; empty if all have passed.
func (r Rules) pending(checks []capstanv1.CheckStatus) string {
	for _, c := range r.checks {
		i := slices.IndexFunc(checks, func(s capstanv1.CheckStatus) bool { return s.Name == c.Name })
		switch {
		case i < 0 || checks[i].Verdict == "":
			return fmt.Sprintf("check %q was not measured yet", c.Name)
		case check.Passed(&checks[i]):
		case checks[i].Verdict == capstanv1.CheckPass:
			return fmt.Sprintf("check %q must pass %d times in sequence", c.Name, c.Passes)
		case checks[i].Verdict == capstanv1.CheckFail:
			return fmt.Sprintf("check %q fails: %s; after %d failures in sequence the promotion fails", c.Name, checks[i].Message, c.Failures)
		default:
			return fmt.Sprintf("check %q has no result: %s", c.Name, checks[i].Message)
		}
	}
	return ""
}

// Failed says why a promotion failed in its verification, or before it.
func (r Rules) Failed(p *capstanv1.Promotion, v Verdict) string {
	env, revision := p.Spec.Environment, p.Spec.Revision
	again := fmt.Sprintf("; it is promoted no further; unless it is rolled back, release another revision, or raise spec.retry of Promotion %s to try it again", p.Name)
	if p.Spec.RollbackOf != nil {
		again = "; a rollback that fails is not rolled back: release another revision, or create a PromotionRequest for one that works"
	}
	switch v {
	case Late:
		return fmt.Sprintf("not every target of environment %q runs %s %s after the roll-out began: see the application there; if it arrives later, it is verified then", env, revision, period.Text(r.rollout))
	case Degraded:
		return fmt.Sprintf("a target of environment %q was not ready, or did not run %s, for more than %s after the roll-out%s", env, revision, period.Text(r.tolerate), again)
	case ChecksFailed:
		for i := range p.Status.Checks {
			if c := &p.Status.Checks[i]; check.Failed(c) {
				return fmt.Sprintf("check %q of environment %q failed with %s: %s%s", c.Name, env, revision, c.Message, again)
			}
		}
		return fmt.Sprintf("a check of environment %q failed with %s%s", env, revision, again)
	case Inconclusive:
		if why := r.pending(p.Status.Checks); why != "" && r.JudgeTime(p.Status.Trial) != Degraded {
			return fmt.Sprintf("the verification of %s in environment %q has no verdict after %s: %s%s", revision, env, period.Text(r.deadline), why, again)
		}
		return fmt.Sprintf("environment %q was not ready with %s for %s in all within %s%s", env, revision, period.Text(r.required), period.Text(r.deadline), again)
	case Open, Verified:
	}
	return ""
}
