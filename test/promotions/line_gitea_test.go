package promotions_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/playground/git"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider/providertest"
)

// gitFleet is the clusters of the environments: each runs what the base branch on Gitea has for
// it. The manifest of a cluster has the name of its environment in its marker.
type gitFleet struct {
	w *world
	r *onGitea
}

// commit changes the manifest of a cluster as a person does.
func (f *gitFleet) commit(ctx context.Context, cluster, message string, edit func(string) string) {
	f.w.Helper()
	if _, err := f.r.repository.Commit(ctx, git.Main, manifestOf(cluster), message, edit); err != nil {
		f.w.Fatalf("%v", err)
	}
}

// release makes a cluster run a revision that did not come from the pipeline.
func (f *gitFleet) release(ctx context.Context, cluster, revision string) {
	f.w.Helper()
	f.commit(ctx, cluster, "release", func(text string) string {
		return versionLine.ReplaceAllString(text, `version: "`+revision+`"`)
	})
	f.observe(ctx)
}

// mark gives the manifests of the clusters the names that the environments have now.
func (f *gitFleet) mark(ctx context.Context) {
	f.w.Helper()
	for _, env := range f.w.pipeline(ctx, "web").Spec.Environments {
		cluster := env.Targets[0].ClusterRef.Name
		marker := ":web:" + env.Name + `"`
		if !strings.Contains(f.r.read(manifestOf(cluster)), marker) {
			f.commit(ctx, cluster, "rename", func(text string) string { return strings.Replace(text, ":web:"+cluster+`"`, marker, 1) })
		}
	}
}

// observe makes the hub observe every cluster of an environment.
func (f *gitFleet) observe(ctx context.Context) {
	f.w.Helper()
	for _, env := range f.w.pipeline(ctx, "web").Spec.Environments {
		cluster := env.Targets[0].ClusterRef.Name
		f.w.runs(cluster, f.w.hosted.wants(cluster))
	}
}

// environmentOf returns the environment of a pull request.
func (f *gitFleet) environmentOf(pr providertest.PullRequest) string {
	return strings.TrimPrefix(pr.Head, "promotion-"+f.w.ns+"-web-")
}

// into returns the pull requests with which a revision was promoted into an environment.
func (f *gitFleet) into(env, revision string) []providertest.PullRequest {
	var found []providertest.PullRequest
	for _, pr := range f.r.PullRequests() {
		if f.environmentOf(pr) == env && strings.HasSuffix(pr.Title, " to "+revision) {
			found = append(found, pr)
		}
	}
	return found
}

// merge merges the open pull requests as a person; false if none is open. The gate of an edit
// runs the revision before prod has a pull request for it.
func (f *gitFleet) merge(ctx context.Context, g Gomega, gate, revision string) bool {
	f.w.Helper()
	merged := false
	for _, pr := range f.r.PullRequests() {
		if pr.State != providertest.Open {
			continue
		}
		if gate != "" && f.environmentOf(pr) == "prod" && strings.HasSuffix(pr.Title, " to "+revision) {
			g.Expect(f.w.hosted.wants(gate)).To(Equal(revision), "%s is offered to prod before %s runs it\n%s", revision, gate, f.w.describe(ctx))
		}
		f.r.merge(pr.Number)
		merged = true
	}
	return merged
}

// finish merges what the hub opens, and lets the clusters run it, until nothing happens any more.
func (f *gitFleet) finish(ctx context.Context, g Gomega, h *hubUnder, gate, revision string) {
	f.w.Helper()
	for range 12 {
		h.rest(ctx)
		if !f.merge(ctx, g, gate, revision) {
			return
		}
		f.observe(ctx)
	}
	f.w.Fatalf("pull requests do not end\n%s", f.w.describe(ctx))
}

// settleInto reconciles the Pipeline, and only the promotions into an environment, until the
// newest of them has succeeded and has left nothing at Gitea.
func (h *hubUnder) settleInto(ctx context.Context, env string, done func(capstanv1.Promotion) bool) {
	h.w.Helper()
	for range 40 {
		h.settlePipelines(ctx)
		for _, p := range h.w.into(ctx, env) {
			_, _ = h.promotions.Reconcile(ctx, requestFor(&p))
		}
		h.settlePipelines(ctx)
		if done(h.w.newest(ctx, env)) {
			return
		}
		h.w.clock.Step(claimStep)
	}
	h.w.Fatalf("no end of the promotion into %s\n%s", env, h.w.describe(ctx))
}

