package provider_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider/providertest"
)

const (
	head = "promotion-team-web-prod"
	base = "main"
)

// types of the five services; every test of this file runs against each.
var types = []pipelinesv1.GitProviderType{
	pipelinesv1.GitHub, pipelinesv1.GitLab, pipelinesv1.Gitea, pipelinesv1.AzureDevOps, pipelinesv1.BitbucketServer,
}

// each runs a test against a fresh server of every type, with a Provider for it.
func each(t *testing.T, test func(t *testing.T, s *providertest.Server, p provider.Provider)) {
	for _, kind := range types {
		t.Run(string(kind), func(t *testing.T) {
			s := providertest.New(t, providertest.Options{Type: kind})
			s.SetBranch(base, "base-1")
			s.SetBranch(head, "sha-1")
			test(t, s, connect(t, kind, s, nil))
		})
	}
}

func connect(t *testing.T, kind pipelinesv1.GitProviderType, s *providertest.Server, change func(*provider.Options)) provider.Provider {
	t.Helper()
	o := provider.Options{
		Type: kind, URL: s.URL(), CABundle: s.CA(), AllowLoopback: true, Timeout: 10 * time.Second,
		Credentials: provider.Credentials{Token: providertest.Token},
	}
	if change != nil {
		change(&o)
	}
	p, err := provider.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.CloseIdle)
	return p
}

func open(t *testing.T, p provider.Provider) provider.PullRequest {
	t.Helper()
	pr, err := p.Create(t.Context(), provider.NewPullRequest{Head: head, Base: base, Title: "Promote team/web in prod to 1.2.3", Body: "body"})
	if err != nil {
		t.Fatal(err)
	}
	return pr
}

