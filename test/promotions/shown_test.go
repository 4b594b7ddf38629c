package promotions_test

import (
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider/providertest"
)

// shown returns the commit status that was set last.
func (w *world) shown() providertest.Status {
	w.Helper()
	all := w.forge.Statuses()
	if len(all) == 0 {
		w.Fatalf("no commit status was set")
	}
	return all[len(all)-1]
}

// G20: the pull request shows as a commit status which gate is closed and until when, at every service.
// A new hub shows it again, and what it showed is corrected when the gates are gone.
func TestG20ThePullRequestShowsTheGates(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			g, ctx, w, h := promotedByPullRequest(t, kind, nil)
			g.Expect(w.forge.Statuses()).To(BeEmpty(), "it has no gates")
			w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates = w.frozenFor(time.Hour) })
			until := w.clock.Now().Add(time.Hour).UTC().Format("Mon 2006-01-02 15:04") + " UTC"
			h.settle(ctx)
			p := w.newest(ctx, "staging")
			g.Expect(w.shown()).To(And(HaveField("Name", "capstan/gates"), HaveField("State", "pending"),
				HaveField("Description", `window "freeze" denies promotions; promotions are allowed again from `+until)))
			if kind != pipelinesv1.AzureDevOps {
				g.Expect(w.shown().SHA).To(Equal(p.Status.PullRequest.HeadSHA))
			}
			g.Expect(p.Status.GatesShown).To(Equal(&capstanv1.GatesShown{SHA: p.Status.PullRequest.HeadSHA}))
			shown := len(w.forge.Statuses())
			h.live(ctx, 30*time.Minute, 10*time.Minute)
			g.Expect(w.forge.Statuses()).To(HaveLen(shown), "nothing changed")
			h.live(ctx, 30*time.Minute+openWithin, 10*time.Minute)
			g.Expect(w.shown()).To(And(HaveField("State", "success"), HaveField("Description", "all gates are open")))

			w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates = frozen() })
			h.settle(ctx)
			g.Expect(w.shown().State).To(Equal("pending"))
			w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates = nil }) // While no hub runs.
			next := w.hub("next", w.c, nil)
			next.settle(ctx)
			g.Expect(w.shown().State).To(Equal("success"))
			shown = len(w.forge.Statuses())
			w.hub("third", w.c, nil).settle(ctx)
			g.Expect(w.forge.Statuses()).To(HaveLen(shown+1), "others may have changed it")
		})
	}
}

// G58: the service refuses the commit status. A condition says so, the promotion continues, and a
// success that is set by another client does not make the hub merge.
func TestG58TheCommitStatusIsRefused(t *testing.T) {
	t.Parallel()
	g, ctx := NewWithT(t), t.Context()
	w, h := pulled(t, pipelinesv1.GitHub, func(s *pipelinesv1.PullRequestPromotion) { s.AutoMerge = true }, "dev", "staging")
	w.forge.AddFault(providertest.Fault{Method: http.MethodPost, Path: "/statuses/", Status: http.StatusForbidden, Body: []byte(`{"message":"Resource not accessible by personal access token"}`)})
	w.hosted.once(http.MethodPost, "/pulls", func() {
		w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates = frozen() })
	})
	w.runs("dev", "1.1")
	h.settle(ctx)
	held := w.newest(ctx, "staging")
	g.Expect(held.Status).To(And(HaveField("Phase", capstanv1.PhaseAwaitingMerge), HaveField("Reason", "MergeHeld"), HaveField("GatesShown", BeNil())))
	g.Expect(held.Status.Conditions).To(ContainElement(And(HaveField("Type", capstanv1.GatesNotShownCondition), HaveField("Message", And(
		HavePrefix("the commit status capstan/gates cannot be set at "+held.Status.URL+": grant the right to set commit statuses"), ContainSubstring("Resource not accessible"))))))
	g.Expect(h.published()).To(ContainElement(HavePrefix("Warning GatesNotShown")))
	gates := w.pipeline(ctx, "web").Spec.Gates
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates, p.Spec.Suspend = nil, true })
	h.settle(ctx)
	g.Expect(w.newest(ctx, "staging").Status.Conditions).NotTo(ContainElement(HaveField("Type", capstanv1.GatesNotShownCondition)), "there is nothing to show")
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates, p.Spec.Suspend = gates, false })
	w.forge.ClearFaults()
	h.live(ctx, 2*time.Hour, 10*time.Minute)
	g.Expect(w.newest(ctx, "staging").Status).To(And(HaveField("Phase", capstanv1.PhaseAwaitingMerge),
		HaveField("GatesShown", Not(BeNil())), HaveField("Conditions", Not(ContainElement(HaveField("Type", capstanv1.GatesNotShownCondition))))))
	w.forge.SetStatus(providertest.Status{SHA: held.Status.PullRequest.HeadSHA, Name: "capstan/gates", State: "success"})
	h.live(ctx, time.Hour, 10*time.Minute)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingMerge)
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates = nil })
	h.live(ctx, openWithin, openWithin)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingRollout)
}

