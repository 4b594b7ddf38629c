package promotions_test

import (
	"testing"

	"code.gitea.io/sdk/gitea"
	. "github.com/onsi/gomega"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/playground/git"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider/providertest"
)

// Gitea acts upon the deletion of a branch some time later. A pull request that was opened
// meanwhile from a branch of the same name is closed, although no person rejected it: the hub opens
// the same one again, which a person can merge or reject.
//
// The test brings about what such a late closure leaves: an event of the deletion, and a branch
// with the hub's commit.
func TestClosedLateOnGitea(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]capstanv1.PromotionPhase{"and then merged": capstanv1.PhaseAwaitingRollout, "and then rejected": capstanv1.PhaseRejected} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, robot := startedGitea(t)
			g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
			r := newOnGitea(t, w, server, robot, "dev", "prod")
			h := w.began(ctx, w.newPipeline("web", w.pull(nil), "dev", "prod"))
			w.runs("dev", "1.1")
			h.settle(ctx)
			w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingMerge)
			opened := r.PullRequests()
			g.Expect(opened).To(HaveLen(1))
			pushed := len(r.pushes.of("prod"))

			r.deleteAndRestore(g, robot, opened[0])
			h.rest(ctx)
			w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingMerge)
			now := r.PullRequests()
			g.Expect(now).To(HaveLen(1), "the same pull request")
			g.Expect(now[0].State).To(Equal(providertest.Open))
			g.Expect(r.pushes.of("prod")).To(HaveLen(pushed), "no other commit")

			if want == capstanv1.PhaseRejected {
				g.Expect(r.repository.Close(ctx, now[0].Number)).To(Succeed())
			} else {
				r.merge(now[0].Number)
			}
			h.rest(ctx)
			w.expectPhase(ctx, g, "prod", want)
		})
	}
}

// deleteAndRestore deletes the branch of a pull request as the robot, waits until Gitea has
// acted upon it, and gives the branch its commit back.
func (r *onGitea) deleteAndRestore(g Gomega, robot git.Account, pr providertest.PullRequest) {
	r.t.Helper()
	server, _ := startedGitea(r.t)
	c, err := server.Client(r.t.Context(), robot)
	g.Expect(err).NotTo(HaveOccurred())
	owner, name := r.repository.Owner, r.repository.Name
	_, _, err = c.CreateBranch(owner, name, gitea.CreateBranchOption{BranchName: "aside", OldBranchName: pr.Head})
	g.Expect(err).NotTo(HaveOccurred())
	_, _, err = c.DeleteRepoBranch(owner, name, pr.Head)
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func(g Gomega) {
		events, _, err := c.ListIssueTimeline(owner, name, pr.Number, gitea.ListIssueCommentOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(events).NotTo(BeEmpty())
		g.Expect(events[len(events)-1].Type).To(Equal("delete_branch"))
	}, "1m", "50ms").Should(Succeed())
	_, _, err = c.CreateBranch(owner, name, gitea.CreateBranchOption{BranchName: pr.Head, OldBranchName: "aside"})
	g.Expect(err).NotTo(HaveOccurred())
	_, _, err = c.DeleteRepoBranch(owner, name, "aside")
	g.Expect(err).NotTo(HaveOccurred())
}
