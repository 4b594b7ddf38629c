package hub_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/strategy"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo/gittest"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider/providertest"
)

const (
	// pollStep lets an open pull request be looked at.
	pollStep = 20 * time.Second
	// claimStep is longer than an attempt by pull request holds its place, and than
	// any pull request waits to be looked at.
	claimStep = 7 * time.Minute
)

// rest settles, and lets the time come for whatever waits for it.
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

func TestPullRequestsCarryARevisionToTheEnd(t *testing.T) {
	for _, kind := range []pipelinesv1.GitProviderType{
		pipelinesv1.GitHub, pipelinesv1.GitLab, pipelinesv1.Gitea, pipelinesv1.AzureDevOps, pipelinesv1.BitbucketServer,
	} {
		t.Run(string(kind), func(t *testing.T) {
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
				g.Expect(w.newest(ctx, env).Status.Phase).To(Equal(capstanv1.PhaseAwaitingRollout))
				g.Expect(w.newest(ctx, env).Status.Reason).To(Equal("PullRequestMerged"))
				w.runs(env, w.forge.wants(env))
				h.settle(ctx)
				g.Expect(w.newest(ctx, env).Status.Phase).To(Equal(capstanv1.PhaseSucceeded))
			}
			g.Expect(w.forge.PullRequests()).To(HaveLen(2))
		})
	}
}

// An open pull request is a few reads now and then, and no writes to the API server.
func TestAnOpenPullRequestWritesNothing(t *testing.T) {
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
	looks := len(w.forge.Requests()) - before
	g.Expect(looks).To(BeNumerically(">=", 1))
	g.Expect(looks).To(BeNumerically("<=", 8))
}

func TestClosedByHandIsRejected(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	w, h := pulled(t, pipelinesv1.Gitea, nil, "dev", "staging")
	w.runs("dev", "1.1")
	h.settle(ctx)
	w.forge.SetState(1, providertest.Closed)
	h.rest(ctx)
	p := w.newest(ctx, "staging")
	g.Expect(p.Status.Phase).To(Equal(capstanv1.PhaseRejected))
	g.Expect(w.forge.PullRequests()).To(HaveLen(1), "not opened again")
	retry(ctx, g, w, p)
	h.settle(ctx)
	g.Expect(w.newest(ctx, "staging").Status.Phase).To(Equal(capstanv1.PhaseAwaitingMerge))
	g.Expect(w.forge.PullRequests()).To(HaveLen(2), "a retry is another act")
}

// Superseded: the pull request is closed with the reason, however often that fails.
func TestSupersededIsWithdrawn(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	w, h := pulled(t, pipelinesv1.GitHub, nil, "dev", "staging")
	w.runs("dev", "1.1")
	h.settle(ctx)
	w.forge.Lay(providertest.Fault{Method: "PATCH", Status: 502, Times: 2})
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
	before := len(w.forge.Requests())
	h.rest(ctx)
	g.Expect(w.forge.Requests()).To(HaveLen(before), "done is done")
}

// A Pipeline that is deleted leaves no pull request open.
func TestDeletedPipelineIsWithdrawn(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	w, h := pulled(t, pipelinesv1.GitLab, nil, "dev", "staging")
	w.runs("dev", "1.1")
	h.settle(ctx)
	g.Expect(w.c.Delete(ctx, w.pipeline(ctx, "web"))).To(Succeed())
	h.rest(ctx)
	g.Expect(w.newest(ctx, "staging").Status.Reason).To(Equal("PipelineDeleted"))
	g.Expect(w.forge.PullRequests()[0].State).To(Equal(providertest.Closed))
}

