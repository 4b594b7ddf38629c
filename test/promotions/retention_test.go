package promotions_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/internal/promotions"
)

// delivered promotes revisions one after the other, all the way.
func (w *world) delivered(ctx context.Context, h *hubUnder, env string, revisions ...string) {
	w.Helper()
	for _, revision := range revisions {
		w.runs("dev", revision)
		h.settle(ctx)
		w.runs(env, revision)
		h.settle(ctx)
	}
}

func numbers(all []capstanv1.Promotion) []int64 {
	var found []int64
	for i := range all {
		found = append(found, all[i].Spec.Number)
	}
	return found
}

// A busy environment does not fill etcd: finished promotions are also limited by number.
// The newest two that succeeded are kept beyond the limit, and so are those of the last hour.
func TestRetentionByNumber(t *testing.T) {
	t.Parallel()
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	h := w.began(ctx, w.newPipeline("web", notify(false), "dev", "staging"))
	w.delivered(ctx, h, "staging", "1.1", "1.2")
	for i := range 5 {
		w.runs("dev", fmt.Sprintf("2.%d", i)) // Each one supersedes the one before.
		h.settle(ctx)
	}
	g.Expect(numbers(w.into(ctx, "staging"))).To(Equal([]int64{1, 2, 3, 4, 5, 6, 7}))

	h.promotions.Keep = 2
	h.settle(ctx)
	g.Expect(w.into(ctx, "staging")).To(HaveLen(7), "in the first hour each one is kept")
	w.clock.Step(time.Hour + time.Minute)
	h.promotions.Keep = 0
	h.settle(ctx)
	g.Expect(w.into(ctx, "staging")).To(HaveLen(7), "0 is no limit")
	h.promotions.Keep = 2
	h.settle(ctx)
	g.Expect(numbers(w.into(ctx, "staging"))).To(Equal([]int64{1, 2, 5, 6, 7}), "the newest two that succeeded, to one of which a rollback goes back, two finished, and the one under way")

	w.runs("staging", "2.4")
	h.settle(ctx)
	w.runs("dev", "3.0")
	h.settle(ctx)
	g.Expect(w.newest(ctx, "staging").Spec.Number).To(BeEquivalentTo(8), "numbers continue")
}

// The promotions of a Pipeline that was deleted are deleted after the retention.
func TestRetentionOfADeletedPipeline(t *testing.T) {
	t.Parallel()
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	p := w.newPipeline("web", notify(false), "dev", "staging")
	h := w.began(ctx, p)
	w.delivered(ctx, h, "staging", "1.1")
	g.Expect(w.c.Delete(ctx, p)).To(Succeed())
	h.settle(ctx)
	g.Expect(w.into(ctx, "staging")).To(HaveLen(1))
	w.clock.Step(31 * 24 * time.Hour)
	h.settle(ctx)
	g.Expect(w.into(ctx, "staging")).To(BeEmpty())
}

