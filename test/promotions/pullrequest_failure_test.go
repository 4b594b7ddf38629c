package promotions_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo/gittest"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider/providertest"
)

// A promotion with a wrong token, or without a Secret, fails. With the right one it starts
// again automatically, without a restart of the hub.
func TestChangedSecretStartsAgain(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]struct{ damage, fix func(context.Context, *world) }{
		"wrong token": {
			func(ctx context.Context, w *world) { w.token(ctx, "expired-token-000") },
			func(ctx context.Context, w *world) { w.token(ctx, providertest.Token) },
		},
		"no Secret": {
			func(ctx context.Context, w *world) { _ = w.c.Delete(ctx, w.secret(ctx)) },
			func(ctx context.Context, w *world) {
				secret := &corev1.Secret{Data: map[string][]byte{"token": []byte(providertest.Token), "caFile": w.forge.CA()}}
				secret.Namespace, secret.Name = w.ns, gitSecret
				_ = w.c.Create(ctx, secret)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, ctx := NewWithT(t), t.Context()
			w, h := pulled(t, pipelinesv1.GitHub, nil, "dev", "staging")
			change.damage(ctx, w)
			w.runs("dev", "1.1")
			p := h.last(ctx, time.Hour, capstanv1.PhaseFailed)
			g.Expect(p.Status.Phase).To(Equal(capstanv1.PhaseFailed))
			g.Expect(p.Status.Reason).To(BeElementOf("Unauthorized", "SecretNotFound"))
			g.Expect(p.Status.Secret).NotTo(BeNil())
			c := meta.FindStatusCondition(w.pipeline(ctx, "web").Status.Conditions, pipelinesv1.StalledCondition)
			g.Expect(c.Reason).To(Equal(pipelinesv1.PromotionFailedReason))
			g.Expect(c.Message).To(And(ContainSubstring("Secret "+gitSecret+" is changed"), ContainSubstring("raise spec.retry of Promotion "+p.Name)))
			h.expectNoRequest(g, "it is tried again after an hour", func() {
				h.rest(ctx)
			})

			change.fix(ctx, w)
			h.settle(ctx)
			w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingMerge)
			g.Expect(w.newest(ctx, "staging").Status.Secret).To(BeNil())
			g.Expect(meta.FindStatusCondition(w.pipeline(ctx, "web").Status.Conditions, pipelinesv1.StalledCondition)).To(BeNil())
			g.Expect(w.into(ctx, "staging")).To(HaveLen(1))
		})
	}
}

func (w *world) secret(ctx context.Context) *corev1.Secret {
	w.Helper()
	secret := &corev1.Secret{}
	if err := w.c.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: gitSecret}, secret); err != nil {
		w.Fatalf("%v", err)
	}
	return secret
}

func (w *world) token(ctx context.Context, token string) {
	w.Helper()
	secret := w.secret(ctx)
	secret.Data["token"] = []byte(token)
	if err := w.c.Update(ctx, secret); err != nil {
		w.Fatalf("%v", err)
	}
}

// A token expires while a pull request waits, and is renewed: the promotion continues with
// the same pull request.
func TestTokenExpiresWhileAPullRequestWaits(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := promotedByPullRequest(t, pipelinesv1.GitHub, nil)
	w.token(ctx, "expired-token-000")
	g.Expect(h.last(ctx, time.Hour, capstanv1.PhaseFailed).Status.Reason).To(Equal("Unauthorized"))
	w.token(ctx, providertest.Token)
	h.rest(ctx)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingMerge)
	g.Expect(w.forge.PullRequests()).To(HaveLen(1))
}

// A token expires while a pull request waits, and the source moves on to another revision:
// the pull request must not be merged. It is closed as soon as there is a valid token.
func TestFailedAndObsoleteIsWithdrawn(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := promotedByPullRequest(t, pipelinesv1.GitHub, nil)
	w.token(ctx, "expired-token-000")
	h.expectFailed(ctx, g)
	g.Expect(w.forge.PullRequests()[0].State).To(Equal(providertest.Open))
	w.runs("dev", "1.0")
	h.rest(ctx)
	w.token(ctx, providertest.Token)
	h.rest(ctx)
	g.Expect(w.newest(ctx, "staging").Status.Reason).To(Equal("SourceMovedOn"))
	g.Expect(w.forge.PullRequests()).To(HaveLen(1))
	g.Expect(w.forge.PullRequests()[0].State).To(Equal(providertest.Closed))
	g.Expect(w.newest(ctx, "staging").Status.Withdrawn).To(BeTrue())
}

