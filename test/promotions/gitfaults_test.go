package promotions_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo/gittest"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider/providertest"
)

// faultStep is the step of the clock while a fault lasts: the longest backoff, without its
// jitter.
const faultStep = 10 * time.Minute

// last settles at each step of the clock for a time, or until the newest promotion into
// staging is in a phase.
func (h *hubUnder) last(ctx context.Context, d time.Duration, until capstanv1.PromotionPhase) capstanv1.Promotion {
	h.w.Helper()
	h.settle(ctx)
	for end := h.w.clock.Now().Add(d); h.w.clock.Now().Before(end) && h.w.newest(ctx, "staging").Status.Phase != until; {
		h.w.clock.Step(faultStep)
		h.settle(ctx)
	}
	return h.w.newest(ctx, "staging")
}

// What each failure of a service leads to, before there is a pull request and while it is
// polled. In the end the promotion waits for its one pull request, without any act of a
// user at the hub.
func TestFaultsOfAService(t *testing.T) {
	t.Parallel()
	body := []byte(`{"message":"no"}`)
	const (
		soon = 10 * time.Minute
		hour = 80 * time.Minute // With jitter, and a step of the clock.
	)
	for name, tc := range map[string]struct {
		fault providertest.Fault
		// lasts is how long the fault lasts, if it does not happen a number of times.
		lasts time.Duration
		// phase and reason when the fault ends, before there is a pull request.
		phase  capstanv1.PromotionPhase
		reason string
		// heals bounds the time from then until the promotion waits for its pull request.
		heals time.Duration
		// polled is false for faults that no read meets.
		polled bool
	}{
		"401 once":                   {providertest.Fault{Status: 401, Body: body, Times: 1}, 0, capstanv1.PhasePromoting, "Retrying", soon, true},
		"403 once":                   {providertest.Fault{Status: 403, Body: body, Times: 1}, 0, capstanv1.PhasePromoting, "Retrying", soon, true},
		"404 three times":            {providertest.Fault{Status: 404, Body: body, Times: 3}, 0, capstanv1.PhasePromoting, "Retrying", soon, false},
		"401 for 20 minutes":         {providertest.Fault{Status: 401, Body: body}, 20 * time.Minute, capstanv1.PhasePromoting, "Retrying", 20 * time.Minute, true},
		"401 for an hour":            {providertest.Fault{Status: 401, Body: body}, time.Hour, capstanv1.PhaseFailed, "Unauthorized", hour, true},
		"403 for an hour":            {providertest.Fault{Status: 403, Body: body}, time.Hour, capstanv1.PhaseFailed, "Forbidden", hour, true},
		"404 for an hour":            {providertest.Fault{Status: 404, Body: body}, time.Hour, capstanv1.PhaseFailed, "RepositoryNotFound", hour, false},
		"405 for an hour":            {providertest.Fault{Status: 405, Body: body}, time.Hour, capstanv1.PhaseFailed, "RepositoryNotFound", hour, false},
		"401 of Git for an hour":     {providertest.Fault{Path: "/info/refs", Status: 401}, time.Hour, capstanv1.PhaseFailed, "Unauthorized", hour, false},
		"409 for an hour":            {providertest.Fault{Method: http.MethodPost, Path: "/pulls", Status: 409, Body: body}, time.Hour, capstanv1.PhasePromoting, "Retrying", 20 * time.Minute, false},
		"422 once":                   {providertest.Fault{Method: http.MethodPost, Path: "/pulls", Status: 422, Body: body, Times: 1}, 0, capstanv1.PhasePromoting, "Retrying", soon, false},
		"422 for an hour":            {providertest.Fault{Method: http.MethodPost, Path: "/pulls", Status: 422, Body: body}, time.Hour, capstanv1.PhaseFailed, "PullRequestRefused", hour, false},
		"429 without Retry-After":    {providertest.Fault{Status: 429, Body: body, Times: 1}, 0, capstanv1.PhasePromoting, "Retrying", soon, true},
		"429 for 900 seconds":        {providertest.Fault{Status: 429, Header: http.Header{"Retry-After": {"900"}}, Body: body, Times: 1}, 0, capstanv1.PhasePromoting, "Retrying", 24 * time.Minute, true},
		"429 until a date":           {providertest.Fault{Status: 429, Header: http.Header{"Date": {"Mon, 02 Jan 2006 15:04:05 GMT"}, "Retry-After": {"Mon, 02 Jan 2006 15:19:05 GMT"}}, Body: body, Times: 1}, 0, capstanv1.PhasePromoting, "Retrying", 24 * time.Minute, true},
		"429 for an hour":            {providertest.Fault{Status: 429, Body: body}, time.Hour, capstanv1.PhasePromoting, "Retrying", 20 * time.Minute, true},
		"500 for an hour":            {providertest.Fault{Status: 500, Body: body}, time.Hour, capstanv1.PhasePromoting, "Retrying", 20 * time.Minute, true},
		"503 for an hour of Git":     {providertest.Fault{Path: "/info/refs", Status: 503}, time.Hour, capstanv1.PhasePromoting, "Retrying", 20 * time.Minute, false},
		"no connection for an hour":  {providertest.Fault{Reset: true}, time.Hour, capstanv1.PhasePromoting, "Retrying", 20 * time.Minute, true},
		"no marker in the manifests": {providertest.Fault{}, time.Hour, capstanv1.PhaseFailed, "NoMarker", hour, false},
	} {
		for _, open := range []bool{false, true} {
			if open && !tc.polled {
				continue
			}
			at := " before a pull request"
			if open {
				at = " of polls"
			}
			t.Run(name+at, func(t *testing.T) {
				t.Parallel()
				g, ctx := NewWithT(t), t.Context()
				w, h := pulled(t, pipelinesv1.Gitea, nil, "dev", "staging")
				if open {
					w.runs("dev", "1.1")
					h.settle(ctx)
					w.clock.Step(faultStep)
				}
				if tc.reason == "NoMarker" {
					w.forge.Commit(gittest.Base, "no marker", map[string]string{manifestOf("staging"): "a: b\n"})
				} else {
					w.forge.AddFault(tc.fault)
				}
				w.runs("dev", "1.1")
				p := h.last(ctx, tc.lasts, "")
				want := tc.phase
				if open && want == capstanv1.PhasePromoting {
					want = capstanv1.PhaseAwaitingMerge
				}
				g.Expect(p.Status.Phase).To(Equal(want), p.Status.Message)
				if !open {
					g.Expect(p.Status.Reason).To(Equal(tc.reason), p.Status.Message)
				}
				if want == capstanv1.PhaseFailed {
					g.Expect(meta.IsStatusConditionTrue(p.Status.Conditions, capstanv1.StalledCondition)).To(BeTrue())
					g.Expect(p.Status.Message).To(ContainSubstring("the hub tries again about every hour"))
					g.Expect(p.Status.Failure.RetryTime).NotTo(BeNil())
				}
				w.forge.ClearFaults()
				if tc.reason == "NoMarker" {
					w.forge.Commit(gittest.Base, "marker", map[string]string{manifestOf("staging"): w.manifest("staging", "1.0")})
				}
				p = h.last(ctx, tc.heals, capstanv1.PhaseAwaitingMerge)
				g.Expect(p.Status.Phase).To(Equal(capstanv1.PhaseAwaitingMerge), p.Status.Message)
				h.last(ctx, soon, "")
				p = w.newest(ctx, "staging")
				g.Expect(p.Status.Reason).To(Equal("PullRequestOpened"), p.Status.Message)
				g.Expect(p.Status.Failure).To(BeNil())
				g.Expect(p.Status.FinishTime).To(BeNil())
				g.Expect(w.into(ctx, "staging")).To(HaveLen(1))
				g.Expect(w.forge.PullRequests()).To(HaveLen(1))
			})
		}
	}
}

