package promotions_test

import (
	"context"
	"fmt"
	"html"
	"regexp"
	"strings"
	"testing"
	"time"

	"code.gitea.io/sdk/gitea"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/index"
	"github.com/capstan-hub/capstan/playground/git"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo/gittest"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider/providertest"
)

// expectNotInGit checks a promotion whose environment runs the revision and whose pull request
// stays open, and returns the pull request.
func expectNotInGit(g *WithT, p capstanv1.Promotion, prs []providertest.PullRequest) providertest.PullRequest {
	g.Expect(p.Status.Phase).To(Equal(capstanv1.PhaseSucceeded))
	g.Expect(p.Status.Withdrawn).To(BeFalse())
	g.Expect(p.Status.Reason).To(Equal("RolledOut"), "the event of the end has it")
	c := meta.FindStatusCondition(p.Status.Conditions, capstanv1.NotInGitCondition)
	g.Expect(c).NotTo(BeNil())
	g.Expect(c.Message).To(And(HavePrefix("every target of environment \"staging\" runs 1.1, but branch main does not have 1.1"), ContainSubstring("merge pull request")))
	g.Expect(prs).To(HaveLen(1))
	g.Expect(prs[0].State).To(Equal(providertest.Open))
	g.Expect(prs[0].Body).To(ContainSubstring("runs this revision already, but branch <code>main</code> does not have it"))
	return prs[0]
}

// A user changes the environment to the revision with kubectl. Git still has the old one, so
// the pull request stays open: Flux would undo the change, and nothing would promote the
// revision again. When Git has the revision, the pull request is closed.
func TestChangedByHandKeepsThePullRequestUntilGitHasTheRevision(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		later func(w *world)
		state providertest.State
	}{
		"merged later": {func(w *world) { w.forge.merge(1) }, providertest.Merged},
		"closed later": {func(w *world) { w.forge.SetState(1, providertest.Closed) }, providertest.Closed},
		"committed later": {func(w *world) {
			w.forge.Commit(gittest.Base, "by hand", map[string]string{manifestOf("staging"): w.manifest("staging", "1.1")})
		}, providertest.Closed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, ctx, w, h := promotedByPullRequest(t, pipelinesv1.Gitea, nil)
			w.runs("staging", "1.1")
			h.rest(ctx)
			expectNotInGit(g, w.newest(ctx, "staging"), w.forge.PullRequests())
			// Flux returns the environment to the revision in Git. The pull request is still there.
			w.runs("staging", "1.0")
			h.rest(ctx)
			expectNotInGit(g, w.newest(ctx, "staging"), w.forge.PullRequests())

			tc.later(w)
			w.clock.Step(time.Hour)
			h.settle(ctx)
			p := w.newest(ctx, "staging")
			g.Expect(p.Status.Phase).To(Equal(capstanv1.PhaseSucceeded))
			g.Expect(p.Status.Withdrawn).To(BeTrue())
			g.Expect(meta.FindStatusCondition(p.Status.Conditions, capstanv1.NotInGitCondition)).To(BeNil())
			g.Expect(w.forge.PullRequests()[0].State).To(Equal(tc.state))
			g.Expect(w.into(ctx, "staging")).To(HaveLen(1))
			h.expectNoRequest(g, "nothing is left to check", func() {
				w.clock.Step(2 * time.Hour)
				h.settle(ctx)
			})
		})
	}
}

// A pull request that stays open is checked every hour, and not after a week. So is the
// pull request of a superseded promotion whose service does not answer.
func TestWhatStaysOpenIsNotCheckedWithoutEnd(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(w *world){
		"needed": func(w *world) { w.runs("staging", "1.1") },
		"the service fails": func(w *world) {
			w.forge.AddFault(providertest.Fault{Status: 502})
			w.runs("dev", "1.0")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, ctx, w, h := promotedByPullRequest(t, pipelinesv1.GitHub, nil)
			end(w)
			h.rest(ctx)
			for range 3 {
				before := len(w.forge.Requests())
				w.clock.Step(2 * time.Hour)
				h.settle(ctx)
				requests := len(w.forge.Requests()) - before
				g.Expect(requests).To(And(BeNumerically(">=", 1), BeNumerically("<=", 6)), "it is still checked, once")
			}
			w.clock.Step(7 * 24 * time.Hour)
			h.settle(ctx)
			h.expectNoRequest(g, "not checked again", func() {
				w.clock.Step(24 * time.Hour)
				h.settle(ctx)
			})
			g.Expect(w.newest(ctx, "staging").Status.Withdrawn).To(BeFalse(), "it may be open")
		})
	}
}