// The next revision takes the last one's place: of one branch, one pull request.
func TestNewerRevisionTakesOver(t *testing.T) {
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

// A wrong token stops at once, and the right one goes on by itself, without a restart.
func TestChangedSecretBeginsAgain(t *testing.T) {
	for name, change := range map[string]struct{ spoil, mend func(context.Context, *world) }{
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
			g, ctx := NewWithT(t), t.Context()
			w, h := pulled(t, pipelinesv1.GitHub, nil, "dev", "staging")
			change.spoil(ctx, w)
			w.runs("dev", "1.1")
			h.settle(ctx)
			p := w.newest(ctx, "staging")
			g.Expect(p.Status.Phase).To(Equal(capstanv1.PhaseFailed))
			g.Expect(p.Status.Reason).To(BeElementOf("Unauthorized", "SecretNotFound"))
			g.Expect(p.Status.Secret).NotTo(BeNil())
			c := meta.FindStatusCondition(w.pipeline(ctx, "web").Status.Conditions, pipelinesv1.StalledCondition)
			g.Expect(c.Reason).To(Equal(pipelinesv1.PromotionFailedReason))
			g.Expect(c.Message).To(And(ContainSubstring("Secret "+gitSecret+" is changed"), ContainSubstring("raise spec.retry of Promotion "+p.Name)))
			before := len(w.forge.Requests())
			h.rest(ctx)
			g.Expect(w.forge.Requests()).To(HaveLen(before), "what cannot heal is not repeated")

			change.mend(ctx, w)
			h.settle(ctx)
			g.Expect(w.newest(ctx, "staging").Status.Phase).To(Equal(capstanv1.PhaseAwaitingMerge))
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

// A token that expires while a pull request waits, and is renewed: the same pull
// request goes on.
func TestTokenExpiresWhileAPullRequestWaits(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	w, h := pulled(t, pipelinesv1.GitHub, nil, "dev", "staging")
	w.runs("dev", "1.1")
	h.settle(ctx)
	w.token(ctx, "expired-token-000")
	h.rest(ctx)
	g.Expect(w.newest(ctx, "staging").Status.Reason).To(Equal("Unauthorized"))
	w.token(ctx, providertest.Token)
	h.rest(ctx)
	g.Expect(w.newest(ctx, "staging").Status.Phase).To(Equal(capstanv1.PhaseAwaitingMerge))
	g.Expect(w.forge.PullRequests()).To(HaveLen(1))
}

// A token that expires while a pull request waits for a revision that the source
// leaves: nobody is to merge it. It is closed as soon as there is a valid token.
func TestFailedAndObsoleteIsWithdrawn(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	w, h := pulled(t, pipelinesv1.GitHub, nil, "dev", "staging")
	w.runs("dev", "1.1")
	h.settle(ctx)
	w.token(ctx, "expired-token-000")
	h.rest(ctx)
	g.Expect(w.newest(ctx, "staging").Status.Phase).To(Equal(capstanv1.PhaseFailed))
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

// What failed for another reason than its credentials, with its pull request open,
// takes it back when the source leaves the revision.
func TestFailedIsWithdrawnWhenTheSourceMovesOn(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	w, h := pulled(t, pipelinesv1.Gitea, nil, "dev", "staging")
	w.runs("dev", "1.1")
	h.settle(ctx)
	w.forge.Lay(providertest.Fault{Status: 403, Times: 1})
	h.rest(ctx)
	g.Expect(w.newest(ctx, "staging").Status.Phase).To(Equal(capstanv1.PhaseFailed))
	g.Expect(w.forge.PullRequests()[0].State).To(Equal(providertest.Open), "it may begin again")
	w.runs("dev", "1.0")
	h.rest(ctx)
	g.Expect(w.newest(ctx, "staging").Status.Phase).To(Equal(capstanv1.PhaseFailed))
	g.Expect(w.newest(ctx, "staging").Status.Withdrawn).To(BeTrue())
	pr := w.forge.PullRequests()[0]
	g.Expect(pr.State).To(Equal(providertest.Closed))
	g.Expect(pr.Comments[0]).To(ContainSubstring("agreed on another revision"))
}

// An environment that is brought to the revision by hand needs the pull request no
// more: it is closed, with the reason. One that was merged is asked about once at most.
func TestSucceededByHandIsWithdrawn(t *testing.T) {
	for name, tc := range map[string]struct {
		meanwhile func(w *world)
		state     providertest.State
	}{
		"by hand": {func(*world) {}, providertest.Closed},
		"merged, and rolled out before it was looked at": {func(w *world) { w.forge.merge(1) }, providertest.Merged},
	} {
		t.Run(name, func(t *testing.T) {
			g, ctx := NewWithT(t), t.Context()
			w, h := pulled(t, pipelinesv1.Gitea, nil, "dev", "staging")
			w.runs("dev", "1.1")
			h.settle(ctx)
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
			before := len(w.forge.Requests())
			h.rest(ctx)
			g.Expect(w.forge.Requests()).To(HaveLen(before), "done is done")
		})
	}
}

// What was mended at the service, or in the repository, is not seen by the hub: the
// conditions say how it begins again, and so it does.
func TestConditionsTellHowItBeginsAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil, mend  func(w *world)
		reason, says string
	}{
		"rights at the service": {
			func(w *world) { w.forge.Lay(providertest.Fault{Status: 403}) }, func(w *world) { w.forge.Mend() },
			"Forbidden", "where something else is mended, as rights at the Git service, raise spec.retry of Promotion ",
		},
		"a marker": {
			func(w *world) {
				w.forge.Commit(gittest.Base, "no marker", map[string]string{manifestOf("staging"): "a: b\n"})
			},
			func(w *world) {
				w.forge.Commit(gittest.Base, "marker", map[string]string{manifestOf("staging"): w.manifest("staging", "1.0")})
			},
			"NoMarker", "once that is mended, raise spec.retry of Promotion ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, ctx := NewWithT(t), t.Context()
			w, h := pulled(t, pipelinesv1.Gitea, nil, "dev", "staging")
			tc.spoil(w)
			w.runs("dev", "1.1")
			h.settle(ctx)
			p := w.newest(ctx, "staging")
			g.Expect(p.Status.Reason).To(Equal(tc.reason))
			for _, conditions := range [][]metav1.Condition{p.Status.Conditions, w.pipeline(ctx, "web").Status.Conditions} {
				c := meta.FindStatusCondition(conditions, capstanv1.StalledCondition)
				g.Expect(c).NotTo(BeNil())
				g.Expect(c.Message).To(ContainSubstring(tc.says + p.Name))
			}
			tc.mend(w)
			h.rest(ctx)
			g.Expect(w.newest(ctx, "staging").Status.Phase).To(Equal(capstanv1.PhaseFailed))
			retry(ctx, g, w, w.newest(ctx, "staging"))
			h.settle(ctx)
			g.Expect(w.newest(ctx, "staging").Status.Phase).To(Equal(capstanv1.PhaseAwaitingMerge))
		})
	}
}

// What was edited in the Pipeline begins under the next number.
func TestEditedPipelineBeginsAgain(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	w, h := pulled(t, pipelinesv1.Gitea, func(s *pipelinesv1.PullRequestPromotion) { s.BaseBranch = "release" }, "dev", "staging")
	w.runs("dev", "1.1")
	h.settle(ctx)
	g.Expect(w.newest(ctx, "staging").Status.Reason).To(Equal("BaseBranchMissing"))
	p := w.pipeline(ctx, "web")
	before := p.DeepCopy()
	p.Spec.Promotion.Strategy.PullRequest.BaseBranch = gittest.Base
	g.Expect(w.c.Patch(ctx, p, client.MergeFrom(before))).To(Succeed())
	h.settle(ctx)
	g.Expect(w.newest(ctx, "staging").Spec.Number).To(Equal(int64(2)))
	g.Expect(w.newest(ctx, "staging").Status.Phase).To(Equal(capstanv1.PhaseAwaitingMerge))
}

// A person's commits on the branch are shown on the Promotion and the Pipeline, and
// the promotion still ends when that person merges.
func TestAPersonsCommitsStallAndGoOn(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	w, h := pulled(t, pipelinesv1.GitHub, nil, "dev", "staging")
	w.runs("dev", "1.1")
	h.settle(ctx)
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
	g.Expect(w.newest(ctx, "staging").Status.Phase).To(Equal(capstanv1.PhaseAwaitingRollout))
}

// A service that fails for a minute: bounded attempts, then it goes on.
func TestServiceFailsForAMinute(t *testing.T) {
	for name, fault := range map[string]providertest.Fault{
		"500": {Status: 500}, "502": {Status: 502, Body: []byte("<html>")}, "429": {Status: 429},
	} {
		t.Run(name, func(t *testing.T) {
			g, ctx := NewWithT(t), t.Context()
			w, h := pulled(t, pipelinesv1.GitLab, nil, "dev", "staging")
			w.forge.Lay(fault)
			w.runs("dev", "1.1")
			for range 12 {
				h.settle(ctx)
				w.clock.Step(5 * time.Second)
			}
			p := w.newest(ctx, "staging")
			g.Expect(p.Status.Phase).To(Equal(capstanv1.PhasePromoting))
			g.Expect(p.Status.Reason).To(Equal("Retrying"))
			g.Expect(p.Status.Attempt.Number).To(BeNumerically("<=", 5))
			w.forge.Mend()
			h.rest(ctx)
			g.Expect(w.newest(ctx, "staging").Status.Phase).To(Equal(capstanv1.PhaseAwaitingMerge))
			g.Expect(w.forge.PullRequests()).To(HaveLen(1))
		})
	}
}

func TestSuspendHoldsPullRequests(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	w, h := pulled(t, pipelinesv1.GitHub, nil, "dev", "staging")
	w.runs("dev", "1.1")
	h.settle(ctx)
	p := w.pipeline(ctx, "web")
	before := p.DeepCopy()
	p.Spec.Suspend = true
	g.Expect(w.c.Patch(ctx, p, client.MergeFrom(before))).To(Succeed())
	w.runs("dev", "1.0")
	h.rest(ctx)
	g.Expect(w.newest(ctx, "staging").Status.Phase).To(Equal(capstanv1.PhaseSuperseded))
	g.Expect(w.forge.PullRequests()[0].State).To(Equal(providertest.Open), "no outside step")
	before = p.DeepCopy()
	p.Spec.Suspend = false
	g.Expect(w.c.Patch(ctx, p, client.MergeFrom(before))).To(Succeed())
	h.rest(ctx)
	g.Expect(w.forge.PullRequests()[0].State).To(Equal(providertest.Closed))
}

// N1 by pull request: the hub is killed at random outside calls (API server, Git, the
// service), before a call or after it took effect, again and again while a revision
// travels to the end, and sometimes while another one comes. Each promotion has one
// pull request, and the last revision arrives everywhere.
func TestKilledAtRandom(t *testing.T) {
	runs := 100
	if os.Getenv("CAPSTAN_SOAK") != "" {
		runs = 1000
	}
	kinds := []pipelinesv1.GitProviderType{
		pipelinesv1.GitHub, pipelinesv1.GitLab, pipelinesv1.Gitea, pipelinesv1.AzureDevOps, pipelinesv1.BitbucketServer,
	}
	atRandom(t, runs, func(t *testing.T, random *rand.Rand, seed uint64) {
		playKilled(t, random, anyCall(random), func(w *world, envs ...string) {
			newForge(t, w, kinds[seed%uint64(len(kinds))], envs...)
		})
	})
}

// atRandom plays runs with seeds in a row, from CAPSTAN_SEED if that is given, which
// asks for that run alone.
func atRandom(t *testing.T, runs int, play func(*testing.T, *rand.Rand, uint64)) {
	first := rand.Uint64()
	if given := os.Getenv("CAPSTAN_SEED"); given != "" {
		var err error
		if first, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatal(err)
		}
		runs = 1
	}
	for i := range runs {
		seed := first + uint64(i)
		t.Run(fmt.Sprintf("CAPSTAN_SEED=%d", seed), func(t *testing.T) {
			t.Parallel()
			play(t, rand.New(rand.NewPCG(seed, 0)), seed)
		})
	}
}

