package pullrequest_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/strategy"
	"github.com/capstan-hub/capstan/strategy/pullrequest"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo/gittest"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider/providertest"
)

// C26
func TestHandles(t *testing.T) {
	t.Parallel()
	g, s := NewWithT(t), newScene(t, pipelinesv1.Gitea)
	g.Expect(s.Handles(pipelinesv1.Strategy{})).To(BeFalse())
	g.Expect(s.Handles(pipelinesv1.Strategy{PullRequest: &pipelinesv1.PullRequestPromotion{}})).To(BeTrue())
}

// C29, C30, N11: branch, commit, base, title and body are weave's; one line changes.
func TestOpensOnePullRequest(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, g *WithT, s *scene) {
		if s.kind != pipelinesv1.BitbucketServer {
			s.spec.Labels = []string{"promotion"}
		}
		p := s.promotion(3, "1.1.0")
		result := s.promote(p)
		g.Expect(result.State).To(Equal(strategy.Open))
		prs := s.server.PullRequests()
		g.Expect(prs).To(HaveLen(1))
		g.Expect(prs[0].Head).To(Equal(s.branch()))
		g.Expect(prs[0].Base).To(Equal(gittest.Base))
		g.Expect(prs[0].Title).To(Equal("Promote " + s.ns + "/web in prod to 1.1.0"))
		for _, part := range []string{"<summary>metadata</summary>", "!!! DO NOT EDIT !!!", s.ns + "/web/prod", "Promotion-ID: " + strategy.Identity(p),
			"Promotion-Number: 3", "1.0.0", "staging", "shop/web in Cluster fleet/prod", manifest, "line 8"} {
			g.Expect(prs[0].Body).To(ContainSubstring(part))
		}
		g.Expect(result.URL).To(HaveSuffix("/1"))
		head, _ := s.Head(s.branch())
		g.Expect(result.PullRequest.HeadSHA).To(Equal(head))
		g.Expect(s.Changed(gittest.Base, s.branch())).To(Equal([]string{manifest}))
		g.Expect(s.File(s.branch(), manifest)).To(Equal(release(s.ns, "prod", "1.1.0")))
		g.Expect(s.Show(head, "%B")).To(SatisfyAll(
			ContainSubstring("Promotion-ID: "+strategy.Identity(p)), ContainSubstring("Promotion-Number: 3"), ContainSubstring("Pipeline: "+s.ns+"/web"),
			ContainSubstring("Environment: prod"), ContainSubstring("Revision: 1.1.0")))
		g.Expect(s.Show(head, "%ct")).To(Equal(s.Show(head, "%at")))
		if s.kind != pipelinesv1.BitbucketServer {
			g.Expect(prs[0].Labels).To(ContainElement("promotion"))
		}

		// Again and again, also by a process that knows nothing: nothing is written.
		before := s.writes()
		s.again()
		p.Status.PullRequest = nil
		s.spec.Labels = nil
		p.Spec.Strategy.PullRequest.Labels = nil
		g.Expect(s.promote(p).State).To(Equal(strategy.Open))
		g.Expect(s.follow(p).State).To(Equal(strategy.Open))
		g.Expect(s.writes()).To(Equal(before))
		g.Expect(s.pulls()).To(Equal("open 1"))
	})
}

// N8
func TestMerged(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, g *WithT, s *scene) {
		p := s.promotion(1, "1.1.0")
		s.promote(p)
		s.merge(1)
		g.Expect(s.follow(p).State).To(Equal(strategy.Merged))
		s.again()
		p.Status.PullRequest = nil // The record was lost.
		g.Expect(s.promote(p).State).To(Equal(strategy.Merged))
		s.Delete(s.branch())
		g.Expect(s.promote(p).State).To(Equal(strategy.Merged))
		g.Expect(s.pulls()).To(Equal("merged 1"))
	})
}

// N7: closed by hand is rejected, until there is a new revision or an explicit retry.
func TestClosedByHand(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, g *WithT, s *scene) {
		p := s.promotion(1, "1.1.0")
		s.promote(p)
		s.server.SetState(1, providertest.Closed)
		g.Expect(s.follow(p).State).To(Equal(strategy.Closed))
		p.Status.PullRequest = nil
		g.Expect(s.promote(p).State).To(Equal(strategy.Closed))
		g.Expect(s.pulls()).To(Equal("closed 1"), "not opened again")

		p.Status.Retry, p.Status.PullRequest = 1, nil
		g.Expect(s.promote(p).State).To(Equal(strategy.Open))
		g.Expect(s.pulls()).To(Equal("open 1, closed 1"), "a retry is another act")
		next := s.promotion(2, "1.2.0")
		g.Expect(s.promote(next).State).To(Equal(strategy.Open))
		g.Expect(s.pulls()).To(Equal("open 1, closed 1"), "which the next number takes over")
	})
}