func find(t *testing.T, p provider.Provider) []provider.PullRequest {
	t.Helper()
	found, err := p.Find(t.Context(), provider.Query{Head: head, Base: base})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestNothingIsFoundAtFirst(t *testing.T) {
	each(t, func(t *testing.T, _ *providertest.Server, p provider.Provider) {
		NewWithT(t).Expect(find(t, p)).To(BeEmpty())
	})
}

func TestWhatWasCreatedIsFoundAndRead(t *testing.T) {
	each(t, func(t *testing.T, _ *providertest.Server, p provider.Provider) {
		g := NewWithT(t)
		created := open(t, p)
		g.Expect(created.State).To(Equal(provider.Open))
		g.Expect(created.Head).To(Equal(head))
		g.Expect(created.Base).To(Equal(base))
		g.Expect(created.HeadSHA).To(Equal("sha-1"))
		g.Expect(created.MergeSHA).To(BeEmpty())
		g.Expect(created.Title).To(Equal("Promote team/web in prod to 1.2.3"))
		g.Expect(created.Body).To(Equal("body"))
		g.Expect(created.URL).To(HavePrefix("https://127.0.0.1:"))
		g.Expect(created.URL).To(HaveSuffix("/%d", created.Number))

		g.Expect(find(t, p)).To(ConsistOf(created))
		read, err := p.Get(t.Context(), created.Number)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(read).To(Equal(created))
	})
}

func TestOtherBranchesAreNotFound(t *testing.T) {
	each(t, func(t *testing.T, s *providertest.Server, p provider.Provider) {
		g := NewWithT(t)
		open(t, p)
		for _, q := range []provider.Query{{Head: head + "-2", Base: base}, {Head: head, Base: "release"}, {Head: base, Base: head}} {
			g.Expect(p.Find(t.Context(), q)).To(BeEmpty())
		}
	})
}

// Branch names that mean something in URLs.
func TestAwkwardBranchNames(t *testing.T) {
	each(t, func(t *testing.T, s *providertest.Server, p provider.Provider) {
		g := NewWithT(t)
		for _, name := range []string{"a/b", "a&b=c", "50%25", "a+b#c", "ünï", "a;b,c@d!e'f(g)"} {
			s.SetBranch(name, "sha-x")
			s.SetBranch("base/"+name, "sha-y")
			created, err := p.Create(t.Context(), provider.NewPullRequest{Head: name, Base: "base/" + name, Title: name, Body: ""})
			g.Expect(err).NotTo(HaveOccurred(), name)
			g.Expect(p.Find(t.Context(), provider.Query{Head: name, Base: "base/" + name})).To(ConsistOf(created), name)
		}
	})
}

func TestSecondForTheSameBranchesIsRefused(t *testing.T) {
	each(t, func(t *testing.T, s *providertest.Server, p provider.Provider) {
		g := NewWithT(t)
		open(t, p)
		_, err := p.Create(t.Context(), provider.NewPullRequest{Head: head, Base: base, Title: "again", Body: "body"})
		g.Expect(err).To(MatchError(provider.ErrAlreadyExists))
		g.Expect(s.PullRequests()).To(HaveLen(1))
	})
}

func TestMissingBranchIsTerminal(t *testing.T) {
	each(t, func(t *testing.T, _ *providertest.Server, p provider.Provider) {
		g := NewWithT(t)
		_, err := p.Create(t.Context(), provider.NewPullRequest{Head: "gone", Base: base, Title: "title", Body: "body"})
		g.Expect(err).To(SatisfyAny(MatchError(provider.ErrValidation), MatchError(provider.ErrNotFound)))
		var e *provider.Error
		g.Expect(err).To(BeAssignableToTypeOf(e))
	})
}

func TestTitleAndBodyAreChangedApart(t *testing.T) {
	each(t, func(t *testing.T, s *providertest.Server, p provider.Provider) {
		g := NewWithT(t)
		created := open(t, p)
		g.Expect(p.RequestReviews(t.Context(), created.Number, reviewers(p.Type())[:1])).To(Succeed())
		title := "Promote team/web in prod to 1.2.4"
		// Longer than what Azure DevOps shows in lists.
		body := strings.Repeat("Zeile mit Ümlauten, \"quotes\" & <tags>.\n", 60)

		after, err := p.Update(t.Context(), created.Number, provider.Edit{Title: &title})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(after.Title).To(Equal(title))
		g.Expect(after.Body).To(Equal("body"))
		after, err = p.Update(t.Context(), created.Number, provider.Edit{Body: &body})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(after.Title).To(Equal(title))
		g.Expect(after.Body).To(Equal(body))

		found := find(t, p)
		g.Expect(found).To(HaveLen(1))
		g.Expect(found[0].Body).To(Equal(body), "lists must not cut it")
		g.Expect(s.PullRequests()[0].Reviewers).To(Equal(reviewers(p.Type())[:1]), "an update keeps the reviewers")
	})
}

func TestMergeIsGuardedByTheHead(t *testing.T) {
	each(t, func(t *testing.T, s *providertest.Server, p provider.Provider) {
		g := NewWithT(t)
		created := open(t, p)
		s.SetBranch(head, "sha-2")
		_, err := p.Merge(t.Context(), created.Number, provider.MergeOptions{HeadSHA: "sha-1"})
		g.Expect(err).To(MatchError(provider.ErrHeadMoved))
		g.Expect(s.PullRequests()[0].State).To(Equal(providertest.Open))

		merged, err := p.Merge(t.Context(), created.Number, provider.MergeOptions{HeadSHA: "sha-2", Message: "why"})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(merged.State).To(Equal(provider.Merged))
		g.Expect(merged.MergeSHA).To(Equal("merge-1-sha-2"))

		again, err := p.Merge(t.Context(), created.Number, provider.MergeOptions{HeadSHA: "sha-2"})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(again).To(Equal(merged))
		g.Expect(find(t, p)).To(ConsistOf(merged))
	})
}

// A push between the look and the merge: the service's own guard must hold.
func TestMergeLosesToAPush(t *testing.T) {
	each(t, func(t *testing.T, s *providertest.Server, p provider.Provider) {
		g := NewWithT(t)
		created := open(t, p)
		s.BeforeActs(func(*http.Request) bool { s.SetBranch(head, "sha-2"); return true })
		_, err := p.Merge(t.Context(), created.Number, provider.MergeOptions{HeadSHA: "sha-1"})
		// Bitbucket Server says no more than that it was changed.
		g.Expect(err).To(SatisfyAny(MatchError(provider.ErrHeadMoved), MatchError(provider.ErrConflict)))
		g.Expect(s.PullRequests()[0].State).To(Equal(providertest.Open))
	})
}

func TestClosedIsNotMerged(t *testing.T) {
	each(t, func(t *testing.T, s *providertest.Server, p provider.Provider) {
		g := NewWithT(t)
		created := open(t, p)
		s.SetState(created.Number, providertest.Closed)
		_, err := p.Merge(t.Context(), created.Number, provider.MergeOptions{HeadSHA: "sha-1"})
		g.Expect(err).To(MatchError(provider.ErrConflict))
	})
}

func TestCloseSaysWhyOnce(t *testing.T) {
	each(t, func(t *testing.T, s *providertest.Server, p provider.Provider) {
		g := NewWithT(t)
		created := open(t, p)
		for range 2 {
			closed, err := p.Close(t.Context(), created.Number, provider.Closing{Comment: "superseded by 1.2.4"})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(closed.State).To(Equal(provider.Closed))
		}
		g.Expect(s.PullRequests()[0].Comments).To(Equal([]string{"superseded by 1.2.4"}))
	})
}

// Only Gitea closes pull requests some time after the deletion of a branch.
func TestReopen(t *testing.T) {
	each(t, func(t *testing.T, s *providertest.Server, p provider.Provider) {
		g := NewWithT(t)
		created := open(t, p)
		closure := func() provider.Closure {
			c, err := p.Closure(t.Context(), created.Number)
			g.Expect(err).NotTo(HaveOccurred())
			return c
		}
		if p.Type() != pipelinesv1.Gitea {
			before := len(s.Requests())
			g.Expect(closure()).To(Equal(provider.ByRequest))
			_, err := p.Reopen(t.Context(), created.Number)
			g.Expect(err).To(MatchError(provider.ErrUnsupported))
			g.Expect(s.Requests()).To(HaveLen(before))
			return
		}
		again := func() provider.PullRequest {
			pr, err := p.Reopen(t.Context(), created.Number)
			g.Expect(err).NotTo(HaveOccurred())
			return pr
		}
		before := len(s.Requests())
		g.Expect(again()).To(Equal(created), "it is open")
		g.Expect(s.Requests()).To(HaveLen(before + 1))
		s.CloseLate(created.Number, providertest.Robot, time.Now(), true)
		g.Expect(closure()).To(Equal(provider.ByDeletion))
		g.Expect(again()).To(Equal(created))
		s.CloseLate(created.Number, providertest.Robot, time.Now().Add(time.Hour), false) // However slow the test is.
		g.Expect(closure()).To(Equal(provider.Unclear))
		s.CloseLate(created.Number, providertest.Robot, time.Now().Add(-time.Minute), false)
		g.Expect(closure()).To(Equal(provider.ByRequest))
		s.SetState(created.Number, providertest.Closed)
		g.Expect(closure()).To(Equal(provider.ByRequest))
		s.SetState(created.Number, providertest.Merged)
		g.Expect(again().State).To(Equal(provider.Merged))
	})
}

func TestEveryStateIsFoundNewestFirst(t *testing.T) {
	each(t, func(t *testing.T, s *providertest.Server, p provider.Provider) {
		g := NewWithT(t)
		merged := open(t, p)
		s.SetState(merged.Number, providertest.Merged)
		closed := open(t, p)
		s.SetState(closed.Number, providertest.Closed)
		opened := open(t, p)
		fork := s.Add(providertest.PullRequest{State: providertest.Open, Head: head, Base: base, HeadSHA: "sha-f", Title: "from a fork", Fork: true})

		var numbers []int64
		var states []provider.State
		for _, pr := range find(t, p) {
			numbers, states = append(numbers, pr.Number), append(states, pr.State)
		}
		g.Expect(numbers).To(Equal([]int64{opened.Number, closed.Number, merged.Number}))
		g.Expect(numbers).NotTo(ContainElement(fork))
		g.Expect(states).To(Equal([]provider.State{provider.Open, provider.Closed, provider.Merged}))
	})
}

func TestFoundAfterItsBranchWasDeleted(t *testing.T) {
	each(t, func(t *testing.T, s *providertest.Server, p provider.Provider) {
		g := NewWithT(t)
		created := open(t, p)
		s.SetState(created.Number, providertest.Merged)
		s.DeleteBranch(head)
		found := find(t, p)
		g.Expect(found).To(HaveLen(1))
		g.Expect(found[0].State).To(Equal(provider.Merged))
		g.Expect(found[0].Head).To(Equal(head))
		g.Expect(found[0].MergeSHA).To(Equal("by-hand-sha-1"))
	})
}

func TestPaging(t *testing.T) {
	each(t, func(t *testing.T, s *providertest.Server, p provider.Provider) {
		g := NewWithT(t)
		const all = 230 // more than two pages of any of them
		for i := range all {
			s.Add(providertest.PullRequest{State: providertest.Closed, Head: head, Base: base, HeadSHA: fmt.Sprint(i), Title: "old"})
			s.Add(providertest.PullRequest{State: providertest.Open, Head: fmt.Sprintf("other-%d", i), Base: base, HeadSHA: "x", Title: "other"})
		}
		found := find(t, p)
		g.Expect(found).To(HaveLen(all))
		g.Expect(slices.IsSortedFunc(found, func(a, b provider.PullRequest) int { return int(b.Number - a.Number) })).To(BeTrue())

		before := len(s.Requests())
		few, err := p.Find(t.Context(), provider.Query{Head: head, Base: base, Limit: 3})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(few).To(Equal(found[:3]))
		g.Expect(len(s.Requests())-before).To(Equal(1), "a limit that one page holds is one request")
	})
}

// An open one must be found however many newer ones there are.
func TestOldOpenOneBehindThousandsOfOthers(t *testing.T) {
	each(t, func(t *testing.T, s *providertest.Server, p provider.Provider) {
		g := NewWithT(t)
		created := open(t, p)
		for range 2100 {
			s.Add(providertest.PullRequest{State: providertest.Closed, Head: "other", Base: base, HeadSHA: "x", Title: "other"})
		}
		g.Expect(find(t, p)).To(ConsistOf(created))
		g.Expect(len(s.Requests())).To(BeNumerically("<", 60))
	})
}

func reviewers(t pipelinesv1.GitProviderType) []string {
	if t == pipelinesv1.AzureDevOps {
		return []string{"3b5f0c34-4aec-4bf4-8708-1d36f0dbc468", "19d9411e-9a34-45bb-b985-d24d9d87c0c9"}
	}
	return []string{"ann", "ben"}
}

func TestLabelsAndReviewersAreAddedOnce(t *testing.T) {
	each(t, func(t *testing.T, s *providertest.Server, p provider.Provider) {
		g := NewWithT(t)
		created := open(t, p)
		names := reviewers(p.Type())
		for range 2 {
			g.Expect(p.RequestReviews(t.Context(), created.Number, names[:1])).To(Succeed())
			g.Expect(p.RequestReviews(t.Context(), created.Number, names)).To(Succeed())
			err := p.AddLabels(t.Context(), created.Number, []string{"promotion", "capstan"})
			if p.Limits().Labels {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(provider.ErrUnsupported))
			}
		}
		pr := s.PullRequests()[0]
		g.Expect(pr.Reviewers).To(Equal(names))
		if p.Limits().Labels {
			g.Expect(pr.Labels).To(Equal([]string{"promotion", "capstan"}))
		}
		before := len(s.Requests())
		g.Expect(p.AddLabels(t.Context(), created.Number, nil)).To(Succeed())
		g.Expect(p.RequestReviews(t.Context(), created.Number, nil)).To(Succeed())
		g.Expect(s.Requests()).To(HaveLen(before), "nothing to add is nothing to ask")
	})
}

