package promotions_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

func retry(ctx context.Context, g Gomega, w *world, p capstanv1.Promotion) {
	before := p.DeepCopy()
	p.Spec.Retry++
	g.Expect(w.c.Patch(ctx, &p, client.MergeFrom(before))).To(Succeed())
}

func TestRetryOfARejectedOne(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := promotedByNotification(t, false, "staging")
	p := w.newest(ctx, "staging")
	before := p.DeepCopy()
	p.Status.Phase, p.Status.Reason = capstanv1.PhaseRejected, "PullRequestClosed" // What a closed pull request leads to.
	g.Expect(w.c.Status().Patch(ctx, &p, client.MergeFrom(before))).To(Succeed())
	h.settle(ctx)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseRejected, "it does not start again automatically")
	g.Expect(w.into(ctx, "staging")).To(HaveLen(1))
	retry(ctx, g, w, w.newest(ctx, "staging"))
	h.settle(ctx)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingRollout)
	g.Expect(w.newest(ctx, "staging").Status.Message).To(MatchRegexp(`^Notification sent.*; waiting for every target of "staging" to run 1\.1$`))
	g.Expect(w.newest(ctx, "staging").Status.Retry).To(Equal(int64(1)))
	g.Expect(w.receiver.ids).To(HaveLen(2), "a retry is another act: it has another id")
}

// TestRetryWhileNoHubRuns: a user rolls an environment back and raises the retry while no
// hub runs. The observations of the hub before do not mean that the promotion succeeded.
func TestRetryWhileNoHubRuns(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := promotedByNotification(t, false, "staging")
	w.runs("staging", "1.1")
	h.settle(ctx)
	p := w.newest(ctx, "staging")
	g.Expect(p.Status.Phase).To(Equal(capstanv1.PhaseSucceeded))

	w.runs("staging", "1.0")
	retry(ctx, g, w, p)
	after := w.hub("after", w.c, nil)
	_, err := after.promotions.Reconcile(ctx, requestFor(&p)) // before its Pipeline
	g.Expect(err).NotTo(HaveOccurred())
	after.settle(ctx)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingRollout)
	g.Expect(w.receiver.ids).To(HaveLen(2))
}

func TestDeletionOfTheNewest(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := promotedByNotification(t, false, "staging")
	p := w.newest(ctx, "staging")
	g.Expect(w.c.Delete(ctx, &p)).To(Succeed())
	h.settle(ctx)
	all := w.into(ctx, "staging")
	g.Expect(all).To(HaveLen(1))
	g.Expect(all[0].Spec.Number).To(Equal(int64(2)), "a number is not used twice")
	g.Expect(all[0].Name).NotTo(Equal(p.Name))
}

// The fork: two hubs decide different revisions from the same list. One gets the
// slot; the other decides again.
func TestFork(t *testing.T) {
	t.Parallel()
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	h := w.began(ctx, w.newPipeline("web", notify(false), "dev", "staging"))
	// The second hub reads what there is, and is then held until the first is done.
	w.runs("dev", "1.1")
	held := false
	slow := interceptor.NewClient(w.c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if _, ok := o.(*capstanv1.Promotion); ok && !held {
				held = true
				w.runs("dev", "1.2")
				h.settle(ctx)
			}
			return c.Create(ctx, o, opts...)
		},
	})
	second := w.hub("second", slow, nil)
	second.settle(ctx)
	g.Expect(held).To(BeTrue())
	all := w.into(ctx, "staging")
	g.Expect(all).To(HaveLen(1), "the second hub's create met the first one's")
	g.Expect(all[0].Spec.Revision).To(Equal("1.2"))
	g.Expect(w.receiver.received()).To(HaveLen(1))
}

// The late create: a create that timed out and lands afterwards takes no effect.
func TestLateCreate(t *testing.T) {
	t.Parallel()
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	w.began(ctx, w.newPipeline("web", notify(false), "dev", "staging"))
	var late *capstanv1.Promotion
	slow := interceptor.NewClient(w.c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if p, ok := o.(*capstanv1.Promotion); ok && late == nil {
				late = p.DeepCopy()
				return apierrors.NewTimeoutError("the create is under way", 1)
			}
			return c.Create(ctx, o, opts...)
		},
	})
	h := w.hub("hub", slow, nil)
	w.runs("dev", "1.1")
	h.pass(ctx)
	g.Expect(late).NotTo(BeNil())
	w.runs("dev", "1.2")
	h.settle(ctx)
	g.Expect(w.c.Create(ctx, late)).To(MatchError(apierrors.IsAlreadyExists, "AlreadyExists"), "its slot is taken")
	// Even with the slot free again it would not act: it is not the highest.
	w.runs("dev", "1.3")
	h.settle(ctx)
	first := w.into(ctx, "staging")[0]
	g.Expect(w.c.Delete(ctx, &first)).To(Succeed())
	late.ResourceVersion = ""
	g.Expect(w.c.Create(ctx, late)).To(Succeed())
	h.settle(ctx)
	g.Expect(w.into(ctx, "staging")[0].Status.Phase).To(Equal(capstanv1.PhaseSuperseded))
	for _, e := range w.receiver.received() {
		g.Expect(e.Message).NotTo(HaveSuffix("1.1"))
	}
}