// A person carried the change into the base without the service noticing, and closed
// the pull request.
func TestClosedAndCarriedInByHand(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, g *WithT, s *scene) {
		p := s.promotion(1, "1.1.0")
		s.promote(p)
		s.Commit(gittest.Base, "by hand", map[string]string{manifest: release(s.ns, "prod", "1.1.0")})
		s.server.SetState(1, providertest.Closed)
		g.Expect(s.follow(p).State).To(Equal(strategy.Done))
		p.Status.PullRequest = nil
		g.Expect(s.promote(p).State).To(Equal(strategy.Done))
	})
}

func TestChangesNothingOpensNothing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, g *WithT, s *scene) {
		p := s.promotion(1, "1.0.0")
		g.Expect(s.promote(p).State).To(Equal(strategy.Done))
		g.Expect(s.pulls()).To(BeEmpty())
		g.Expect(s.Branches()).To(Equal([]string{gittest.Base}), "no branch is left behind")
		g.Expect(s.writes()).To(BeZero())
	})
}

// The next number takes over branch and pull request of the last.
func TestTheNextNumberAdopts(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, g *WithT, s *scene) {
		first := s.promotion(1, "1.1.0")
		s.promote(first)
		second := s.promotion(2, "1.2.0")
		g.Expect(s.promote(second).State).To(Equal(strategy.Open))
		prs := s.server.PullRequests()
		g.Expect(prs).To(HaveLen(1))
		g.Expect(prs[0].Title).To(HaveSuffix("to 1.2.0"))
		g.Expect(prs[0].Body).To(ContainSubstring("Promotion-Number: 2"))
		g.Expect(s.File(s.branch(), manifest)).To(Equal(release(s.ns, "prod", "1.2.0")))
		head, _ := s.Head(s.branch())
		g.Expect(s.Show(head, "%P")).To(Equal(mustHead(s, gittest.Base)), "rebuilt from the base")

		// The first is not the highest any more: it touches nothing.
		before := s.writes()
		_, err := s.Promote(t.Context(), first, always)
		g.Expect(err).To(MatchError(ContainSubstring("higher number")))
		s.withdraw(first, "a newer one took its place")
		g.Expect(s.writes()).To(Equal(before))
		g.Expect(s.pulls()).To(Equal("open 1"))
	})
}

func mustHead(s *scene, branch string) string {
	s.t.Helper()
	head, ok := s.Head(branch)
	if !ok {
		s.t.Fatalf("no branch %s", branch)
	}
	return head
}

// A number that comes between the look and the act is seen before each outside step.
func TestOutrankedOnTheWay(t *testing.T) {
	t.Parallel()
	g, s := NewWithT(t), newScene(t, pipelinesv1.GitHub)
	first := s.promotion(1, "1.1.0")
	s.promotion(2, "1.2.0")
	_, err := s.Promote(t.Context(), first, always)
	g.Expect(err).To(MatchError(ContainSubstring("higher number")))
	g.Expect(s.pulls()).To(BeEmpty())
	g.Expect(s.Branches()).To(Equal([]string{gittest.Base}))
}

// Of two Pipelines whose branches have one name, the second leaves the first's open
// pull request alone.
func TestBranchOfAnotherPipeline(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, g *WithT, s *scene) {
		s.Commit(gittest.Base, "two more", map[string]string{
			"a.yaml": "v: 1.0.0 # {\"$promotion\": \"" + s.ns + ":web:eu-prod\"}\n",
			"b.yaml": "v: 1.0.0 # {\"$promotion\": \"" + s.ns + ":web-eu:prod\"}\n",
		})
		one, other := s.promotion(1, "1.1.0"), s.promotion(2, "1.2.0")
		one.Spec.Environment = "eu-prod"
		other.Spec.Pipeline.Name, other.Spec.Pipeline.UID = "web-eu", "another"
		g.Expect(pullrequest.Branch(one)).To(Equal(pullrequest.Branch(other)))
		s.promote(one)
		before := s.server.PullRequests()
		_, err := s.Promote(t.Context(), other, always)
		var terminal *strategy.TerminalError
		g.Expect(errors.As(err, &terminal)).To(BeTrue(), "%v", err)
		g.Expect(terminal.Reason).To(Equal(pullrequest.ReasonBranchTaken))
		g.Expect(err).To(MatchError(ContainSubstring(s.ns + "/web (UID " + pipelineUID)))
		g.Expect(s.server.PullRequests()).To(Equal(before))
		g.Expect(s.File(pullrequest.Branch(one), "a.yaml")).To(ContainSubstring("1.1.0"))

		s.merge(1)
		g.Expect(s.promote(other).State).To(Equal(strategy.Open), "its turn")
	})
}