// A promotion that failed for another reason than its credentials closes its open pull
// request when the source moves on to another revision.
func TestFailedIsWithdrawnWhenTheSourceMovesOn(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := promotedByPullRequest(t, pipelinesv1.Gitea, nil)
	w.forge.AddFault(providertest.Fault{Status: 403})
	h.expectFailed(ctx, g)
	w.forge.ClearFaults()
	g.Expect(w.forge.PullRequests()[0].State).To(Equal(providertest.Open), "it may begin again")
	w.runs("dev", "1.0")
	h.rest(ctx)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseFailed)
	g.Expect(w.newest(ctx, "staging").Status.Withdrawn).To(BeTrue())
	pr := w.forge.PullRequests()[0]
	g.Expect(pr.State).To(Equal(providertest.Closed))
	g.Expect(pr.Comments[0]).To(ContainSubstring("agreed on another revision"))
}

// An environment that reached the revision by another commit does not need the pull request:
// it is closed, with the reason. A merged pull request is requested once at most.
func TestSucceededByHandIsWithdrawn(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		meanwhile func(w *world)
		state     providertest.State
	}{
		"by a commit of a user": {func(w *world) {
			w.forge.Commit(gittest.Base, "by hand", map[string]string{manifestOf("staging"): w.manifest("staging", "1.1")})
		}, providertest.Closed},
		"merged, and rolled out before it was checked": {func(w *world) { w.forge.merge(1) }, providertest.Merged},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, ctx, w, h := promotedByPullRequest(t, pipelinesv1.Gitea, nil)
			tc.meanwhile(w)
			w.runs("staging", "1.1")
			h.rest(ctx)
			p := w.newest(ctx, "staging")
			g.Expect(p.Status.Phase).To(Equal(capstanv1.PhaseSucceeded))
			g.Expect(p.Status.Withdrawn).To(BeTrue())
			pr := w.forge.PullRequests()[0]
			g.Expect(pr.State).To(Equal(tc.state))
			if tc.state == providertest.Closed {
				g.Expect(pr.Comments).To(ConsistOf(ContainSubstring("runs 1.1")))
			} else {
				g.Expect(pr.Comments).To(BeEmpty())
			}
			h.expectNoRequest(g, "the promotion needs no more requests", func() {
				h.rest(ctx)
			})
		})
	}
}

// The hub observes a fix at the service or in the repository after an hour. The conditions
// say so, and how to start the promotion at once, and this works.
func TestConditionsSayHowToStartAgain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		damage, fix  func(w *world)
		reason, says string
	}{
		"rights at the service": {
			func(w *world) { w.forge.AddFault(providertest.Fault{Status: 403}) }, func(w *world) { w.forge.ClearFaults() },
			"Forbidden", "the hub tries again about every hour, and when the Secret git is changed; to try at once, raise spec.retry of Promotion ",
		},
		"a marker": {
			func(w *world) {
				w.forge.Commit(gittest.Base, "no marker", map[string]string{manifestOf("staging"): "a: b\n"})
			},
			func(w *world) {
				w.forge.Commit(gittest.Base, "marker", map[string]string{manifestOf("staging"): w.manifest("staging", "1.0")})
			},
			"NoMarker", "the hub tries again about every hour; to try at once, raise spec.retry of Promotion ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, ctx := NewWithT(t), t.Context()
			w, h := pulled(t, pipelinesv1.Gitea, nil, "dev", "staging")
			tc.damage(w)
			w.runs("dev", "1.1")
			p := h.last(ctx, time.Hour, capstanv1.PhaseFailed)
			g.Expect(p.Status.Reason).To(Equal(tc.reason))
			for _, conditions := range [][]metav1.Condition{p.Status.Conditions, w.pipeline(ctx, "web").Status.Conditions} {
				c := meta.FindStatusCondition(conditions, capstanv1.StalledCondition)
				g.Expect(c).NotTo(BeNil())
				g.Expect(c.Message).To(ContainSubstring(tc.says + p.Name))
			}
			tc.fix(w)
			h.rest(ctx)
			w.expectPhase(ctx, g, "staging", capstanv1.PhaseFailed)
			retry(ctx, g, w, w.newest(ctx, "staging"))
			h.settle(ctx)
			w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingMerge)
		})
	}
}

