package pullrequest_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/strategy"
	"github.com/capstan-hub/capstan/strategy/pullrequest"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo/gittest"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider/providertest"
)

// pause between two pieces of a slow transfer.
const pause = 200 * time.Millisecond

// slowed makes each transfer of a pack last so long, steadily.
func (s *scene) slowed(last time.Duration) {
	like := func(git http.Handler) http.Handler { return gittest.Slow(git, int(last/pause), pause) }
	s.like.Store(&like)
}

// environments gives a scene's repository environments prod-0 to prod-(n-1), and returns their
// promotions.
func (s *scene) environments(n int) []*capstanv1.Promotion {
	files := map[string]string{"media.bin": noise(64 << 10)}
	var all []*capstanv1.Promotion
	for i := range n {
		env := fmt.Sprintf("prod-%d", i)
		files["clusters/"+env+"/web.yaml"] = release(s.ns, env, "1.0.0")
		p := s.promotion(int64(i+1), "1.1.0")
		p.Spec.Environment = env
		all = append(all, p)
	}
	s.Commit(gittest.Base, "environments", files)
	return all
}

// noise is content that no compression makes smaller.
func noise(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return string(b)
}

// carried carries promotions out, so many at a time, and returns how long each took.
func (s *scene) carried(t *testing.T, workers int, all []*capstanv1.Promotion) []time.Duration {
	t.Helper()
	due := make(chan *capstanv1.Promotion, len(all))
	for _, p := range all {
		due <- p
	}
	close(due)
	var group sync.WaitGroup
	var mu sync.Mutex
	var took []time.Duration
	for range workers {
		group.Go(func() {
			for p := range due {
				ctx, cancel := context.WithTimeout(t.Context(), s.Deadline())
				began := time.Now()
				result, err := s.Promote(ctx, p, always)
				cancel()
				if err != nil || result.State != strategy.Open {
					t.Errorf("%s: %s %v", p.Name, result.State, err)
				}
				mu.Lock()
				took = append(took, time.Since(began))
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return took
}

func p95(took []time.Duration) time.Duration {
	slices.Sort(took)
	return took[len(took)*95/100]
}

// The Git server of one namespace sends each pack steadily, over ten seconds (over ten
// minutes with CAPSTAN_SOAK): five times longer than it may be silent. Its six promotions,
// as many as the hub starts for a namespace, are carried out. Those of another namespace
// are as fast meanwhile as before, whose server is another one or the same.
func TestASlowTransferSucceedsAndDelaysNoOtherNamespace(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	last, silence := 10*time.Second, 2*time.Second
	if os.Getenv("CAPSTAN_SOAK") != "" {
		last, silence = 10*time.Minute, 0 // The default.
	}
	slow, good := newScene(t, pipelinesv1.Gitea), newScene(t, pipelinesv1.Gitea)
	good.options.Clock, good.options.Timeout = nil, silence
	good.again()
	n := 6
	if os.Getenv("CAPSTAN_SOAK") != "" {
		n = 3 // The others would wait for a slot until their deadline.
	}
	late, others := slow.environments(n), good.environments(20)
	before, during := others[:10], others[10:]
	slow.slowed(last)

	alone := p95(good.carried(t, 2, before))
	ended := make(chan []time.Duration)
	slow.Strategy = good.Strategy // One hub.
	go func() { ended <- slow.carried(t, len(late), late) }()
	g.Eventually(func() []string { return slow.server.Requests() }).Should(ContainElement(HaveSuffix("/git-upload-pack")))
	beside := p95(good.carried(t, 2, during))
	t.Logf("p95 of the other namespace: %s alone, %s beside slow transfers", alone.Round(time.Millisecond), beside.Round(time.Millisecond))
	g.Expect(beside).To(BeNumerically("<", 2*alone+5*time.Second), "it does not wait for the slow transfers")
	took := <-ended
	g.Expect(slices.Min(took)).To(BeNumerically(">", last/2))
	g.Expect(slow.pulls()).To(Equal(fmt.Sprintf("open %d", n)))
	g.Expect(good.pulls()).To(Equal("open 20"))
}

// A transfer that is longer than the deadline of an attempt ends with a message that names
// the flag. It is no reason to stop the promotion: the next attempt may be faster.
func TestATransferBeyondTheDeadlineNamesTheFlag(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	s := newScene(t, pipelinesv1.Gitea)
	s.options.Clock, s.options.Timeout, s.options.Deadline = nil, 4*time.Second, 8*time.Second
	s.again()
	p := s.environments(1)[0]
	s.slowed(30 * time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), s.Deadline())
	defer cancel()
	_, err := s.Promote(ctx, p, always)
	g.Expect(err).To(MatchError(And(ContainSubstring("an attempt may take 8s"), ContainSubstring("raise --pull-request-deadline"))))
	var terminal *strategy.TerminalError
	g.Expect(errors.As(err, &terminal)).To(BeFalse())
	s.like.Store(nil)
	g.Expect(s.promote(p).State).To(Equal(strategy.Open))
}

// Git hangs, and the API responds: polls of open pull requests between the attempts do not
// hide that. The fourth attempt fails at once, and the polls go on.
func TestGitThatHangsIsNoticedWhileTheAPIResponds(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	s := newScene(t, pipelinesv1.Gitea)
	due := s.environments(4)
	open := s.promotion(9, "1.1.0")
	g.Expect(s.promote(open).State).To(Equal(strategy.Open))
	s.options.Timeout = 3 * time.Second
	s.again()
	s.server.AddFault(providertest.Fault{Path: "/info/refs", Hang: true})
	for i, p := range due {
		began := time.Now()
		_, err := s.Promote(t.Context(), p, always)
		var later *strategy.RetryAfterError
		refused := errors.As(err, &later) && later.Untried
		g.Expect(refused).To(Equal(i == 3), "attempt %d: %v", i+1, err)
		if refused {
			g.Expect(err).To(MatchError(ContainSubstring("does not respond (Git)")))
			g.Expect(time.Since(began)).To(BeNumerically("<", s.options.Timeout))
		}
		g.Expect(s.follow(open).State).To(Equal(strategy.Open), "the API responds")
	}
	s.server.ClearFaults()
	s.clock.Step(time.Minute)
	g.Expect(s.promote(due[3]).State).To(Equal(strategy.Open))
	g.Expect(s.promote(due[0]).State).To(Equal(strategy.Open))
}

// An open pull request whose base has moved on by more than a clone may receive stays healthy.
// Where the server can filter, nothing is changed. Where it cannot, the branch is built again
// on the present base, once.
func TestAnOpenPullRequestWhoseBaseMovedOnByMuch(t *testing.T) {
	t.Parallel()
	for name, filters := range map[string]bool{"the server can filter": true, "it cannot": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			s := newScene(t, pipelinesv1.GitHub)
			workspace, err := gitrepo.NewWorkspace(t.TempDir(), gitrepo.Limits{MaxPack: 1 << 20})
			g.Expect(err).NotTo(HaveOccurred())
			defer func() { g.Expect(workspace.Close()).To(Succeed()) }()
			s.options.Workspace = workspace
			s.again()
			if filters {
				s.Configure("uploadpack.allowFilter", "true")
			}
			p := s.promotion(1, "1.1.0")
			g.Expect(s.promote(p).State).To(Equal(strategy.Open))
			opened := p.Status.PullRequest.HeadSHA
			for i := range 6 {
				s.Commit(gittest.Base, fmt.Sprint(i), map[string]string{"media.bin": noise(300 << 10)})
			}
			s.looked()
			result := s.follow(p)
			if filters {
				g.Expect(result.State).To(Equal(strategy.Open))
			} else {
				g.Expect(result.State).To(Equal(strategy.Due))
				g.Expect(s.promote(p).State).To(Equal(strategy.Open))
			}
			g.Expect(p.Status.PullRequest.HeadSHA == opened).To(Equal(filters))
			s.Commit(gittest.Base, "little", map[string]string{"b.yaml": "b: 1\n"})
			built := p.Status.PullRequest.HeadSHA
			s.looked()
			g.Expect(s.follow(p).State).To(Equal(strategy.Open))
			g.Expect(p.Status.PullRequest.HeadSHA).To(Equal(built))
			g.Expect(s.pulls()).To(Equal("open 1"))
		})
	}
}

// The deadline of the strategy, which claims follow, is that of its options.
func TestTheDeadlineIsAnOption(t *testing.T) {
	g := NewWithT(t)
	g.Expect(pullrequest.New(pullrequest.Options{}).Deadline()).To(Equal(pullrequest.DefaultDeadline))
	g.Expect(pullrequest.New(pullrequest.Options{Deadline: time.Hour}).Deadline()).To(Equal(time.Hour))
}
