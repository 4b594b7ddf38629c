package promotions_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"code.gitea.io/sdk/gitea"
	. "github.com/onsi/gomega"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/playground/git"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider/providertest"
)

// mergeWait bounds the time in which Gitea finds, after a push, that it can merge.
const mergeWait = 2 * time.Minute

// protected is a repository on Gitea whose base branch takes up-to-date branches only, and a
// hub that was killed after it had opened the pull request for 1.1.
type protected struct {
	*gitFleet
	*WithT
	ctx    context.Context
	client *gitea.Client
	number int64
}

func newProtected(t *testing.T, server *git.Server, robot git.Account, autoMerge bool) *protected {
	t.Helper()
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	s := &protected{gitFleet: &gitFleet{w: w, r: newOnGitea(t, w, server, robot, "dev", "staging")}, WithT: g, ctx: ctx}
	var err error
	s.client, err = server.Client(ctx, server.Admin())
	g.Expect(err).NotTo(HaveOccurred())
	_, _, err = s.client.CreateBranchProtection(organisation, w.ns, gitea.CreateBranchProtectionOption{
		BranchName: git.Main, RuleName: git.Main, EnablePush: true, BlockOnOutdatedBranch: true,
	})
	g.Expect(err).NotTo(HaveOccurred())
	w.began(ctx, w.newPipeline("web", w.pull(func(spec *pipelinesv1.PullRequestPromotion) { spec.AutoMerge = autoMerge }), "dev", "staging"))
	w.runs("dev", "1.1")
	k := &killer{at: 1, only: true, aim: opens, after: true}
	w.doomed(ctx, k, 4)
	g.Expect(k.over()).To(BeTrue())
	open := w.hosted.opened("staging")
	g.Expect(open).To(HaveLen(1))
	s.number = open[0]
	w.clock.Step(claimStep)
	return s
}

// moves adds a commit of another application to the base branch.
func (s *protected) moves() {
	_, err := s.r.repository.Commit(s.ctx, git.Main, "other.yaml", "another application", func(text string) string { return text + "x: y\n" })
	s.Expect(err).NotTo(HaveOccurred())
}

// refused waits until Gitea knows that the branch is behind its base, which it finds after the
// push, and refuses to merge it. The requests name another head, so that none of them merges.
func (s *protected) refused() {
	s.Eventually(func() bool {
		pr, _, err := s.client.GetPullRequest(organisation, s.w.ns, s.number)
		s.Expect(err).NotTo(HaveOccurred())
		merged, answer, err := s.client.MergePullRequest(organisation, s.w.ns, s.number, gitea.MergePullRequestOption{
			Style: gitea.MergeStyleMerge, HeadCommitId: noCommit,
		})
		s.Expect(err).NotTo(HaveOccurred())
		s.Expect(merged).To(BeFalse())
		return pr.Mergeable && answer.StatusCode == http.StatusMethodNotAllowed
	}, mergeWait, time.Second).Should(BeTrue())
}

// update presses "update branch" as a person: Gitea merges the base into the branch.
func (s *protected) update() {
	s.Eventually(func() error {
		_, err := s.client.UpdatePullRequest(organisation, s.w.ns, s.number)
		return err
	}, mergeWait, time.Second).Should(Succeed())
}

// ends lets a hub work until the pull request is merged and its promotion knows it. No
// state in between is a failure.
func (s *protected) ends(h *hubUnder) {
	s.Eventually(func() capstanv1.PromotionPhase {
		h.rest(s.ctx)
		p := s.w.newest(s.ctx, "staging")
		s.Expect(p.Status.Phase).To(BeElementOf(capstanv1.PhasePromoting, capstanv1.PhaseAwaitingMerge, capstanv1.PhaseAwaitingRollout), s.w.describe(s.ctx))
		s.Expect(p.Status.Reason).NotTo(Equal("BranchModified"), s.w.describe(s.ctx))
		return p.Status.Phase
	}, mergeWait, time.Second).Should(Equal(capstanv1.PhaseAwaitingRollout), func() string { return s.w.describe(s.ctx) })
}

// once checks that the revision and everything else is on the base branch, by one pull
// request, for which the hub pushed so many commits.
func (s *protected) once(h *hubUnder, pushed, moved int) {
	all := s.r.PullRequests()
	s.Expect(all).To(HaveLen(1))
	s.Expect(all[0].State).To(Equal(providertest.Merged))
	s.Expect(s.w.hosted.wants("staging")).To(Equal("1.1"))
	s.Expect(s.r.read("other.yaml")).To(Equal(strings.Repeat("x: y\n", moved)))
	s.Expect(s.r.pushes.of("staging")).To(HaveLen(pushed))
	s.w.runs("staging", "1.1")
	h.rest(s.ctx)
	s.Expect(s.w.into(s.ctx, "staging")).To(HaveLen(1))
	s.Expect(s.w.newest(s.ctx, "staging").Status.Phase).To(Equal(capstanv1.PhaseSucceeded))
	s.Expect(s.r.repository.Branches(s.ctx)).To(Equal([]string{git.Main}), "nothing is left")
}

// Gitea merges up-to-date branches only ("block merge on outdated branch"), and the base branch
// moves on while a pull request with autoMerge is open, also by a person who presses "update
// branch". The hub merges it: it rebuilds the branch where that is necessary, and a commit that
// Gitea made is not a person's change.
func TestAutoMergeOnGiteaWhereBranchesMustBeUpToDate(t *testing.T) {
	t.Parallel()
	server, robot := startedGitea(t)
	for name, play := range map[string]func(*protected, *hubUnder) (pushed, moved int){
		"the base moves on": func(s *protected, _ *hubUnder) (int, int) {
			s.moves()
			s.refused()
			return 2, 1
		},
		"a person updates the branch": func(s *protected, _ *hubUnder) (int, int) {
			s.moves()
			s.update()
			return 1, 1
		},
		"the base moves on after a person updated the branch": func(s *protected, _ *hubUnder) (int, int) {
			s.moves()
			s.update()
			s.moves()
			s.refused()
			return 2, 2
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newProtected(t, server, robot, true)
			h := s.w.hub("next", s.w.c, nil)
			pushed, moved := play(s, h)
			s.ends(h)
			s.once(h, pushed, moved)
		})
	}
}

// Without autoMerge, a person updates the branch and merges it. The hub changes nothing.
func TestUpdateBranchOnGiteaIsNoChangeOfAPerson(t *testing.T) {
	t.Parallel()
	server, robot := startedGitea(t)
	s := newProtected(t, server, robot, false)
	h := s.w.hub("next", s.w.c, nil)
	h.rest(s.ctx)
	s.moves()
	s.update()
	h.rest(s.ctx)
	p := s.w.newest(s.ctx, "staging")
	s.Expect(p.Status.Phase).To(Equal(capstanv1.PhaseAwaitingMerge))
	s.Expect(p.Status.Reason).To(Equal("PullRequestOpened"), s.w.describe(s.ctx))
	s.r.merge(s.number)
	s.ends(h)
	s.once(h, 1, 1)
}