// While refusals are retried, the message says what was refused, how often, and when the
// promotion becomes Failed.
func TestRefusalsAreCountedInTheMessage(t *testing.T) {
	t.Parallel()
	g, ctx := NewWithT(t), t.Context()
	w, h := pulled(t, pipelinesv1.Gitea, nil, "dev", "staging")
	w.forge.AddFault(providertest.Fault{Status: 404, Body: []byte(`{"message":"Not Found"}`)})
	w.runs("dev", "1.1")
	p := h.last(ctx, 2*faultStep, "")
	g.Expect(p.Status.Message).To(And(
		ContainSubstring("repository fleet/apps not found, or the token cannot see it (404)"),
		ContainSubstring("failures in sequence: 3 since "), ContainSubstring("the promotion becomes Failed after 5 over 30 minutes")))
	g.Expect(p.Status.Failure.Count).To(Equal(int64(3)))
}

// A failed promotion is tried about once an hour, not more often, and writes little.
func TestAFailedPromotionIsTriedHourly(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := promotedByPullRequest(t, pipelinesv1.Gitea, func(s *pipelinesv1.PullRequestPromotion) { s.BaseBranch = "release" })
	first := w.newest(ctx, "staging")
	g.Expect(first.Status.Reason).To(Equal("BaseBranchMissing"))
	p := h.last(ctx, 12*time.Hour, "")
	g.Expect(p.Status.Attempt.Number - first.Status.Attempt.Number).To(And(BeNumerically(">=", 8), BeNumerically("<=", 12)))
	g.Expect(p.Status.FinishTime).To(Equal(first.Status.FinishTime), "it stays Failed, with one Event")
}