func TestAfterAMergeTheNextBeginsAnew(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, g *WithT, s *scene) {
		s.promote(s.promotion(1, "1.1.0"))
		s.merge(1)
		g.Expect(s.promote(s.promotion(2, "1.2.0")).State).To(Equal(strategy.Open))
		g.Expect(s.pulls()).To(Equal("open 1, merged 1"))
		g.Expect(s.File(s.branch(), manifest)).To(Equal(release(s.ns, "prod", "1.2.0")))
	})
}

// A pull request that weave's pipeline-controller left open is adopted, its commit
// replaced.
func TestAdoptsWhatWeaveLeft(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, g *WithT, s *scene) {
		s.Set(s.branch(), mustHead(s, gittest.Base))
		s.CommitAs(s.branch(), "Promotion Server <>", "promoting version", map[string]string{manifest: release(s.ns, "prod", "1.0.9")})
		s.server.Add(providertest.PullRequest{
			State: providertest.Open, Head: s.branch(), Base: gittest.Base, HeadSHA: mustHead(s, s.branch()), Title: "Promote " + s.ns + "/web in prod to 1.0.9",
			Body: "<details>\n<summary>metadata</summary>\n!!! DO NOT EDIT !!!\n" + s.ns + "/web/prod\n</details>",
		})
		g.Expect(s.promote(s.promotion(1, "1.1.0")).State).To(Equal(strategy.Open))
		g.Expect(s.pulls()).To(Equal("open 1"))
		g.Expect(s.server.PullRequests()[0].Title).To(HaveSuffix("to 1.1.0"))
		g.Expect(s.File(s.branch(), manifest)).To(Equal(release(s.ns, "prod", "1.1.0")))
	})
}

// weave put its commits onto whatever was on the branch. A person's below them is not
// lost with them, unless it was merged; those of weave and of the base are nobody's.
func TestCommitsBelowWeaves(t *testing.T) {
	t.Parallel()
	promoted := func(s *scene, version string) {
		s.CommitAs(s.branch(), "Promotion Server <>", "promoting version", map[string]string{manifest: release(s.ns, "prod", version)})
	}
	for name, tc := range map[string]struct {
		below func(s *scene)
		lost  bool
	}{
		"only weave's": {func(s *scene) { promoted(s, "1.0.7"); promoted(s, "1.0.8") }, true},
		"a person's": {func(s *scene) {
			promoted(s, "1.0.8")
			s.Commit(s.branch(), "one more thing", map[string]string{"more.yaml": "a: b\n"})
			promoted(s, "1.0.9")
		}, false},
		"a person's, merged since": {func(s *scene) {
			s.Commit(s.branch(), "one more thing", map[string]string{"more.yaml": "a: b\n"})
			_, err := s.Repository.Merge(s.branch(), gittest.Base, mustHead(s, s.branch()))
			if err != nil {
				s.t.Fatal(err)
			}
		}, true},
		"a person's, squashed since": {func(s *scene) {
			s.Commit(s.branch(), "one more thing", map[string]string{"more.yaml": "a: b\n"})
			s.server.Add(providertest.PullRequest{
				State: providertest.Merged, Head: s.branch(), Base: gittest.Base, HeadSHA: mustHead(s, s.branch()), Title: "Promote", Body: "weave's",
			})
		}, true},
		"the base's own, which moved on": {func(s *scene) {
			for i := range 4 {
				s.Commit(gittest.Base, "another", map[string]string{"other.yaml": strings.Repeat("x", i+1)})
			}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, s := NewWithT(t), newScene(t, pipelinesv1.Gitea)
			s.Set(s.branch(), mustHead(s, gittest.Base))
			tc.below(s)
			promoted(s, "1.0.10")
			before := mustHead(s, s.branch())
			p := s.promotion(1, "1.1.0")
			if tc.lost {
				g.Expect(s.promote(p).State).To(Equal(strategy.Open))
				g.Expect(s.Show(s.branch(), "%P")).To(Equal(mustHead(s, gittest.Base)))
				return
			}
			_, err := s.Promote(t.Context(), p, always)
			expectReason(g, err, "BranchModified", "Ann Operator")
			g.Expect(mustHead(s, s.branch())).To(Equal(before))
			g.Expect(s.pulls()).To(BeEmpty())
		})
	}
}

