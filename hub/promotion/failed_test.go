package promotion

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/strategy"
)

// openPullRequest is a strategy whose pull request is open. It counts the checks.
type openPullRequest struct{ checks atomic.Int32 }

func (*openPullRequest) Name() string                      { return "open" }
func (*openPullRequest) Handles(pipelinesv1.Strategy) bool { return true }
func (*openPullRequest) Deadline() time.Duration           { return time.Minute }
func (s *openPullRequest) Follow(context.Context, *capstanv1.Promotion) (strategy.Result, error) {
	s.checks.Add(1)
	return strategy.Result{State: strategy.Open}, nil
}

func (*openPullRequest) Promote(context.Context, *capstanv1.Promotion, strategy.Permit) (strategy.Result, error) {
	return strategy.Result{State: strategy.Open}, nil
}

func (*openPullRequest) Withdraw(context.Context, *capstanv1.Promotion, string) (string, error) {
	return "", nil
}

// The check of the pull request of a failed promotion takes a place of its namespace, as
// every other call of a strategy: a Git server that hangs does not hold all workers through
// the failed promotions of one namespace.
func TestTheCheckOfAFailedPromotionTakesAPlace(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	clock := testclock.NewFakeClock(now)
	way := &openPullRequest{}
	r := New(Options{Strategies: strategy.Registry{way}, Clock: clock})
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	g.Expect(r.tenants.Start(t.Context(), queue)).To(Succeed())
	later := metav1.NewMicroTime(now.Add(time.Hour))
	p := &capstanv1.Promotion{Status: capstanv1.PromotionStatus{
		Phase: capstanv1.PhaseFailed, PullRequest: &capstanv1.PullRequestStatus{},
		Failure: &capstanv1.PromotionFailure{RetryTime: &later},
	}}
	p.Spec.Strategy.Notification = &pipelinesv1.NotificationPromotion{}
	p.Namespace, p.Name, p.UID = "team", "failed", "1"

	var leave func()
	for i := range perTenant {
		var ok bool
		leave, ok = r.tenants.enter(types.NamespacedName{Namespace: "team", Name: string(rune('a' + i))})
		g.Expect(ok).To(BeTrue())
	}
	_, err := r.tryAgain(t.Context(), p, view{})
	g.Expect(err).NotTo(HaveOccurred())
	clock.Step(minFollow) // A new process checks within this time.
	result, err := r.tryAgain(t.Context(), p, view{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.RequeueAfter).To(Equal(placeDelay))
	g.Expect(way.checks.Load()).To(BeZero())

	leave()
	woken, _ := queue.Get()
	g.Expect(woken.NamespacedName).To(Equal(client.ObjectKeyFromObject(p)))
	result, err = r.tryAgain(t.Context(), p, view{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(way.checks.Load()).To(BeEquivalentTo(1))
	g.Expect(result.RequeueAfter).To(BeNumerically("~", followFailed, followFailed/4))
	g.Expect(r.tenants.lockedRunning).To(HaveKeyWithValue("team", perTenant-1), "the check has left its place")
}