// An hour after its end a settled promotion loses its managed fields, which are nearly half of
// it, and nothing else.
func TestRetentionRemovesManagedFields(t *testing.T) {
	t.Parallel()
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	h := w.began(ctx, w.newPipeline("web", notify(false), "dev", "staging"))
	w.delivered(ctx, h, "staging", "1.1", "1.2")
	w.runs("dev", "1.3")
	h.settle(ctx)
	before := w.into(ctx, "staging")
	g.Expect(before).To(HaveLen(3))
	for _, p := range before {
		g.Expect(p.ManagedFields).NotTo(BeEmpty())
	}

	w.clock.Step(time.Hour + time.Minute)
	managed, err := h.promotions.Retain(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(managed).To(HaveLen(2))
	changed := before[0].DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, "team", "one")
	g.Expect(w.c.Patch(ctx, changed, client.MergeFrom(&before[0]))).To(Succeed())
	before = w.into(ctx, "staging")
	for _, stored := range managed {
		g.Expect(h.promotions.ClearManagedFields(ctx, stored)).To(Succeed())
	}
	g.Expect(w.into(ctx, "staging")[0].ManagedFields).NotTo(BeEmpty(), "it changed after the hub had read it")

	h.settle(ctx)
	after := w.into(ctx, "staging")
	for i, p := range after[:2] {
		g.Expect(p.ManagedFields).To(BeEmpty())
		smaller, whole := len(object(g, p)), len(object(g, before[i]))
		g.Expect(smaller).To(BeNumerically("<", whole*2/3), "%d of %d bytes", smaller, whole)
		p.ManagedFields, p.ResourceVersion = before[i].ManagedFields, before[i].ResourceVersion
		g.Expect(object(g, p)).To(Equal(object(g, before[i])))
	}
	g.Expect(after[2].ManagedFields).NotTo(BeEmpty(), "it is under way")
	h.settle(ctx)
	again := w.into(ctx, "staging")
	g.Expect(again[0].ResourceVersion).To(Equal(after[0].ResourceVersion), "once")
	retry(ctx, g, w, again[1])
	h.settle(ctx)
	g.Expect(w.into(ctx, "staging")[1].ManagedFields).To(BeEmpty(), "no later write of the hub adds them")

	w.delivered(ctx, h, "staging", "1.3", "1.4")
	w.clock.Step(time.Hour + time.Minute)
	h.promotions.Keep = 1
	h.settle(ctx)
	g.Expect(numbers(w.into(ctx, "staging"))).To(Equal([]int64{3, 4}), "it is deleted without them, too")
}

// A finished promotion is stripped in the hub's cache. A retry, and an approval that comes
// too late, lose nothing of the stored object: what the hub writes does not come from the
// cache.
func TestAStrippedPromotionLosesNothing(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := promotedByNotification(t, true, "staging")
	approve(ctx, g, w, w.newest(ctx, "staging"))
	h.settle(ctx)
	w.runs("staging", "1.1")
	h.settle(ctx)
	before := w.newest(ctx, "staging")
	g.Expect(before.Status.Phase).To(Equal(capstanv1.PhaseSucceeded))
	g.Expect(before.Status.Conditions).NotTo(BeEmpty())
	g.Expect(before.Status.Attempt.Holder).NotTo(BeEmpty())
	g.Expect(promotions.Settled(&before)).To(BeTrue())

	cached, _ := promotions.Whole(promotions.NewStripper(w.clock).Strip(before.DeepCopy()))
	g.Expect(cached.Status.Conditions).To(BeEmpty(), "it is stripped")
	g.Expect(cached.Status.Attempt.Holder).To(BeEmpty())
	g.Expect(promotions.Settled(cached)).To(BeTrue())
	h.settle(ctx)
	g.Expect(object(g, w.newest(ctx, "staging"))).To(Equal(object(g, before)), "nothing was written")

	// An annotation by a user makes another version of the object, which is also settled.
	annotated := before.DeepCopy()
	annotated.Annotations = map[string]string{"team.example/note": "seen"}
	g.Expect(w.c.Patch(ctx, annotated, client.MergeFrom(&before))).To(Succeed())
	h.settle(ctx)
	g.Expect(w.newest(ctx, "staging").Status).To(Equal(before.Status))

	// A retry starts from the stored object.
	w.runs("staging", "1.0")
	h.settle(ctx)
	retry := annotated.DeepCopy()
	retry.Spec.Retry = 1
	g.Expect(w.c.Patch(ctx, retry, client.MergeFrom(annotated))).To(Succeed())
	g.Expect(promotions.Settled(retry)).To(BeFalse(), "the hub has not read the retry")
	h.settle(ctx)
	now := w.newest(ctx, "staging")
	g.Expect(now.Annotations).To(HaveKeyWithValue("team.example/note", "seen"))
	g.Expect(now.Spec.From).To(Equal(before.Spec.From))
	g.Expect(now.Labels).To(Equal(before.Labels))
	g.Expect(now.Status.OtherApprovals).To(ConsistOf(*before.Status.Approval), "who approved the first run is still recorded")
	g.Expect(now.Status.Conditions).NotTo(BeEmpty())
}

func object(g Gomega, p capstanv1.Promotion) string {
	raw, err := json.Marshal(p)
	g.Expect(err).NotTo(HaveOccurred())
	return string(raw)
}
