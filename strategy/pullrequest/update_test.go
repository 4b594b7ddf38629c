package pullrequest_test

import (
	"net/http"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/strategy"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo/gittest"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider/providertest"
)

// strict makes the service refuse to merge branches that do not have the head of the base.
func strict(s *scene) {
	s.requireUpToDate = true
	s.spec.AutoMerge = true
}

// Where branches must be up to date, a merge is refused after each commit on the base. The
// hub rebuilds the branch and merges it.
func TestAutoMergeWhereBranchesMustBeUpToDate(t *testing.T) {
	t.Parallel()
	for _, kind := range []pipelinesv1.GitProviderType{pipelinesv1.GitHub, pipelinesv1.GitLab, pipelinesv1.Gitea} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			g, s := NewWithT(t), newScene(t, kind)
			p := s.promotion(1, "1.1.0")
			s.promote(p) // Nothing is merged yet.
			s.Commit(gittest.Base, "another application", map[string]string{"other.yaml": "x: y\n"})
			strict(s)
			p.Spec.Strategy.PullRequest.AutoMerge = true
			g.Expect(s.follow(p).State).To(Equal(strategy.Due))
			g.Expect(s.promote(p).State).To(Equal(strategy.Merged))
			g.Expect(s.File(gittest.Base, manifest)).To(Equal(release(s.ns, "prod", "1.1.0")))
			g.Expect(s.File(gittest.Base, "other.yaml")).To(Equal("x: y\n"))
		})
	}
}

// A branch that is up to date is not rebuilt because of checks that are pending.
func TestPendingChecksRebuildNothing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, g *WithT, s *scene) {
		s.spec.AutoMerge = true
		refused := providertest.Fault{Method: http.MethodPut, Path: "/merge", Status: http.StatusMethodNotAllowed, Body: []byte(`{"message":"Required status check \"ci\" is expected."}`)}
		switch s.kind {
		case pipelinesv1.AzureDevOps:
			refused = providertest.Fault{Method: http.MethodPatch, Status: http.StatusForbidden, Body: []byte(`{"message":"x","typeKey":"GitPullRequestUpdateRejectedByPolicyException"}`)}
		case pipelinesv1.Gitea, pipelinesv1.BitbucketServer:
			refused.Method = http.MethodPost
		case pipelinesv1.GitHub, pipelinesv1.GitLab:
		}
		s.server.AddFault(refused)
		p := s.promotion(1, "1.1.0")
		g.Expect(s.promote(p).State).To(Equal(strategy.Open))
		before := mustHead(s, s.branch())
		s.Commit(gittest.Base, "another application", map[string]string{"other.yaml": "x: y\n"})
		g.Expect(s.promote(p).State).To(Equal(strategy.Open))
		g.Expect(mustHead(s, s.branch())).To(Equal(before))
	})
}

// "Update branch" of a service merges the base into the branch. That is no change of a
// person: the promotion goes on with the merge commit.
func TestUpdateBranchIsNoForeignCommit(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, g *WithT, s *scene) {
		p := s.promotion(1, "1.1.0")
		s.promote(p)
		s.Commit(gittest.Base, "another application", map[string]string{"other.yaml": "x: y\n"})
		merge := s.updateBranch()
		g.Expect(s.follow(p).State).To(Equal(strategy.Due))
		result := s.promote(p)
		g.Expect(result.State).To(Equal(strategy.Open))
		g.Expect(result.PullRequest.ForeignSHA).To(BeEmpty())
		g.Expect(result.PullRequest.HeadSHA).To(Equal(merge))
		g.Expect(mustHead(s, s.branch())).To(Equal(merge), "reviews and checks stay")
		g.Expect(s.follow(p).State).To(Equal(strategy.Open))

		// The next promotion may rebuild the branch.
		next := s.promotion(2, "1.2.0")
		g.Expect(s.promote(next).State).To(Equal(strategy.Open))
		g.Expect(s.Show(s.branch(), "%P")).To(Equal(mustHead(s, gittest.Base)))
	})
}

