package promotion

import (
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/strategy"
)

// C25: the backoff that a failure writes to the status doubles with each failure in
// sequence, up to a bound. It is spread by at most a fifth, and each computation returns
// the same value.
func TestBackoff(t *testing.T) {
	for i, least := range []time.Duration{
		5 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second,
		160 * time.Second, 320 * time.Second, 10 * time.Minute, 10 * time.Minute,
	} {
		g := NewWithT(t)
		var waits []time.Duration
		for _, uid := range []types.UID{"a", "b", "c", "d"} {
			p := &capstanv1.Promotion{}
			p.UID = uid
			p.Status.Attempt = &capstanv1.Attempt{Number: 700, Failures: int64(i) + 1}
			wait := retryIn(p, strategy.MaxRetry)
			g.Expect(wait).To(And(BeNumerically(">=", least), BeNumerically("<=", least+least/5)), "after attempt %d", i+1)
			g.Expect(retryIn(p, strategy.MaxRetry)).To(Equal(wait))
			waits = append(waits, wait)
		}
		g.Expect(waits).NotTo(HaveEach(waits[0]), "promotions that failed together do not come back together")
	}
	g := NewWithT(t)
	p := &capstanv1.Promotion{}
	p.Status.Attempt = &capstanv1.Attempt{Number: 1 << 40, Failures: 1 << 40}
	g.Expect(retryIn(p, strategy.MaxRetry)).To(BeNumerically("<=", strategy.MaxRetry+strategy.MaxRetry/5))
}

// With autoMerge each check of a pull request that cannot be merged yet is an attempt that
// succeeds. Only failures in sequence make the wait longer. If the service was not called,
// the wait is as long as the service requested.
func TestOnlyFailuresMakeTheWaitLonger(t *testing.T) {
	g := NewWithT(t)
	clock := testclock.NewFakeClock(time.Now())
	r := New(Options{Clock: clock, Recorder: events.NewFakeRecorder(1000), Holder: "hub"})
	v := view{pipeline: &pipelinesv1.Pipeline{Spec: pipelinesv1.PipelineSpec{
		Environments: []pipelinesv1.Environment{{Name: "prod"}}, Promotion: &pipelinesv1.Promotion{},
	}}}
	started := metav1.NewTime(clock.Now())
	p := &capstanv1.Promotion{Spec: capstanv1.PromotionSpec{Environment: "prod", Revision: "1.1"}}
	p.Status.Phase, p.Status.StartTime = capstanv1.PhaseAwaitingMerge, &started
	attempt := func(cause error) time.Duration {
		r.claim(p, time.Minute)
		r.outcome(t.Context(), p, v, strategy.Result{State: strategy.Open, PullRequest: &capstanv1.PullRequestStatus{Number: 1}}, cause)
		return p.Status.Attempt.NextAttemptTime.Sub(clock.Now())
	}
	about := func(d time.Duration) gomegatypes.GomegaMatcher {
		return And(BeNumerically(">=", d), BeNumerically("<=", d+d/5))
	}
	broken := errors.New("bad gateway")
	untried := &strategy.RetryAfterError{After: 15 * time.Second, Untried: true, Err: broken}
	for range 20 {
		g.Expect(attempt(nil)).To(BeNumerically("<=", 0))
	}
	g.Expect(attempt(broken)).To(about(5 * time.Second))
	g.Expect(attempt(broken)).To(about(10 * time.Second))
	for range 20 {
		g.Expect(attempt(untried)).To(about(15 * time.Second))
	}
	g.Expect(attempt(broken)).To(about(20 * time.Second))
	g.Expect(attempt(nil)).To(BeNumerically("<=", 0))
	g.Expect(attempt(broken)).To(about(5 * time.Second))
	g.Expect(attempt(&strategy.RetryAfterError{After: time.Minute, Err: broken})).To(about(time.Minute))
	g.Expect(attempt(broken)).To(about(20*time.Second), "a service that says when is one that failed")
}