// A title that a person gave stays; so does a pull request whose body they emptied.
func TestRetitledByHand(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, g *WithT, s *scene) {
		p := s.promotion(1, "1.1.0")
		s.promote(p)
		s.server.Edit(1, "Please, Ann", "")
		g.Expect(s.follow(p).State).To(Equal(strategy.Open))
		g.Expect(s.promote(p).State).To(Equal(strategy.Open))
		g.Expect(s.server.PullRequests()[0].Title).To(Equal("Please, Ann"))
		s.server.SetState(1, providertest.Merged)
		g.Expect(s.follow(p).State).To(Equal(strategy.Merged), "it is known by its number")
	})
}

// Commits of a person are never overwritten. While their pull request is open, it is
// followed; without one, the next promotion stops.
func TestCommitsOfAPerson(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, g *WithT, s *scene) {
		p := s.promotion(1, "1.1.0")
		s.promote(p)
		byHand := s.Commit(s.branch(), "one more thing", map[string]string{"clusters/prod/more.yaml": "a: b\n"})
		g.Expect(s.follow(p).State).To(Equal(strategy.Due))
		result := s.promote(p)
		g.Expect(result.State).To(Equal(strategy.Open))
		g.Expect(result.PullRequest.ForeignSHA).To(Equal(byHand))
		g.Expect(s.follow(p).PullRequest.ForeignSHA).To(Equal(byHand), "it stays so without another act")

		_, err := s.Promote(t.Context(), s.promotion(2, "1.2.0"), always)
		expectReason(g, err, "BranchModified", "Ann Operator")
		g.Expect(mustHead(s, s.branch())).To(Equal(byHand))
		g.Expect(s.pulls()).To(Equal("open 1"))
		g.Expect(s.server.PullRequests()[0].Body).To(ContainSubstring("Promotion-Number: 1"))

		// Merged, they are in the base: the branch may be rebuilt.
		s.merge(1)
		g.Expect(s.promote(s.promotion(3, "1.3.0")).State).To(Equal(strategy.Open))
		g.Expect(s.File(s.branch(), "clusters/prod/more.yaml")).To(Equal("a: b\n"))
		g.Expect(s.pulls()).To(Equal("open 1, merged 1"))
	})
}

// A commit that a person adds between the hub's push and its pull request is seen at
// once, kept, and not merged for them; if the hub ends in between, nothing is opened.
func TestCommitsBeforeThePullRequest(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, g *WithT, s *scene) {
		for _, killed := range []bool{false, true} {
			s.spec.AutoMerge = true
			p := s.promotion(map[bool]int64{false: 1, true: 2}[killed], map[bool]string{false: "1.1.0", true: "1.2.0"}[killed])
			ctx, kill := context.WithCancel(t.Context())
			defer kill()
			byHand := ""
			s.server.BeforeActs(func(r *http.Request) bool {
				if strings.Contains(r.URL.Path, "/git-") {
					return false
				}
				byHand = s.Commit(s.branch(), "one more thing", map[string]string{"more.yaml": "a: b\n"})
				if killed {
					kill()
				}
				return true
			})
			if killed {
				s.server.AddFault(providertest.Fault{Method: http.MethodPost, Path: "pull", Status: http.StatusBadGateway, Times: 1})
				s.server.AddFault(providertest.Fault{Method: http.MethodPost, Path: "merge_requests", Status: http.StatusBadGateway, Times: 1})
				_, err := s.Promote(ctx, p, always)
				g.Expect(err).To(HaveOccurred())
				s.server.ClearFaults()
				s.again()
				_, err = s.Promote(t.Context(), p, always)
				expectReason(g, err, "BranchModified", "Ann Operator")
				g.Expect(s.pulls()).To(Equal("merged 1"), "nothing was opened")
			} else {
				result := s.promote(p)
				g.Expect(result.State).To(Equal(strategy.Open))
				g.Expect(result.PullRequest.ForeignSHA).To(Equal(byHand))
				g.Expect(s.follow(p).PullRequest.ForeignSHA).To(Equal(byHand))
				g.Expect(s.pulls()).To(Equal("open 1"), "nor is it merged")
			}
			g.Expect(mustHead(s, s.branch())).To(Equal(byHand))
			if !killed {
				s.merge(1)
			}
		}
	})
}