// anyCall kills at any of the outside calls.
func anyCall(random *rand.Rand) func() *killer {
	return func() *killer { return &killer{at: random.IntN(45) + 1, after: random.IntN(2) == 0} }
}

// playKilled plays one history in a world whose service is made by host, for the
// environments that are promoted into. Each hub is killed as next says.
func playKilled(t *testing.T, random *rand.Rand, next func() *killer, host func(w *world, envs ...string)) {
	g, ctx := NewWithT(t), t.Context()
	envs := []string{"dev", "staging"}
	if random.IntN(5) == 0 {
		envs = append(envs, "prod")
	}
	w := newWorld(t, t)
	host(w, envs[1:]...)
	w.began(ctx, w.newPipeline("web", w.pull(nil), envs...))
	killed := 0
	// kill one hub after another, then let one live until all is at rest.
	kill := func() {
		for range random.IntN(2) + 1 {
			k := next()
			w.doomed(ctx, k, 4)
			if k.over() {
				killed++
				if k.died != nil {
					k.died(k)
				}
				t.Logf("killed at call %d (%s), took effect %v", k.at, cmp.Or(k.where, "API server"), k.after)
			}
			if random.IntN(2) == 0 {
				w.clock.Step(claimStep)
			}
		}
	}
	live := func() { w.hub("living", w.c, nil).rest(ctx) }

	last := "1.1"
	w.runs("dev", last)
	kill()
	if random.IntN(2) == 0 { // Another revision comes while the first is on its way.
		last = "1.2"
		w.runs("dev", last)
		kill()
	}
	live()
	for _, env := range envs[1:] {
		open := w.hosted.opened(env)
		g.Expect(open).To(HaveLen(1), "%s waits for one pull request\n%s", env, w.print(ctx))
		w.hosted.merge(open[0])
		kill()
		w.runs(env, w.hosted.wants(env))
		live()
		newest := w.newest(ctx, env)
		g.Expect(newest.Spec.Revision).To(Equal(last))
		g.Expect(newest.Status.Phase).To(Equal(capstanv1.PhaseSucceeded), newest.Status.Message)
	}
	g.Expect(killed).To(BeNumerically(">", 0))
	onceEach(ctx, g, w)
}

