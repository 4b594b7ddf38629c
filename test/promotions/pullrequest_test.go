package promotions_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/strategy"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider/providertest"
)

const (
	// pollStep is longer than the first interval between checks of a pull request.
	pollStep = 20 * time.Second
	// claimStep is longer than an attempt by pull request blocks others, and than
	// any pull request waits for its check.
	claimStep = 7 * time.Minute
)

// rest settles, and moves the clock twice by claimStep, so that waits end.
func (h *hubUnder) rest(ctx context.Context) {
	h.w.Helper()
	for range 2 {
		h.settle(ctx)
		h.w.clock.Step(claimStep)
	}
	h.settle(ctx)
}

// pulled is a world with a forge and a Pipeline of environments that run 1.0.
func pulled(t *testing.T, kind pipelinesv1.GitProviderType, change func(*pipelinesv1.PullRequestPromotion), envs ...string) (*world, *hubUnder) {
	t.Helper()
	w := newWorld(t, t)
	newForge(t, w, kind, envs[1:]...)
	return w, w.began(t.Context(), w.newPipeline("web", w.pull(change), envs...))
}

func TestPullRequestsPromoteToTheLastEnvironment(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			g, ctx := NewWithT(t), t.Context()
			w, h := pulled(t, kind, nil, "dev", "staging", "prod")
			w.runs("dev", "1.1")
			for _, env := range []string{"staging", "prod"} {
				h.settle(ctx)
				p := w.newest(ctx, env)
				g.Expect(p.Status.Phase).To(Equal(capstanv1.PhaseAwaitingMerge), p.Status.Message)
				g.Expect(p.Status.URL).To(ContainSubstring("https://127.0.0.1"))
				g.Expect(p.Status.PullRequest.HeadSHA).NotTo(BeEmpty())
				g.Expect(w.pipeline(ctx, "web").Status.Environments[env].Promotion.URL).To(Equal(p.Status.URL))
				open := w.forge.opened(env)
				g.Expect(open).To(HaveLen(1))
				w.forge.merge(open[0])
				h.rest(ctx)
				w.expectPhase(ctx, g, env, capstanv1.PhaseAwaitingRollout)
				g.Expect(w.newest(ctx, env).Status.Reason).To(Equal("PullRequestMerged"))
				w.runs(env, w.forge.wants(env))
				h.settle(ctx)
				w.expectPhase(ctx, g, env, capstanv1.PhaseSucceeded)
			}
			g.Expect(w.forge.PullRequests()).To(HaveLen(2))
		})
	}
}

// An open pull request causes a few reads from time to time, and no writes to the API server.
func TestAnOpenPullRequestWritesNothing(t *testing.T) {
	t.Parallel()
	g, ctx := NewWithT(t), t.Context()
	w, h := pulled(t, pipelinesv1.GitHub, nil, "dev", "staging")
	w.runs("dev", "1.1")
	h.rest(ctx)
	before, version := len(w.forge.Requests()), w.newest(ctx, "staging").ResourceVersion
	const minutes = 29 // Older than 30, it is called stalled.
	for range minutes - 2*7 {
		h.pass(ctx)
		h.pass(ctx)
		w.clock.Step(time.Minute)
	}
	g.Expect(w.newest(ctx, "staging").ResourceVersion).To(Equal(version))
	requests := len(w.forge.Requests()) - before
	g.Expect(requests).To(BeNumerically(">=", 1))
	g.Expect(requests).To(BeNumerically("<=", 8))
}

func TestClosedByHandIsRejected(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := promotedByPullRequest(t, pipelinesv1.Gitea, nil)
	w.forge.SetState(1, providertest.Closed)
	h.rest(ctx)
	p := w.newest(ctx, "staging")
	g.Expect(p.Status.Phase).To(Equal(capstanv1.PhaseRejected))
	g.Expect(w.forge.PullRequests()).To(HaveLen(1), "not opened again")
	retry(ctx, g, w, p)
	h.settle(ctx)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingMerge)
	g.Expect(w.forge.PullRequests()).To(HaveLen(2), "a retry is another act")
}

// Superseded: the pull request is closed with the reason, also after repeated failures.
func TestSupersededIsWithdrawn(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := promotedByPullRequest(t, pipelinesv1.GitHub, nil)
	w.forge.AddFault(providertest.Fault{Method: "PATCH", Status: 502, Times: 2})
	w.runs("dev", "1.0")
	h.rest(ctx)
	p := w.newest(ctx, "staging")
	g.Expect(p.Status.Phase).To(Equal(capstanv1.PhaseSuperseded))
	g.Expect(p.Status.Reason).To(Equal("SourceMovedOn"))
	h.rest(ctx)
	g.Expect(w.newest(ctx, "staging").Status.Withdrawn).To(BeTrue())
	pr := w.forge.PullRequests()[0]
	g.Expect(pr.State).To(Equal(providertest.Closed))
	g.Expect(pr.Comments[0]).To(ContainSubstring("agreed on another revision"))
	h.expectNoRequest(g, "the promotion needs no more requests", func() {
		h.rest(ctx)
	})
}

// A Pipeline that is deleted leaves no pull request open.
func TestDeletedPipelineIsWithdrawn(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := promotedByPullRequest(t, pipelinesv1.GitLab, nil)
	g.Expect(w.c.Delete(ctx, w.pipeline(ctx, "web"))).To(Succeed())
	h.rest(ctx)
	g.Expect(w.newest(ctx, "staging").Status.Reason).To(Equal("PipelineDeleted"))
	g.Expect(w.forge.PullRequests()[0].State).To(Equal(providertest.Closed))
}

// The next revision replaces the last one: one branch has one pull request.
func TestNewerRevisionTakesOver(t *testing.T) {
	t.Parallel()
	g, ctx := NewWithT(t), t.Context()
	w, h := pulled(t, pipelinesv1.GitHub, nil, "dev", "staging")
	for _, revision := range []string{"1.1", "1.2", "1.3"} {
		w.runs("dev", revision)
		h.rest(ctx)
	}
	g.Expect(w.forge.opened("staging")).To(HaveLen(1))
	g.Expect(w.forge.doubled()).To(BeEmpty())
	p := w.newest(ctx, "staging")
	g.Expect(p.Spec.Revision).To(Equal("1.3"))
	g.Expect(w.forge.PullRequests()[w.forge.opened("staging")[0]-1].Body).To(ContainSubstring("Promotion-ID: " + strategy.Identity(&p)))
	for _, old := range w.into(ctx, "staging")[:2] {
		g.Expect(old.Status.Phase).To(Equal(capstanv1.PhaseSuperseded))
		g.Expect(old.Status.Withdrawn).To(BeTrue())
	}
}