// Whoever takes the commits back, or deletes the branch, sets it free.
func TestCommitsTakenBack(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, g *WithT, s *scene) {
		p := s.promotion(1, "1.1.0")
		s.promote(p)
		own := mustHead(s, s.branch())
		s.Commit(s.branch(), "one more thing", map[string]string{"x.yaml": "a: b\n"})
		s.promote(p)
		s.Set(s.branch(), own)
		result := s.follow(p)
		g.Expect(result.State).To(Equal(strategy.Open))
		g.Expect(result.PullRequest.ForeignSHA).To(BeEmpty())
	})
}

// Of an amended commit the author is the hub, and the committer is not.
func TestAmendedCommit(t *testing.T) {
	t.Parallel()
	g, s := NewWithT(t), newScene(t, pipelinesv1.GitLab)
	p := s.promotion(1, "1.1.0")
	s.promote(p)
	amended := s.Amend(s.branch(), map[string]string{manifest: release(s.ns, "prod", "1.1.1")})
	g.Expect(s.follow(p).State).To(Equal(strategy.Due))
	g.Expect(s.promote(p).PullRequest.ForeignSHA).To(Equal(amended))
	_, err := s.Promote(t.Context(), s.promotion(2, "1.2.0"), always)
	expectReason(g, err, "BranchModified", "")
	g.Expect(mustHead(s, s.branch())).To(Equal(amended))
}

// The base moves on: a branch is rebuilt only if what it edits was touched, or the
// base has another history.
func TestBaseMovesOn(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		move  func(s *scene)
		state strategy.State
		moved bool
	}{
		"elsewhere": {func(s *scene) { s.Commit(gittest.Base, "other", map[string]string{"other.yaml": "x: y\n"}) }, strategy.Open, false},
		"the same file": {func(s *scene) {
			s.Commit(gittest.Base, "1.0.5", map[string]string{manifest: release(s.ns, "prod", "1.0.5")})
		}, strategy.Open, true},
		"the file beside": {func(s *scene) {
			s.Commit(gittest.Base, "s", map[string]string{"clusters/staging/web.yaml": release(s.ns, "staging", "1.1.0")})
		}, strategy.Open, false},
		"another marker": {func(s *scene) {
			s.Commit(gittest.Base, "two", map[string]string{"clusters/prod/web2.yaml": release(s.ns, "prod", "1.0.0")})
		}, strategy.Open, true},
		"force-pushed": {func(s *scene) {
			s.Delete(gittest.Base)
			s.Commit(gittest.Base, "anew", map[string]string{manifest: release(s.ns, "prod", "1.0.0"), "new.yaml": "a: b\n"})
		}, strategy.Open, true},
		"to the revision": {func(s *scene) {
			s.Commit(gittest.Base, "by hand", map[string]string{manifest: release(s.ns, "prod", "1.1.0")})
		}, strategy.Done, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, g *WithT, s *scene) {
				p := s.promotion(1, "1.1.0")
				s.promote(p)
				before := mustHead(s, s.branch())
				tc.move(s)
				g.Expect(s.follow(p).State).To(Equal(strategy.Open), "the base is not compared at every look")
				s.looked()
				if !tc.moved && tc.state == strategy.Open {
					g.Expect(s.follow(p).State).To(Equal(strategy.Open))
					g.Expect(s.promote(p).State).To(Equal(strategy.Open))
					g.Expect(mustHead(s, s.branch())).To(Equal(before), "reviews and checks stay")
					g.Expect(p.Status.PullRequest.BaseSHA).To(Equal(mustHead(s, gittest.Base)))
					return
				}
				g.Expect(s.follow(p).State).To(Equal(strategy.Due))
				g.Expect(s.promote(p).State).To(Equal(tc.state))
				if tc.state == strategy.Done {
					g.Expect(s.pulls()).To(Equal("closed 1"))
					g.Expect(s.server.PullRequests()[0].Comments).To(HaveLen(1))
					return
				}
				g.Expect(s.pulls()).To(Equal("open 1"))
				g.Expect(s.Show(s.branch(), "%P")).To(Equal(mustHead(s, gittest.Base)))
				g.Expect(s.follow(p).State).To(Equal(strategy.Open))
			})
		})
	}
}

