package promotions_test

import (
	"context"
	"testing"
	"time"

	"code.gitea.io/sdk/gitea"
	. "github.com/onsi/gomega"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/playground/git"
	"github.com/capstan-hub/capstan/strategy"
)

// G20 with a real Gitea, whose branch requires the commit status: a person cannot merge while a gate is
// closed, and can when it is open.
func TestG20ABranchThatRequiresTheGates(t *testing.T) {
	t.Parallel()
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	server, robot := startedGitea(t)
	hosted := newOnGitea(t, w, server, robot, "staging")
	admin, err := server.Client(ctx, server.Admin())
	g.Expect(err).NotTo(HaveOccurred())
	_, _, err = admin.CreateBranchProtection(hosted.repository.Owner, hosted.repository.Name, gitea.CreateBranchProtectionOption{
		RuleName: git.Main, BranchName: git.Main, EnableStatusCheck: true, StatusCheckContexts: []string{strategy.GatesStatus},
	})
	g.Expect(err).NotTo(HaveOccurred())
	h := w.began(ctx, w.newPipeline("web", w.pull(nil), "dev", "staging"))
	w.runs("dev", "1.1")
	h.settle(ctx)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingMerge)
	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates = frozen() })
	h.settle(ctx)

	open := hosted.PullRequests()
	g.Expect(open).To(HaveLen(1))
	head := w.newest(ctx, "staging").Status.PullRequest.HeadSHA
	statuses, _, err := admin.ListStatuses(hosted.repository.Owner, hosted.repository.Name, head, gitea.ListStatusesOption{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(statuses).To(ConsistOf(And(HaveField("Context", strategy.GatesStatus), HaveField("State", gitea.StatusPending),
		HaveField("Description", `window "freeze" denies promotions; no time is known at which promotions are allowed again`))))
	// Gitea merges within seconds of the opening, if it does.
	patient, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	g.Expect(hosted.repository.Merge(patient, open[0].Number)).NotTo(Succeed(), "the branch requires the status")

	w.edit(ctx, func(p *pipelinesv1.Pipeline) { p.Spec.Gates = nil })
	h.settle(ctx)
	hosted.merge(open[0].Number)
	h.rest(ctx)
	w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingRollout)
}