// A merge of the base in which a person also changed a file is a person's commit.
func TestMergeWithAChangeIsAForeignCommit(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]map[string]string{
		"another file":    {"more.yaml": "a: b\n"},
		"the edited file": {manifest: "version: 9.9.9\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, s := NewWithT(t), newScene(t, pipelinesv1.GitHub)
			p := s.promotion(1, "1.1.0")
			s.promote(p)
			s.Commit(gittest.Base, "another application", map[string]string{"other.yaml": "x: y\n"})
			own := mustHead(s, s.branch())
			s.updateBranch()
			s.Commit(s.branch(), "and more", change)
			tree := strings.Fields(s.Show(s.branch(), "%T"))[0]
			evil := s.Merged(tree, own, mustHead(s, gittest.Base))
			s.Set(s.branch(), evil)
			g.Expect(s.promote(p).PullRequest.ForeignSHA).To(Equal(evil))
		})
	}
}

// The branch of a promotion that ended is deleted, unless the strategy keeps it.
func TestBranchOfAFinishedPromotionIsDeleted(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(s *scene, p *capstanv1.Promotion)
		left   bool
	}{
		"merged":     {func(s *scene, _ *capstanv1.Promotion) { s.merge(1) }, false},
		"superseded": {func(*scene, *capstanv1.Promotion) {}, false},
		"rejected": {func(s *scene, p *capstanv1.Promotion) {
			s.server.SetState(1, providertest.Closed)
			p.Status.Phase = capstanv1.PhaseRejected
		}, false},
		"rejected, and opened again": {func(_ *scene, p *capstanv1.Promotion) { p.Status.Phase = capstanv1.PhaseRejected }, true},
		"updated by the service": {func(s *scene, _ *capstanv1.Promotion) {
			s.Commit(gittest.Base, "x", map[string]string{"x.yaml": "y\n"})
			s.updateBranch()
		}, false},
		"kept": {func(_ *scene, p *capstanv1.Promotion) { p.Spec.Strategy.PullRequest.KeepBranch = true }, true},
		"with a person's commit": {func(s *scene, _ *capstanv1.Promotion) {
			s.Commit(s.branch(), "more", map[string]string{"more.yaml": "a: b\n"})
		}, true},
		"of a promotion with a higher number": {func(s *scene, p *capstanv1.Promotion) { s.promote(s.promotion(2, "1.2.0")) }, true},
		"that the next promotion will use":    {func(s *scene, _ *capstanv1.Promotion) { s.promotion(2, "1.2.0") }, true},
		"already deleted":                     {func(s *scene, _ *capstanv1.Promotion) { s.merge(1); s.Delete(s.branch()) }, false},
		"protected":                           {func(s *scene, _ *capstanv1.Promotion) { s.Hook("update", "exit 1") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, s := NewWithT(t), newScene(t, pipelinesv1.Gitea)
			p := s.promotion(1, "1.1.0")
			s.promote(p)
			tc.change(s, p)
			_, err := s.Withdraw(t.Context(), p, "it is over")
			g.Expect(err).NotTo(HaveOccurred())
			_, left := s.Head(s.branch())
			g.Expect(left).To(Equal(tc.left))
		})
	}
}

// A close that fails after its comment does not comment again.
func TestFailedCloseCommentsOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, g *WithT, s *scene) {
		p := s.promotion(1, "1.1.0")
		s.promote(p)
		fault := providertest.Fault{Status: http.StatusForbidden, Body: []byte(`{"message":"no"}`)}
		for _, method := range []string{http.MethodPatch, http.MethodPut} {
			fault.Method = method
			s.server.AddFault(fault)
		}
		s.server.AddFault(providertest.Fault{Path: "/decline", Status: http.StatusForbidden})
		for range 3 {
			_, err := s.Withdraw(t.Context(), p, `environment "staging" agreed on another revision`)
			g.Expect(err).To(HaveOccurred())
		}
		s.server.ClearFaults()
		_, err := s.Withdraw(t.Context(), p, `environment "staging" agreed on another revision`)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(s.server.PullRequests()[0].State).To(Equal(providertest.Closed))
		g.Expect(s.server.PullRequests()[0].Comments).To(HaveLen(1))
	})
}