// onceEach promotion has one pull request, at most, and each that succeeded was
// merged once; nothing is left open.
func onceEach(ctx context.Context, g Gomega, w *world) {
	g.Expect(w.hosted.doubled()).To(BeEmpty(), "no identity has two pull requests")
	merged := map[string]int{}
	for _, pr := range w.hosted.PullRequests() {
		g.Expect(pr.State).NotTo(Equal(providertest.Open), "%s is left open", pr.Title)
		if pr.State == providertest.Merged {
			merged[idLine.FindStringSubmatch(pr.Body)[1]]++
		}
	}
	promotions := w.promotions(ctx)
	var known []string
	for i := range promotions {
		known = append(known, strategy.Identity(&promotions[i]))
	}
	g.Expect(w.hosted.identities()).To(HaveLen(len(w.hosted.PullRequests())), "every pull request bears an identity")
	g.Expect(known).To(ContainElements(w.hosted.identities()), "and it is a promotion's")
	for i := range promotions {
		if p := &promotions[i]; p.Status.Phase == capstanv1.PhaseSucceeded {
			g.Expect(merged[strategy.Identity(p)]).To(Equal(1), "%s was merged once", p.Name)
		}
	}
}

// N1, and reference/promotion.md 5.4: the hub is killed at every request to Git and
// to the service on a promotion's way from the observation to the merge and on to the
// withdrawal of the next one, before it and after it took effect.
func TestKilledAtEveryRequest(t *testing.T) {
	play := func(t *testing.T, k *killer) int {
		g, ctx := NewWithT(t), t.Context()
		w, _ := pulled(t, pipelinesv1.GitHub, nil, "dev", "staging")
		living := func() *hubUnder { return w.hub("living", w.c, nil) }
		w.runs("dev", "1.1")
		calls := w.doomed(ctx, k, 5)
		living().rest(ctx)
		open := w.forge.opened("staging")
		g.Expect(open).To(HaveLen(1))
		g.Expect(w.forge.PullRequests()).To(HaveLen(1), "killed at %s", k.where)
		w.forge.merge(open[0])
		if !k.over() {
			k.end = nil
			calls = w.doomed(ctx, k, 3)
		}
		w.runs("staging", w.forge.wants("staging"))
		living().rest(ctx)
		g.Expect(w.newest(ctx, "staging").Status.Phase).To(Equal(capstanv1.PhaseSucceeded))

		// The next revision is taken back while its pull request is open.
		w.runs("dev", "1.2")
		living().settle(ctx)
		g.Expect(w.forge.PullRequests()).To(HaveLen(2))
		w.runs("dev", "1.1")
		if !k.over() {
			calls = w.doomed(ctx, k, 3)
		}
		living().rest(ctx)
		g.Expect(w.newest(ctx, "staging").Status.Withdrawn).To(BeTrue())
		g.Expect(w.forge.PullRequests()).To(HaveLen(2))
		onceEach(ctx, g, w)
		return calls
	}
	steps := play(t, &killer{only: true})
	NewWithT(t).Expect(steps).To(BeNumerically(">", 12), "the way has this many requests")
	for at := 1; at <= steps; at++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("request %d, took effect %v", at, after), func(t *testing.T) {
				t.Parallel()
				k := &killer{at: at, after: after, only: true}
				play(t, k)
				NewWithT(t).Expect(k.over()).To(BeTrue())
				t.Logf("killed at %s", k.where)
			})
		}
	}
}