// acted is what the hub had done for the promotion into prod before an edit.
type acted int

const (
	// nothingYet: no pull request was opened.
	nothingYet acted = iota
	// isOpen: a pull request is open.
	isOpen
	// isMerged: the base branch has the revision.
	isMerged
)

// pullPhases bring the promotion of 1.1 into prod to a point of its lifecycle. Dev, and
// staging if there is one, run 1.1 already.
var pullPhases = map[string]struct {
	acted acted
	reach func(context.Context, Gomega, *gitFleet, *hubUnder)
}{
	"before it is claimed": {nothingYet, func(ctx context.Context, g Gomega, f *gitFleet, h *hubUnder) {
		h.settlePipelines(ctx)
		g.Expect(f.w.newest(ctx, "prod").Status.Phase).To(BeEmpty())
	}},
	"when it is claimed": {nothingYet, func(ctx context.Context, g Gomega, f *gitFleet, _ *hubUnder) {
		f.killed(ctx, g, &killer{at: 1, only: true})
		g.Expect(f.r.pushes.of("prod")).To(BeEmpty())
	}},
	"when its branch is pushed": {nothingYet, func(ctx context.Context, g Gomega, f *gitFleet, _ *hubUnder) {
		f.killed(ctx, g, &killer{at: 1, only: true, aim: opens})
		g.Expect(f.r.pushes.of("prod")).To(HaveLen(1))
		g.Expect(f.into("prod", "1.1")).To(BeEmpty())
	}},
	"when its pull request is open and not recorded": {isOpen, func(ctx context.Context, g Gomega, f *gitFleet, _ *hubUnder) {
		f.killed(ctx, g, &killer{at: 1, only: true, aim: opens, after: true})
		g.Expect(f.into("prod", "1.1")).To(HaveLen(1))
	}},
	"when its pull request is open": {isOpen, func(ctx context.Context, g Gomega, f *gitFleet, h *hubUnder) {
		h.settle(ctx)
		g.Expect(f.w.newest(ctx, "prod").Status.Phase).To(Equal(capstanv1.PhaseAwaitingMerge))
	}},
	"when it is merged and the hub does not know it": {isMerged, func(ctx context.Context, g Gomega, f *gitFleet, h *hubUnder) {
		h.settle(ctx)
		g.Expect(f.merge(ctx, g, "", "1.1")).To(BeTrue())
	}},
	"during the roll-out": {isMerged, func(ctx context.Context, g Gomega, f *gitFleet, h *hubUnder) {
		h.settle(ctx)
		g.Expect(f.merge(ctx, g, "", "1.1")).To(BeTrue())
		h.rest(ctx)
		g.Expect(f.w.newest(ctx, "prod").Status.Phase).To(Equal(capstanv1.PhaseAwaitingRollout))
	}},
	"when it has succeeded": {isMerged, func(ctx context.Context, g Gomega, f *gitFleet, h *hubUnder) {
		f.finish(ctx, g, h, "", "1.1")
		g.Expect(f.w.newest(ctx, "prod").Status.Phase).To(Equal(capstanv1.PhaseSucceeded))
	}},
}

// killed kills a hub at a request to Gitea.
func (f *gitFleet) killed(ctx context.Context, g Gomega, k *killer) {
	f.w.doomed(ctx, k, 4)
	g.Expect(k.over()).To(BeTrue())
	p := f.w.newest(ctx, "prod")
	g.Expect(p.Status.Phase).To(Equal(capstanv1.PhasePromoting))
	g.Expect(p.Status.Attempt).NotTo(BeNil())
}

// pullsInShort are the combinations that `make test` plays. `make soak` plays all.
var pullsInShort = map[string]string{
	"the Pipeline is recreated": "during the roll-out",
	"the source is renamed":     "when it is merged and the hub does not know it",
}

// TestEditsOfTheLineOnGitea, by pull requests: whatever edit a user makes, at any point of a
// promotion, no environment gets a revision twice: each promotion has one branch, one commit
// and one pull request at most. No environment is overtaken, and no revision is lost.
func TestEditsOfTheLineOnGitea(t *testing.T) {
	t.Parallel()
	server, robot := startedGitea(t)
	for _, what := range slices.Sorted(maps.Keys(lineEdits)) {
		for when := range pullPhases {
			if !soak() && pullsInShort[what] != when {
				continue
			}
			t.Run(what+" "+when, func(t *testing.T) {
				t.Parallel()
				playPulledEdit(t, server, robot, lineEdits[what], when)
			})
		}
	}
}