// N10: two hubs reconcile at once: one Promotion, one notification.
func TestTwoHubsAtOnce(t *testing.T) {
	t.Parallel()
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	a := w.began(ctx, w.newPipeline("web", notify(false), "dev", "staging"))
	b := w.hub("b", w.c, nil)
	w.runs("dev", "1.1")
	done := make(chan struct{}, 2)
	for _, h := range []*hubUnder{a, b} {
		go func() {
			for range 10 {
				h.pass(ctx)
			}
			done <- struct{}{}
		}()
	}
	<-done
	<-done
	a.settle(ctx)
	g.Expect(w.into(ctx, "staging")).To(HaveLen(1))
	g.Expect(w.receiver.received()).To(HaveLen(1))
}

// A Pipeline that is re-created has another UID: its own ledger, its own slots.
func TestRecreatedPipeline(t *testing.T) {
	t.Parallel()
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	p := w.newPipeline("web", notify(false), "dev", "staging")
	again := p.DeepCopy()
	h := w.began(ctx, p)
	w.runs("dev", "1.1")
	h.settle(ctx)
	old := w.newest(ctx, "staging")
	g.Expect(w.c.Delete(ctx, p)).To(Succeed())
	h.settle(ctx)
	_, err := h.pipelines.Reconcile(ctx, requestFor(p))
	g.Expect(err).NotTo(HaveOccurred())
	h.settle(ctx)
	g.Expect(w.newest(ctx, "staging").Status.Reason).To(Equal("PipelineDeleted"), "the audit trail stays")
	g.Expect(w.c.Create(ctx, again)).To(Succeed())
	h.settle(ctx)
	w.runs("dev", "1.1")
	w.runs("staging", "1.0")
	h.settle(ctx)
	g.Expect(w.into(ctx, "staging")).To(HaveLen(1), "1.1 was carried out for the former Pipeline")
	g.Expect(w.receiver.received()).To(HaveLen(1))

	w.runs("dev", "1.2")
	h.settle(ctx)
	all := w.into(ctx, "staging")
	g.Expect(all).To(HaveLen(2))
	g.Expect(all[0].Name).To(Equal(old.Name))
	g.Expect(all[1].Spec.Number).To(Equal(int64(2)), "the numbers continue")
	g.Expect(all[1].Spec.Pipeline.UID).NotTo(Equal(old.Spec.Pipeline.UID))
}

func TestSuspendBlocksTheAttempt(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := promotedByNotification(t, true, "staging")
	p := w.pipeline(ctx, "web")
	before := p.DeepCopy()
	p.Spec.Suspend = true
	g.Expect(w.c.Patch(ctx, p, client.MergeFrom(before))).To(Succeed())
	approve(ctx, g, w, w.newest(ctx, "staging"))
	h.settle(ctx)
	g.Expect(w.newest(ctx, "staging").Status.Reason).To(Equal("Suspended"))
	g.Expect(w.receiver.received()).To(BeEmpty())
	before = p.DeepCopy()
	p.Spec.Suspend = false
	g.Expect(w.c.Patch(ctx, p, client.MergeFrom(before))).To(Succeed())
	h.settle(ctx)
	g.Expect(w.receiver.received()).To(HaveLen(1))
}

// An edit of the strategy under way takes effect under the next number.
func TestEditedStrategySupersedes(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := promotedByNotification(t, true, "staging")
	p := w.pipeline(ctx, "web")
	before := p.DeepCopy()
	p.Spec.Promotion.Manual = false
	g.Expect(w.c.Patch(ctx, p, client.MergeFrom(before))).To(Succeed())
	h.settle(ctx)
	all := w.into(ctx, "staging")
	g.Expect(all).To(HaveLen(2))
	g.Expect(all[0].Status.Reason).To(Equal("NewerPromotion"))
	g.Expect(all[1].Status.Phase).To(Equal(capstanv1.PhaseAwaitingRollout))
}

// A receiver that fails is called again, after a backoff that is in the status.
func TestFailedAttemptsAreRepeated(t *testing.T) {
	t.Parallel()
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	h := w.began(ctx, w.newPipeline("web", notify(false), "dev", "staging"))
	w.receiver.fail = 3
	w.runs("dev", "1.1")
	h.settle(ctx)
	for n := int64(1); n <= 3; n++ {
		p := w.newest(ctx, "staging")
		g.Expect(p.Status.Phase).To(Equal(capstanv1.PhasePromoting))
		g.Expect(p.Status.Reason).To(Equal("Retrying"))
		g.Expect(p.Status.Attempt.Number).To(Equal(n))
		g.Expect(p.Status.Attempt.Error).To(ContainSubstring("503"))
		wait := p.Status.Attempt.NextAttemptTime.Sub(w.clock.Now())
		g.Expect(wait).To(BeNumerically("~", 5*time.Second<<(n-1), wait/5))
		w.clock.Step(wait)
		h.settle(ctx)
	}
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingRollout)
	g.Expect(w.receiver.received()).To(HaveLen(1))
}