func TestUnknownNumber(t *testing.T) {
	each(t, func(t *testing.T, _ *providertest.Server, p provider.Provider) {
		_, err := p.Get(t.Context(), 42)
		NewWithT(t).Expect(err).To(MatchError(provider.ErrNotFound))
	})
}

func TestWhatMakesNoSenseIsNotAsked(t *testing.T) {
	each(t, func(t *testing.T, s *providertest.Server, p provider.Provider) {
		g := NewWithT(t)
		empty := ""
		_, err := p.Find(t.Context(), provider.Query{Head: head})
		g.Expect(err).To(MatchError(provider.ErrValidation))
		_, err = p.Create(t.Context(), provider.NewPullRequest{Head: head, Base: base})
		g.Expect(err).To(MatchError(provider.ErrValidation))
		_, err = p.Update(t.Context(), 1, provider.Edit{Title: &empty})
		g.Expect(err).To(MatchError(provider.ErrValidation))
		_, err = p.Merge(t.Context(), 1, provider.MergeOptions{})
		g.Expect(err).To(MatchError(provider.ErrValidation))
		g.Expect(s.Requests()).To(BeEmpty())
	})
}

// Many at once, on one Provider.
func TestConcurrentUse(t *testing.T) {
	each(t, func(t *testing.T, _ *providertest.Server, p provider.Provider) {
		g := NewWithT(t)
		created := open(t, p)
		const callers = 16
		errs := make(chan error, callers)
		for range callers {
			go func() {
				_, err := p.Get(context.WithoutCancel(t.Context()), created.Number)
				errs <- err
			}()
		}
		for range callers {
			g.Expect(<-errs).NotTo(HaveOccurred())
		}
	})
}