func playPulledEdit(t *testing.T, server *git.Server, robot git.Account, edit lineEdit, when string) {
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	f := &gitFleet{w: w, r: newOnGitea(t, w, server, robot, "build", "dev", "staging", "prod")}
	h := w.began(ctx, w.newPipeline("web", w.pull(nil), edit.before...))
	f.release(ctx, "build", "1.1") // It is in the line after one of the edits only.
	f.release(ctx, "dev", "1.1")
	if slices.Contains(edit.before, "staging") {
		h.settleInto(ctx, "staging", func(p capstanv1.Promotion) bool { return p.Status.Phase == capstanv1.PhaseAwaitingMerge })
		g.Expect(f.merge(ctx, g, "", "")).To(BeTrue())
		f.observe(ctx)
		h.settleInto(ctx, "staging", func(p capstanv1.Promotion) bool {
			return p.Status.Phase == capstanv1.PhaseSucceeded && p.Status.Withdrawn
		})
	}
	phase := pullPhases[when]
	phase.reach(ctx, g, f, h)
	before := len(f.into("prod", "1.1"))

	edit.apply(ctx, w)
	f.mark(ctx)
	next := w.hub("next", w.c, nil)
	next.settle(ctx)
	f.observe(ctx)
	gate := edit.gates
	if phase.acted == isMerged {
		gate = ""
	}
	f.finish(ctx, g, next, gate, "1.1")
	f.checkOnce(ctx, g, "1.1")
	if phase.acted == isMerged {
		g.Expect(f.into("prod", "1.1")).To(HaveLen(before), "it was carried out, and nothing is opened again\n%s", w.describe(ctx))
	}

	first := w.pipeline(ctx, "web").Spec.Environments[0]
	f.release(ctx, first.Targets[0].ClusterRef.Name, "1.2")
	f.finish(ctx, g, next, edit.gates, "1.2")
	f.checkOnce(ctx, g, "1.2")
	g.Expect(f.into(first.Name, "1.2")).To(BeEmpty(), "nothing is promoted into the first environment")
	branches, err := f.r.repository.Branches(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(branches).To(Equal([]string{git.Main}), "nothing is left\n%s", w.describe(ctx))
}

// checkOnce checks that every environment runs a revision; that it was merged into each at most
// once; that each promotion has pushed one commit and opened one pull request at most; and
// that nothing is left open.
func (f *gitFleet) checkOnce(ctx context.Context, g Gomega, revision string) {
	f.w.Helper()
	state := f.w.describe(ctx)
	for _, e := range f.w.pipeline(ctx, "web").Spec.Environments {
		obs, _, _ := f.w.x.Last(f.w.object(e.Targets[0].ClusterRef.Name))
		g.Expect(obs.Revision).To(Equal(revision), "in %s\n%s", e.Name, state)
		merged := slices.DeleteFunc(f.into(e.Name, revision), func(pr providertest.PullRequest) bool { return pr.State != providertest.Merged })
		g.Expect(len(merged)).To(BeNumerically("<=", 1), "%s was merged into %s again\n%s", revision, e.Name, state)
	}
	g.Expect(f.w.hosted.doubled()).To(BeEmpty(), "no identity has two pull requests\n%s", state)
	for _, pr := range f.r.PullRequests() {
		g.Expect(pr.State).NotTo(Equal(providertest.Open), "%s\n%s", pr.Title, state)
	}
	attempted := map[string]int{}
	for _, p := range f.w.promotions(ctx) {
		g.Expect(p.Status.Phase.Finished()).To(BeTrue(), "%s\n%s", p.Name, state)
		g.Expect(p.Status.Reason).NotTo(BeEmpty())
		g.Expect(p.Status.Message).NotTo(BeEmpty())
		if p.Status.Attempt != nil {
			attempted[p.Spec.Environment]++
		}
	}
	for env, most := range attempted {
		g.Expect(len(f.r.pushes.of(env))).To(BeNumerically("<=", most), "a promotion into %s pushed twice\n%s", env, state)
	}
}