// A person merges or closes the pull request of a failed promotion.
func TestThePullRequestOfAFailedPromotionIsFollowed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		act   func(w *world)
		phase capstanv1.PromotionPhase
	}{
		"merged": {func(w *world) { w.forge.merge(1) }, capstanv1.PhaseAwaitingRollout},
		"closed": {func(w *world) { w.forge.SetState(1, providertest.Closed) }, capstanv1.PhaseRejected},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, ctx, w, h := promotedByPullRequest(t, pipelinesv1.Gitea, nil)
			w.forge.AddFault(providertest.Fault{Status: 401})
			h.expectFailed(ctx, g)
			w.forge.ClearFaults()
			tc.act(w)
			g.Expect(h.last(ctx, 30*time.Minute, tc.phase).Status.Phase).To(Equal(tc.phase))
		})
	}
}

// The environment of a failed promotion runs the revision, because a user put it there.
func TestFailedBecomesSucceeded(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := promotedByPullRequest(t, pipelinesv1.Gitea, func(s *pipelinesv1.PullRequestPromotion) { s.BaseBranch = "release" })
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseFailed)
	w.runs("staging", "1.1")
	h.settle(ctx)
	p := w.newest(ctx, "staging")
	g.Expect(p.Status.Phase).To(Equal(capstanv1.PhaseSucceeded))
	g.Expect(p.Status.Failure).To(BeNil())
	g.Expect(meta.FindStatusCondition(p.Status.Conditions, capstanv1.StalledCondition)).To(BeNil())
}

// A renewed token is used at once, also while the hub waits to retry.
func TestRenewedTokenEndsTheBackoff(t *testing.T) {
	t.Parallel()
	g, ctx := NewWithT(t), t.Context()
	w, h := pulled(t, pipelinesv1.GitHub, nil, "dev", "staging")
	w.token(ctx, "expired-token-000")
	w.runs("dev", "1.1")
	p := h.last(ctx, 2*faultStep, "")
	g.Expect(p.Status.Reason).To(Equal("Retrying"))
	g.Expect(p.Status.Secret).NotTo(BeNil())
	w.token(ctx, providertest.Token)
	h.settle(ctx) // The clock stands still.
	p = w.newest(ctx, "staging")
	g.Expect(p.Status.Phase).To(Equal(capstanv1.PhaseAwaitingMerge), p.Status.Message)
	g.Expect(p.Status.Secret).To(BeNil())
}
