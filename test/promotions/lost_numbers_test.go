package promotions_test

import (
	"context"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// losing sets up an environment whose promotions 2 and 3 are lost: the Pipeline and its
// Promotions are put back to the state after promotion 1, as the restore of an etcd snapshot
// does. The pull request of the lost ones is still open.
func losing(t *testing.T) (*WithT, context.Context, *world, opened) {
	t.Helper()
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	newForge(t, w, pipelinesv1.Gitea, "dev", "staging")
	h := w.began(ctx, w.newPipeline("web", w.pull(nil), "dev", "staging"))
	w.runs("dev", "1.1")
	h.rest(ctx)
	w.forge.merge(1)
	w.runs("staging", "1.1")
	h.rest(ctx)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseSucceeded)
	backup := w.pipeline(ctx, "web")

	for _, revision := range []string{"1.2", "1.3"} {
		w.runs("dev", revision)
		h.rest(ctx)
	}
	g.Expect(numbers(w.into(ctx, "staging"))).To(Equal([]int64{1, 2, 3}))
	lost := w.opened(g)

	for _, p := range w.into(ctx, "staging")[1:] {
		g.Expect(w.c.Delete(ctx, &p)).To(Succeed())
	}
	p := w.pipeline(ctx, "web")
	p.Status = backup.Status
	g.Expect(w.c.Status().Update(ctx, p)).To(Succeed())
	return g, ctx, w, lost
}

// opened are the pull requests that exist, and the one that is open.
type opened struct {
	all  int
	open int64
}

func (w *world) opened(g Gomega) opened {
	open := w.hosted.opened("staging")
	g.Expect(open).To(HaveLen(1))
	return opened{len(w.hosted.PullRequests()), open[0]}
}

// After a restore that loses two numbers or more, the environment is not blocked: the new
// promotion continues above the highest number that the Git service shows, and takes over
// the pull request.
func TestARestoreThatLosesNumbersBlocksNothing(t *testing.T) {
	t.Parallel()
	g, ctx, w, lost := losing(t)
	h := w.hub("restored", w.c, nil)
	h.rest(ctx)
	w.takenOver(ctx, g, lost)
	w.forge.merge(lost.open)
	w.runs("staging", "1.3")
	h.rest(ctx)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseSucceeded)
	w.runs("dev", "1.4")
	h.rest(ctx)
	g.Expect(w.newest(ctx, "staging").Spec.Number).To(BeEquivalentTo(5))
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingMerge)
	g.Expect(w.forge.doubled()).To(BeEmpty())
}

// takenOver checks that number 4 has the one open pull request, and no other was opened.
func (w *world) takenOver(ctx context.Context, g Gomega, lost opened) {
	all := w.into(ctx, "staging")
	g.Expect(numbers(all)).To(Equal([]int64{1, 2, 4}))
	g.Expect(all[1].Status.Phase).To(Equal(capstanv1.PhaseSuperseded))
	g.Expect(all[1].Status.Reason).To(Equal("NewerPromotion"))
	g.Expect(all[2].Status.Phase).To(Equal(capstanv1.PhaseAwaitingMerge))
	g.Expect(all[2].Spec.Revision).To(Equal("1.3"))
	g.Expect(w.opened(g)).To(Equal(lost), "the pull request is taken over, and none is opened")
	g.Expect(w.hosted.PullRequests()[lost.open-1].Body).To(ContainSubstring("Promotion-ID: " + string(all[2].UID) + ".0\n"))
}

// Two hubs that find the lost number at the same time create one promotion.
func TestTwoHubsContinueALostNumberOnce(t *testing.T) {
	t.Parallel()
	g, ctx, w, lost := losing(t)
	hubs := []*hubUnder{w.hub("one", w.c, nil), w.hub("two", w.c, nil)}
	for range 6 {
		var both sync.WaitGroup
		for _, h := range hubs {
			both.Go(func() { h.pass(ctx) })
		}
		both.Wait()
		w.clock.Step(pollStep)
	}
	hubs[0].rest(ctx)
	w.takenOver(ctx, g, lost)
}

// A number that a hub's cache does not have yet is not lost: nothing is created.
func TestANumberThatTheCacheLacksIsNotLost(t *testing.T) {
	t.Parallel()
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	newForge(t, w, pipelinesv1.Gitea, "dev", "staging")
	h := w.began(ctx, w.newPipeline("web", w.pull(nil), "dev", "staging"))
	w.runs("dev", "1.1")
	h.rest(ctx)
	before := w.pipeline(ctx, "web")
	first := w.newest(ctx, "staging")
	g.Expect(first.Status.Phase).To(Equal(capstanv1.PhaseAwaitingMerge))
	w.runs("dev", "1.2")
	h.settlePipelines(ctx)
	second := w.newest(ctx, "staging")
	g.Expect(second.Spec.Number).To(BeEquivalentTo(2))
	for range 4 { // Only the second is carried out: the first does not end yet.
		_, err := h.promotions.Reconcile(ctx, requestFor(&second))
		g.Expect(err).NotTo(HaveOccurred())
	}
	g.Expect(w.forge.PullRequests()[0].Body).To(ContainSubstring("Promotion-Number: 2"))

	lagging := w.hub("lagging", w.c, nil)
	lagging.settlePipelines(ctx)
	lagging.promotions.Client = old{lagging.promotions.Client, before, &first}
	for range 3 {
		w.clock.Step(pollStep)
		_, err := lagging.promotions.Reconcile(ctx, requestFor(&first))
		g.Expect(err).NotTo(HaveOccurred())
	}
	g.Expect(numbers(w.into(ctx, "staging"))).To(Equal([]int64{1, 2}))
}

// old is a client whose cache has one Pipeline and one Promotion, as they were.
type old struct {
	client.Client
	pipeline  *pipelinesv1.Pipeline
	promotion *capstanv1.Promotion
}

func (o old) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	switch into := into.(type) {
	case *pipelinesv1.Pipeline:
		o.pipeline.DeepCopyInto(into)
		return nil
	case *capstanv1.Promotion:
		o.promotion.DeepCopyInto(into)
		return nil
	default:
		return o.Client.Get(ctx, key, into, options...)
	}
}

func (o old) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	if list, ok := into.(*capstanv1.PromotionList); ok {
		list.Items = []capstanv1.Promotion{*o.promotion.DeepCopy()}
		return nil
	}
	return o.Client.List(ctx, into, options...)
}