func TestStalledIsReportedOnce(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := promotedByNotification(t, false, "staging")
	w.clock.Step(31 * time.Minute)
	h.settle(ctx)
	g.Expect(meta.IsStatusConditionTrue(w.newest(ctx, "staging").Status.Conditions, capstanv1.StalledCondition)).To(BeTrue())
	c := meta.FindStatusCondition(w.pipeline(ctx, "web").Status.Conditions, pipelinesv1.StalledCondition)
	g.Expect(c).NotTo(BeNil())
	g.Expect(c.Reason).To(Equal(pipelinesv1.PromotionStalledReason))
	w.runs("staging", "1.1")
	h.settle(ctx)
	g.Expect(meta.FindStatusCondition(w.pipeline(ctx, "web").Status.Conditions, pipelinesv1.StalledCondition)).To(BeNil())
}

// Old promotions are deleted, but neither the newest nor the newest two that succeeded with distinct revisions.
func TestRetention(t *testing.T) {
	t.Parallel()
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	h := w.began(ctx, w.newPipeline("web", notify(false), "dev", "staging"))
	w.delivered(ctx, h, "staging", "1.0.9", "1.1", "1.2")
	w.runs("dev", "1.3")
	h.settle(ctx)
	w.runs("dev", "1.2")
	h.settle(ctx)
	g.Expect(w.into(ctx, "staging")).To(HaveLen(4))
	w.clock.Step(31 * 24 * time.Hour)
	h.settle(ctx)
	kept := w.into(ctx, "staging")
	g.Expect(numbers(kept)).To(Equal([]int64{2, 3, 4}))
	g.Expect(kept[1].Status.Phase).To(Equal(capstanv1.PhaseSucceeded))
	g.Expect(kept[2].Status.Phase).To(Equal(capstanv1.PhaseSuperseded))
}

// The status was lost (a restored Pipeline): numbers and sequences continue.
func TestLostStatus(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := promotedByNotification(t, false, "staging")
	p := w.pipeline(ctx, "web")
	p.Status = pipelinesv1.PipelineStatus{}
	g.Expect(w.c.Status().Update(ctx, p)).To(Succeed())
	h.settle(ctx)
	g.Expect(w.into(ctx, "staging")).To(HaveLen(1))
	g.Expect(w.receiver.received()).To(HaveLen(1))
	g.Expect(w.pipeline(ctx, "web").Status.Environments["dev"].Agreed.Sequence).To(Equal(int64(2)))
}

func TestConditionsCarryTheClock(t *testing.T) {
	t.Parallel()
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	w.began(ctx, w.newPipeline("web", notify(false), "dev"))
	c := meta.FindStatusCondition(w.pipeline(ctx, "web").Status.Conditions, pipelinesv1.ReadyCondition)
	g.Expect(c.Status).To(Equal(metav1.ConditionTrue))
	g.Expect(c.LastTransitionTime.Time).To(BeTemporally("==", w.clock.Now()))
}

// The caches of Pipelines and Promotions are filled independently. A Promotion does not end
// because the cached Pipeline is older than it: nothing would start the promotion again.
func TestAPipelineThatIsOldInTheCacheEndsNothing(t *testing.T) {
	t.Parallel()
	for name, old := range map[string]func(context.Context, *world) *pipelinesv1.Pipeline{
		"its status of before": func(ctx context.Context, w *world) *pipelinesv1.Pipeline { return w.pipeline(ctx, "web") },
		"none at all":          func(context.Context, *world) *pipelinesv1.Pipeline { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
			h := w.began(ctx, w.newPipeline("web", notify(false), "dev", "staging"))
			before := old(ctx, w)
			w.runs("dev", "1.1")
			h.settlePipelines(ctx)
			g.Expect(w.newest(ctx, "staging").Status.Phase).To(BeEmpty(), "created, not begun")
			lagging := w.hub("lagging", w.c, nil)
			lagging.promotions.Client = interceptor.NewClient(w.c, interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					p, ok := o.(*pipelinesv1.Pipeline)
					switch {
					case !ok:
						return c.Get(ctx, key, o, opts...)
					case before == nil:
						return apierrors.NewNotFound(pipelinesv1.GroupVersion.WithResource("pipelines").GroupResource(), key.Name)
					}
					before.DeepCopyInto(p)
					return nil
				},
			})
			p := w.newest(ctx, "staging")
			_, err := lagging.promotions.Reconcile(ctx, requestFor(&p))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(w.newest(ctx, "staging").Status.Phase.Finished()).To(BeFalse())
			h.settle(ctx)
			w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingRollout)
			g.Expect(w.into(ctx, "staging")).To(HaveLen(1))
		})
	}
}