// A gate closes and opens while the Pipeline is suspended: the pull request shows it. Nothing else is done.
func TestASuspendedPipelineShowsItsGates(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := promotedByPullRequest(t, pipelinesv1.Gitea, nil)
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates, p.Spec.Suspend = w.frozenFor(time.Hour), true })
	end := w.clock.Now().Add(time.Hour)
	h.rest(ctx)
	g.Expect(w.shown().State).To(Equal("pending"))
	h.live(ctx, end.Sub(w.clock.Now())-time.Minute, 10*time.Minute)
	h.wakesBefore(ctx, g, end.Add(openWithin))
	h.live(ctx, time.Minute+openWithin, time.Minute)
	g.Expect(w.shown().State).To(Equal("success"))
	g.Expect(w.forge.PullRequests()[0].State).To(Equal(providertest.Open))
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingMerge)
}

// A window closes and opens while a promotion is Failed, whose pull request is open: status.gates and the
// pull request show it, and it is tried again when the gates are open.
func TestAFailedPromotionShowsItsGates(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := promotedByPullRequest(t, pipelinesv1.GitHub, nil)
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates = frozen() })
	w.edit(ctx, func(p *pipelinesv1.Pipeline) {
		p.Spec.Gates.Windows[0].From = w.clock.Now().Add(4 * time.Hour).UTC().Format(time.RFC3339)
		p.Spec.Gates.Windows[0].Until = w.clock.Now().Add(6 * time.Hour).UTC().Format(time.RFC3339)
	})
	h.settle(ctx)
	g.Expect(w.shown().State).To(Equal("success"))
	began := w.clock.Now()
	w.forge.AddFault(providertest.Fault{Method: http.MethodGet, Status: http.StatusForbidden})
	h.expectFailed(ctx, g)
	h.live(ctx, began.Add(4*time.Hour+10*time.Minute).Sub(w.clock.Now()), 10*time.Minute)
	p := w.newest(ctx, "staging")
	g.Expect(p.Status).To(And(HaveField("Phase", capstanv1.PhaseFailed), HaveField("ExpectedTime", BeNil()),
		HaveField("Gates", ConsistOf(HaveField("State", capstanv1.GateClosed)))))
	g.Expect(w.shown().State).To(Equal("pending"))
	h.wakesBefore(ctx, g, w.clock.Now().Add(5*time.Minute))
	w.forge.ClearFaults()
	h.live(ctx, time.Hour, 10*time.Minute)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseFailed, "it is not tried while a gate is closed")
	h.live(ctx, began.Add(6*time.Hour+10*time.Minute).Sub(w.clock.Now()), 10*time.Minute)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingMerge)
	g.Expect(w.shown().State).To(Equal("success"))
}

// A token is renewed in a freeze. The pull request that is open since before the token expired is
// followed: it shows the freeze, and a person who merges it is seen.
func TestATokenIsRenewedInAFreeze(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := promotedByPullRequest(t, pipelinesv1.GitHub, nil)
	w.token(ctx, "expired-token-000")
	h.expectFailed(ctx, g)
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates = frozen() })
	w.token(ctx, providertest.Token)
	h.rest(ctx)
	g.Expect(w.newest(ctx, "staging").Status).To(And(HaveField("Phase", capstanv1.PhaseAwaitingMerge), HaveField("Reason", "MergeHeld")))
	g.Expect(w.shown().State).To(Equal("pending"))
	w.forge.merge(w.forge.opened("staging")[0])
	h.rest(ctx)
	g.Expect(w.newest(ctx, "staging").Status.Reason).To(Equal(string(decision.MergedWhileClosed)))
}

// The service fails for hours while commit statuses are set. The state that is there when it answers
// again is shown within minutes.
func TestAStateIsShownSoonAfterAFailure(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := promotedByPullRequest(t, pipelinesv1.GitHub, nil)
	w.forge.AddFault(providertest.Fault{Method: http.MethodPost, Path: "/statuses/", Status: http.StatusForbidden})
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates = frozen() })
	h.live(ctx, 6*time.Hour, 10*time.Minute)
	g.Expect(w.forge.Statuses()).To(BeEmpty())
	w.forge.ClearFaults()
	h.live(ctx, 6*time.Minute, time.Minute)
	g.Expect(w.shown().State).To(Equal("pending"))
	w.forge.AddFault(providertest.Fault{Method: http.MethodPost, Path: "/statuses/", Status: http.StatusForbidden})
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates.Windows[0].Reason = "incident" })
	h.live(ctx, time.Hour, 10*time.Minute)
	w.forge.ClearFaults()
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates = nil })
	h.settle(ctx)
	g.Expect(w.shown().State).To(Equal("success"), "another state does not wait for the failures of the last one")
}
