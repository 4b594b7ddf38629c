package promotions_test

import (
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/hub/pipeline/gate"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider/providertest"
)

func reject(revisions ...string) func(*pipelinesv1.Pipeline) {
	return func(p *pipelinesv1.Pipeline) { p.Spec.Reject = revisions }
}

// G33 and G57: a revision is rejected while it waits for its gates, or while its pull request is open. The
// promotion is superseded, its pull request closed, and it is not created again until the
// revision is taken off the list: then once.
func TestG33ARevisionIsRejected(t *testing.T) {
	t.Parallel()
	superseded := And(HaveField("Phase", capstanv1.PhaseSuperseded), HaveField("Reason", string(decision.RevisionRejected)),
		HaveField("Message", "1.1.0 is in spec.reject of Pipeline web: it is promoted again when it is taken off that list"))
	t.Run("while it waits", func(t *testing.T) {
		t.Parallel()
		g, ctx, w, h := gated(t, frozen(), notify(false), "dev", "prod")
		w.runs("dev", "1.1.0")
		h.settle(ctx)
		w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingGates)
		w.edit(ctx, reject("0.9.0", ">=1.1.0-0 <1.1.3"))
		h.settle(ctx)
		g.Expect(w.newest(ctx, "prod").Status).To(superseded)
		w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates = nil })
		h.live(ctx, time.Hour, 10*time.Minute)
		g.Expect(w.into(ctx, "prod")).To(HaveLen(1))
		g.Expect(w.receiver.received()).To(BeEmpty())
		w.edit(ctx, reject("0.9.0"))
		h.settle(ctx)
		g.Expect(w.into(ctx, "prod")).To(HaveLen(2))
		w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingRollout)
		w.runs("prod", "1.1.0")
		h.settle(ctx)
		h.live(ctx, time.Hour, 10*time.Minute)
		g.Expect(w.into(ctx, "prod")).To(HaveLen(2))
		g.Expect(w.receiver.received()).To(HaveLen(1))
	})
	t.Run("while its pull request is open", func(t *testing.T) {
		t.Parallel()
		g, ctx := NewWithT(t), t.Context()
		w, h := pulled(t, pipelinesv1.GitHub, nil, "dev", "staging")
		w.runs("dev", "1.1.0")
		h.settle(ctx)
		w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingMerge)
		w.edit(ctx, reject("1.1.0"))
		h.rest(ctx)
		g.Expect(w.newest(ctx, "staging").Status).To(superseded)
		g.Expect(w.forge.PullRequests()).To(ConsistOf(HaveField("State", providertest.Closed)))
		w.edit(ctx, reject())
		h.rest(ctx)
		w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingMerge)
		g.Expect(w.into(ctx, "staging")).To(HaveLen(2))
	})
	t.Run("between the push and the pull request", func(t *testing.T) {
		t.Parallel()
		g, ctx := NewWithT(t), t.Context()
		w, h := pulled(t, pipelinesv1.GitHub, nil, "dev", "staging")
		w.hosted.once(http.MethodPost, "git-receive-pack", func() { w.edit(ctx, reject("1.1.0")) })
		w.runs("dev", "1.1.0")
		h.rest(ctx)
		g.Expect(w.newest(ctx, "staging").Status).To(superseded)
		g.Expect(w.forge.PullRequests()).To(BeEmpty())
		g.Expect(w.forge.Branches()).To(HaveLen(1), "its branch was deleted")
	})
	t.Run("before it is promoted, also with a retry", func(t *testing.T) {
		t.Parallel()
		g, ctx, w, h := gated(t, nil, notify(false), "dev", "prod")
		w.edit(ctx, reject("1.1.0"))
		w.runs("dev", "1.1.0")
		h.settle(ctx)
		g.Expect(w.into(ctx, "prod")).To(BeEmpty())
		w.runs("dev", "1.1.1")
		h.settle(ctx)
		w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingRollout)
	})
}

// A list that is invalid blocks, and names the entry: a mistake must not promote what was meant to be
// rejected.
func TestAListOfRejectedRevisionsIsInvalid(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := gated(t, frozen(), notify(false), "dev", "prod")
	w.runs("dev", "1.1.0")
	h.settle(ctx)
	w.edit(ctx, reject("1.0.0", ">=1.1.0 <"))
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates = nil })
	h.settle(ctx)
	waiting := w.newest(ctx, "prod").Status
	g.Expect(waiting).To(And(HaveField("Phase", capstanv1.PhaseAwaitingGates), HaveField("Reason", gate.ReasonInvalidGate),
		HaveField("Message", HavePrefix(`correct the Pipeline: spec.reject[1]: ">=1.1.0 <" is not a range of semantic versions, such as ">=2.0.0 <2.0.3": `))))
	g.Expect(w.pipeline(ctx, "web").Status.Conditions).To(ContainElement(And(HaveField("Type", pipelinesv1.StalledCondition),
		HaveField("Message", ContainSubstring("spec.reject[1]")))))
	w.edit(ctx, reject("1.0.0", ">=1.1.1 <1.2.0"))
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingRollout)
}