// The same on a real Gitea, with its own text of the pull request.
func TestChangedByHandOnGitea(t *testing.T) {
	t.Parallel()
	g, ctx := NewWithT(t), t.Context()
	server, robot := startedGitea(t)
	w := newWorld(t, t)
	r := newOnGitea(t, w, server, robot, "staging")
	h := w.began(ctx, w.newPipeline("web", w.pull(nil), "dev", "staging"))
	w.runs("dev", "1.1")
	h.settle(ctx)
	w.runs("staging", "1.1")
	h.rest(ctx)
	expectNotInGit(g, w.newest(ctx, "staging"), r.PullRequests())

	_, err := r.repository.Commit(ctx, git.Main, manifestOf("staging"), "by hand", func(string) string { return w.manifest("staging", "1.1") })
	g.Expect(err).NotTo(HaveOccurred())
	w.clock.Step(time.Hour)
	h.settle(ctx)
	p := w.newest(ctx, "staging")
	g.Expect(p.Status.Withdrawn).To(BeTrue())
	pr := r.PullRequests()[0]
	g.Expect(pr.State).To(Equal(providertest.Closed))

	// The comment shows the quotes around the environment, in the text and on the page.
	client, err := server.Client(ctx, server.Admin())
	g.Expect(err).NotTo(HaveOccurred())
	comments, _, err := client.ListIssueComments(r.repository.Owner, r.repository.Name, pr.Number, gitea.ListIssueCommentOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(comments).To(HaveLen(1))
	page, _, err := client.RenderMarkdown(gitea.MarkdownOption{Text: comments[0].Body, Mode: "gfm", Context: r.repository.Owner + "/" + r.repository.Name})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(html.UnescapeString(page)).To(ContainSubstring(`<code>every target of environment "staging" runs 1.1, so this pull request is not needed</code>`))
}

var kustomize = index.Kind{Group: "kustomize.toolkit.fluxcd.io", Kind: "Kustomization"}

// runsKustomization makes an environment run a revision of the Kustomization.
func (w *world) runsKustomization(env, revision string) {
	w.x.SetFreshness(w.cluster(env), kustomize, index.Freshness{Fresh: true})
	w.x.Observe(index.Object{Cluster: w.cluster(env), Kind: kustomize, Namespace: "shop", Name: "web"},
		index.Observation{Found: true, Ready: true, Revision: revision, At: w.clock.Now()})
}

// kustomized is a world whose Pipeline promotes a Kustomization from dev to prod by pull
// requests that the hub merges, in the repository from which dev itself is deployed.
func kustomized(t *testing.T, ctx context.Context, dev, prod string) (*world, *hubUnder) {
	t.Helper()
	w := newWorld(t, t)
	newForge(t, w, pipelinesv1.Gitea, "prod")
	p := w.newPipeline("web", w.pull(func(spec *pipelinesv1.PullRequestPromotion) { spec.AutoMerge = true }), "dev", "prod")
	p.Spec.AppRef.APIVersion, p.Spec.AppRef.Kind = kustomize.Group+"/v1", kustomize.Kind
	if err := w.c.Create(ctx, p); err != nil {
		t.Fatal(err)
	}
	h := w.hub("hub", w.c, nil)
	h.settle(ctx)
	w.runsKustomization("dev", dev)
	w.runsKustomization("prod", prod)
	return w, h
}

// A Kustomization whose repository is also the one that the hub writes to: each merge would
// give dev another commit, which would be promoted by the next merge, without end. No pull
// request is opened, and the promotion says why.
func TestAKustomizationDoesNotFeedItself(t *testing.T) {
	t.Parallel()
	g, ctx := NewWithT(t), t.Context()
	w, h := kustomized(t, ctx, "main@sha1:"+strings.Repeat("1", 40), "main@sha1:"+strings.Repeat("0", 40))
	first := head(g, w)
	for range 4 {
		w.runsKustomization("dev", "main@sha1:"+head(g, w)) // Flux deploys what was merged.
		h.rest(ctx)
	}
	g.Expect(w.forge.PullRequests()).To(BeEmpty())
	g.Expect(head(g, w)).To(Equal(first), "the hub has merged nothing")
	all := w.into(ctx, "prod")
	g.Expect(all).To(HaveLen(1))
	g.Expect(all[0].Spec.Revision).To(Equal("main@sha1:"+first), "what users see is readable")
	g.Expect(all[0].Status.Phase).To(Equal(capstanv1.PhaseFailed))
	g.Expect(all[0].Status.Reason).To(Equal("UnwritableRevision"))
	stalled := meta.FindStatusCondition(w.pipeline(ctx, "web").Status.Conditions, pipelinesv1.StalledCondition)
	g.Expect(stalled).NotTo(BeNil())
	g.Expect(stalled.Message).To(ContainSubstring("with the strategy notification"))
}

// The same repository with a marker that requests the commit: one pull request promotes it. The
// merge gives dev another commit, which differs in what the promotion wrote, and is not
// promoted. A change of the application is.
func TestAKustomizationIsPromotedByItsCommitOnce(t *testing.T) {
	t.Parallel()
	g, ctx := NewWithT(t), t.Context()
	w, h := kustomized(t, ctx, "main@sha1:"+strings.Repeat("1", 40), "sha1:"+strings.Repeat("0", 40))
	first := w.forge.Commit(gittest.Base, "an application", map[string]string{
		"apps/web.yaml":    "replicas: 1\n",
		manifestOf("prod"): fmt.Sprintf("kind: GitRepository\nspec:\n  ref:\n    commit: \"%040x\" # {\"$promotion\": \"%s:web:prod:commit\"}\n", 0, w.ns),
	})
	deployed := func() { // What Flux deploys: dev follows the branch, prod the commit in its manifest.
		t.Helper()
		for range 4 {
			w.runsKustomization("dev", "main@sha1:"+head(g, w))
			h.rest(ctx)
			w.runsKustomization("prod", "sha1:"+commitLine.FindStringSubmatch(w.forge.File(gittest.Base, manifestOf("prod")))[1])
			h.rest(ctx)
		}
	}
	deployed()
	g.Expect(w.forge.PullRequests()).To(HaveLen(1))
	g.Expect(w.forge.File(gittest.Base, manifestOf("prod"))).To(ContainSubstring("commit: \"" + first + "\" #"))
	merged := head(g, w)
	g.Expect(merged).NotTo(Equal(first))
	all := w.into(ctx, "prod")
	g.Expect(all).To(HaveLen(2))
	g.Expect(all[1].Spec.Revision).To(Equal("main@sha1:" + merged))
	g.Expect(all[1].Status.Phase).To(Equal(capstanv1.PhaseSuperseded))
	g.Expect(all[1].Status.Reason).To(Equal("NothingNew"))
	g.Expect(all[1].Status.Message).To(HaveSuffix(`from what Git has for environment "prod" only in what promotions wrote; no pull request is needed`))
	g.Expect(meta.IsStatusConditionTrue(w.pipeline(ctx, "web").Status.Conditions, pipelinesv1.StalledCondition)).To(BeFalse())

	second := w.forge.Commit(gittest.Base, "a change", map[string]string{"apps/web.yaml": "replicas: 2\n"})
	deployed()
	g.Expect(w.forge.PullRequests()).To(HaveLen(2))
	g.Expect(w.forge.File(gittest.Base, manifestOf("prod"))).To(ContainSubstring("commit: \"" + second + "\" #"))
	g.Expect(w.into(ctx, "prod")).To(HaveLen(4))
}

// The first environment has the merge of a promotion before the second has its commit. The Promotion of
// the commit is superseded, and that of the merge brings nothing new: the commit is what goes on to the
// third environment.
func TestACommitGoesOnAlthoughItsMergeMovedTheSource(t *testing.T) {
	t.Parallel()
	g, ctx := NewWithT(t), t.Context()
	w := newWorld(t, t)
	newForge(t, w, pipelinesv1.Gitea, "staging", "prod")
	p := w.newPipeline("web", w.pull(func(spec *pipelinesv1.PullRequestPromotion) { spec.AutoMerge = true }), "dev", "staging", "prod")
	p.Spec.AppRef.APIVersion, p.Spec.AppRef.Kind = kustomize.Group+"/v1", kustomize.Kind
	g.Expect(w.c.Create(ctx, p)).To(Succeed())
	h := w.hub("hub", w.c, nil)
	h.settle(ctx)
	marked := func(env string) string {
		return fmt.Sprintf("kind: GitRepository\nspec:\n  ref:\n    commit: \"%040x\" # {\"$promotion\": \"%s:web:%s:commit\"}\n", 0, w.ns, env)
	}
	deployed := func(env string) string {
		return "sha1:" + commitLine.FindStringSubmatch(w.forge.File(gittest.Base, manifestOf(env)))[1]
	}
	w.forge.Commit(gittest.Base, "manifests", map[string]string{manifestOf("staging"): marked("staging"), manifestOf("prod"): marked("prod")})
	w.runsKustomization("staging", deployed("staging"))
	w.runsKustomization("prod", deployed("prod"))
	var commit string
	for n, version := range []string{"1", "2"} {
		commit = w.forge.Commit(gittest.Base, "a change", map[string]string{"apps/web.yaml": "replicas: " + version + "\n"})
		for range 4 { // dev follows the branch, and is always faster than the others.
			for range 2 {
				w.runsKustomization("dev", "main@sha1:"+head(g, w))
				h.rest(ctx)
			}
			for _, env := range []string{"staging", "prod"} {
				w.runsKustomization(env, deployed(env))
			}
			h.rest(ctx)
		}
		g.Expect(deployed("staging")).To(Equal("sha1:" + commit))
		g.Expect(deployed("prod")).To(Equal("sha1:"+commit), "%v", w.newest(ctx, "staging").Status.Message)
		g.Expect(w.forge.PullRequests()).To(HaveLen(2*(n+1)), "one for each environment and release")
	}

	h.promotions.Keep = 1
	w.clock.Step(2 * time.Hour)
	h.settle(ctx)
	kept := w.into(ctx, "staging")
	g.Expect(kept).To(HaveLen(2), "the one that brought what staging runs, and the newest")
	g.Expect(kept[0].Spec.Revision).To(Equal("main@sha1:" + commit))
	g.Expect(kept[0].Status.Phase).To(Equal(capstanv1.PhaseSuperseded))
	g.Expect(kept[1].Status.Reason).To(Equal("NothingNew"))
}

var commitLine = regexp.MustCompile(`commit: "([0-9a-f]{40})"`)

func head(g *WithT, w *world) string {
	commit, ok := w.forge.Head(gittest.Base)
	g.Expect(ok).To(BeTrue())
	return commit
}

// The same commit on another branch is what prod runs already: there is nothing to promote.
func TestTheSameCommitOnAnotherBranchIsNotPromoted(t *testing.T) {
	t.Parallel()
	g, ctx := NewWithT(t), t.Context()
	commit := fmt.Sprintf("@sha1:%040x", 7)
	w, h := kustomized(t, ctx, "main"+commit, "release"+commit)
	h.rest(ctx)
	w.runsKustomization("dev", "next"+commit)
	h.rest(ctx)
	g.Expect(w.into(ctx, "prod")).To(BeEmpty())
	g.Expect(w.pipeline(ctx, "web").Status.Environments["dev"].Agreed.Sequence).To(BeEquivalentTo(1))
}