// Without a branch nothing can be merged: it is made again.
func TestBranchDeleted(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, g *WithT, s *scene) {
		p := s.promotion(1, "1.1.0")
		s.promote(p)
		own := mustHead(s, s.branch())
		s.Delete(s.branch())
		s.looked()
		g.Expect(s.follow(p).State).To(Equal(strategy.Due))
		g.Expect(s.promote(p).State).To(Equal(strategy.Open))
		g.Expect(mustHead(s, s.branch())).To(Equal(own))
		g.Expect(s.pulls()).To(Equal("open 1"))
	})
}

func TestWithdraw(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, g *WithT, s *scene) {
		p := s.promotion(1, "1.1.0")
		s.withdraw(p, "nothing is open")
		s.promote(p)
		person := s.server.Add(providertest.PullRequest{State: providertest.Open, Head: "a-person", Base: gittest.Base, Title: "mine", HeadSHA: "x"})
		for range 2 {
			s.withdraw(p, `environment "staging" agreed on another revision`)
		}
		prs := s.server.PullRequests()
		g.Expect(prs[0].State).To(Equal(providertest.Closed))
		g.Expect(prs[0].Comments).To(HaveLen(1))
		g.Expect(prs[0].Comments[0]).To(ContainSubstring("agreed on another revision"))
		g.Expect(prs[person-1].State).To(Equal(providertest.Open))
	})
}

// A life that was ended before it made the last one's pull request its own takes
// that one back all the same.
func TestWithdrawAfterARetry(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, g *WithT, s *scene) {
		p := s.promotion(1, "1.1.0")
		s.promote(p)
		p.Status.Retry, p.Status.PullRequest = 1, nil
		s.withdraw(p, `environment "staging" agreed on another revision`)
		g.Expect(s.pulls()).To(Equal("closed 1"))
	})
}

func TestAutoMerge(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, g *WithT, s *scene) {
		s.spec.AutoMerge = true
		p := s.promotion(1, "1.1.0")
		result := s.promote(p)
		if result.State == strategy.Open { // Azure DevOps merges in the background.
			g.Expect(s.follow(p).State).To(BeElementOf(strategy.Merged, strategy.Due))
			result = s.promote(p)
		}
		g.Expect(result.State).To(Equal(strategy.Merged))
		g.Expect(s.File(gittest.Base, manifest)).To(Equal(release(s.ns, "prod", "1.1.0")))
	})
}

// What a person has added is not merged for them.
func TestAutoMergeIsGuarded(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, g *WithT, s *scene) {
		p := s.promotion(1, "1.1.0")
		s.promote(p)
		p.Spec.Strategy.PullRequest.AutoMerge = true
		s.Commit(s.branch(), "one more thing", map[string]string{"x.yaml": "a: b\n"})
		g.Expect(s.promote(p).State).To(Equal(strategy.Open))
		g.Expect(s.follow(p).State).To(Equal(strategy.Open))
		g.Expect(s.pulls()).To(Equal("open 1"))
	})
}

// Accepted, but answered with an error: what was done is found.
func TestAcceptedButAnsweredWithAnError(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]providertest.Fault{
		"500":   {Status: http.StatusInternalServerError, After: true, Times: 1},
		"reset": {Reset: true, After: true, Times: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, g *WithT, s *scene) {
				for _, path := range []string{"/git-receive-pack", "pull", "merge_requests"} {
					fault := fault
					fault.Method, fault.Path = http.MethodPost, path
					s.server.AddFault(fault)
				}
				p := s.promotion(1, "1.1.0")
				var err error
				for range 6 {
					if _, err = s.Promote(t.Context(), p, always); err == nil {
						break
					}
					var terminal *strategy.TerminalError
					g.Expect(err).NotTo(BeAssignableToTypeOf(terminal))
				}
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(s.pulls()).To(Equal("open 1"))
				g.Expect(strings.Count(strings.Join(s.Branches(), " "), "promotion-")).To(Equal(1))
			})
		})
	}
}