// The state of a check is set at the head of a pull request, pending or successful, as often as wanted.
func TestStatusOfAHead(t *testing.T) {
	each(t, func(t *testing.T, s *providertest.Server, p provider.Provider) {
		g := NewWithT(t)
		pr := open(t, p)
		status := provider.CommitStatus{
			SHA: "sha-1", Number: pr.Number, Context: provider.StatusContext{Genre: "capstan", Name: "gates"}, Description: strings.Repeat("ä", 200), URL: pr.URL, State: provider.StatusPending,
		}
		g.Expect(p.SetStatus(t.Context(), status)).To(Succeed())
		g.Expect(p.SetStatus(t.Context(), status)).To(Succeed(), "again")
		status.State, status.Description = provider.StatusSuccess, "all gates are open"
		g.Expect(p.SetStatus(t.Context(), status)).To(Succeed())
		all := s.Statuses()
		g.Expect(len(all)).To(BeNumerically(">=", 2))
		g.Expect(all[0]).To(And(HaveField("Name", "capstan/gates"), HaveField("State", "pending"), HaveField("Description", HaveLen(2*139+len("…")))))
		g.Expect(all[len(all)-1]).To(And(HaveField("State", "success"), HaveField("Description", "all gates are open")))

		s.AddFault(providertest.Fault{Method: http.MethodPost, Status: http.StatusForbidden, Body: []byte(`{"message":"Resource not accessible"}`)})
		g.Expect(p.SetStatus(t.Context(), status)).To(MatchError(provider.ErrForbidden))
		s.ClearFaults()
		status.SHA = ""
		g.Expect(p.SetStatus(t.Context(), status)).To(MatchError(provider.ErrValidation))
	})
}