// After an edit of the Pipeline, a promotion with the next number starts.
func TestEditedPipelineStartsAgain(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := promotedByPullRequest(t, pipelinesv1.Gitea, func(s *pipelinesv1.PullRequestPromotion) { s.BaseBranch = "release" })
	g.Expect(w.newest(ctx, "staging").Status.Reason).To(Equal("BaseBranchMissing"))
	p := w.pipeline(ctx, "web")
	before := p.DeepCopy()
	p.Spec.Promotion.Strategy.PullRequest.BaseBranch = gittest.Base
	g.Expect(w.c.Patch(ctx, p, client.MergeFrom(before))).To(Succeed())
	h.settle(ctx)
	g.Expect(w.newest(ctx, "staging").Spec.Number).To(Equal(int64(2)))
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingMerge)
}

// A user's commits on the branch are shown on the Promotion and the Pipeline, and the
// promotion still succeeds when the user merges.
func TestForeignCommitsStallUntilMerged(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := promotedByPullRequest(t, pipelinesv1.GitHub, nil)
	pr := w.forge.PullRequests()[0]
	w.forge.Commit(pr.Head, "one more thing", map[string]string{"more.yaml": "a: b\n"})
	h.rest(ctx)
	p := w.newest(ctx, "staging")
	g.Expect(p.Status.Phase).To(Equal(capstanv1.PhaseAwaitingMerge))
	g.Expect(p.Status.Reason).To(Equal("BranchModified"))
	stalled := meta.FindStatusCondition(p.Status.Conditions, capstanv1.StalledCondition)
	g.Expect(stalled).NotTo(BeNil())
	g.Expect(stalled.Reason).To(Equal("BranchModified"))
	c := meta.FindStatusCondition(w.pipeline(ctx, "web").Status.Conditions, pipelinesv1.StalledCondition)
	g.Expect(c.Message).To(ContainSubstring("commits that are not the hub's"))
	w.forge.merge(1)
	h.rest(ctx)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingRollout)
}

// A service that fails for a minute: a bounded number of attempts, then the promotion
// continues.
func TestServiceFailsForAMinute(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]providertest.Fault{
		"500": {Status: 500}, "502": {Status: 502, Body: []byte("<html>")}, "429": {Status: 429},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, ctx := NewWithT(t), t.Context()
			w, h := pulled(t, pipelinesv1.GitLab, nil, "dev", "staging")
			w.forge.AddFault(fault)
			w.runs("dev", "1.1")
			for range 12 {
				h.settle(ctx)
				w.clock.Step(5 * time.Second)
			}
			p := w.newest(ctx, "staging")
			g.Expect(p.Status.Phase).To(Equal(capstanv1.PhasePromoting))
			g.Expect(p.Status.Reason).To(Equal("Retrying"))
			g.Expect(p.Status.Attempt.Number).To(BeNumerically("<=", 5))
			w.forge.ClearFaults()
			h.rest(ctx)
			w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingMerge)
			g.Expect(w.forge.PullRequests()).To(HaveLen(1))
		})
	}
}

func TestSuspendBlocksPullRequests(t *testing.T) {
	t.Parallel()
	g, ctx, w, h := promotedByPullRequest(t, pipelinesv1.GitHub, nil)
	p := w.pipeline(ctx, "web")
	before := p.DeepCopy()
	p.Spec.Suspend = true
	g.Expect(w.c.Patch(ctx, p, client.MergeFrom(before))).To(Succeed())
	w.runs("dev", "1.0")
	h.rest(ctx)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseSuperseded)
	g.Expect(w.forge.PullRequests()[0].State).To(Equal(providertest.Open), "no outside step")
	before = p.DeepCopy()
	p.Spec.Suspend = false
	g.Expect(w.c.Patch(ctx, p, client.MergeFrom(before))).To(Succeed())
	h.rest(ctx)
	g.Expect(w.forge.PullRequests()[0].State).To(Equal(providertest.Closed))
}
