package pullrequest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/internal/netguard/netguardtest"
	"github.com/capstan-hub/capstan/strategy"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider"
)

var (
	inVain  = &gitrepo.Error{Class: gitrepo.Transient, TimedOut: true, Message: "no answer"}
	waiting = &gitrepo.Error{Class: gitrepo.Transient, Message: "waiting for the clones before it"}
	refused = &gitrepo.Error{Class: gitrepo.Transient, Status: http.StatusBadGateway}
	steady  = &gitrepo.Error{Class: gitrepo.Transient, OutOfTime: true, Err: context.DeadlineExceeded}

	apiInVain  = &provider.Error{Class: provider.Transient, TimedOut: true}
	apiRefused = &provider.Error{Class: provider.Transient, Status: http.StatusBadGateway}
	apiTooLate = &provider.Error{Class: provider.Transient, TimedOut: true, Err: context.DeadlineExceeded}
)

// act once, as with does.
func (b *breaker) act(result error) error {
	p, err := b.enter()
	if err != nil {
		return err
	}
	return p.act(func() error { return result })
}

func left(g Gomega, err error) time.Duration {
	var later *strategy.RetryAfterError
	g.ExpectWithOffset(1, errors.As(err, &later)).To(BeTrue(), "%v", err)
	g.ExpectWithOffset(1, err).To(MatchError(errNotAnswering))
	g.ExpectWithOffset(1, later.Untried).To(BeTrue())
	return later.After
}

// Only acts in sequence that waited for this part of the server count: not a response in
// between, not the wait for a slot, not a steady transfer that the act's deadline ended, and
// nothing of the other part.
func TestBreakerOpens(t *testing.T) {
	for name, tc := range map[string]struct {
		of     part
		result []error
		open   bool
	}{
		"three in sequence":          {partGit, []error{inVain, inVain, inVain}, true},
		"two":                        {partGit, []error{inVain, inVain}, false},
		"a success between":          {partGit, []error{inVain, inVain, nil, inVain, inVain}, false},
		"an error's answer between":  {partGit, []error{inVain, inVain, refused, inVain, inVain}, false},
		"a wait for a place between": {partGit, []error{inVain, waiting, inVain, waiting, inVain}, true},
		"waits for a place":          {partGit, []error{waiting, waiting, waiting, waiting}, false},
		"steady transfers":           {partGit, []error{steady, steady, steady, steady}, false},
		"the API answers between":    {partGit, []error{inVain, apiRefused, inVain, apiRefused, inVain}, true},
		"the API is silent":          {partGit, []error{apiInVain, apiInVain, apiInVain}, false},
		"API, three in sequence":     {partAPI, []error{apiInVain, apiInVain, apiInVain}, true},
		"API, Git answers between":   {partAPI, []error{apiInVain, refused, apiInVain, refused, apiInVain}, true},
		"API, Git is silent":         {partAPI, []error{inVain, inVain, inVain}, false},
		"API, the act's deadline":    {partAPI, []error{apiTooLate, apiTooLate, apiTooLate}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			b := newBreaker(testclock.NewFakeClock(time.Now()), tc.of)
			for _, result := range tc.result {
				g.Expect(b.act(result) == result).To(BeTrue(), "let in") //nolint:errorlint // The very one.
			}
			_, err := b.enter()
			g.Expect(err != nil).To(Equal(tc.open))
			if tc.open {
				g.Expect(left(g, err)).To(Equal(firstRest))
			}
		})
	}
}

// One act at a time tries again, later and later, and the first answer lets all in.
func TestBreakerProbes(t *testing.T) {
	g := NewWithT(t)
	clock := testclock.NewFakeClock(time.Now())
	b := newBreaker(clock, partGit)
	early, err := b.enter()
	g.Expect(err).NotTo(HaveOccurred())
	for range maxLate {
		g.Expect(b.act(inVain)).To(MatchError(inVain))
	}
	g.Expect(early.refusal()).To(MatchError(errNotAnswering), "who waited for a place meanwhile asks nothing")
	early.leave(early.refusal())
	for rest := firstRest; rest <= 2*maxRest; rest *= 2 {
		_, err := b.enter()
		g.Expect(left(g, err)).To(Equal(min(rest, maxRest)))
		clock.Step(min(rest, maxRest))
		probe, err := b.enter()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(probe.refusal()).To(BeNil())
		_, err = b.enter()
		g.Expect(left(g, err)).To(Equal(firstRest), "one at a time")
		probe.leave(inVain)
	}
	clock.Step(maxRest)
	probe, err := b.enter()
	g.Expect(err).NotTo(HaveOccurred())
	probe.leave(waiting)
	probe, err = b.enter()
	g.Expect(err).NotTo(HaveOccurred(), "who learnt nothing leaves the place to another")
	g.Expect(func() { _ = probe.act(func() error { panic("an act that fails") }) }).To(Panic())
	probe, err = b.enter()
	g.Expect(err).NotTo(HaveOccurred(), "and who panicked, too")
	probe.leave(nil)
	for range 10 {
		_, err := b.enter()
		g.Expect(err).NotTo(HaveOccurred())
	}
}

// TestGitAtAForbiddenAddress proves the policy of internal/netguard for clones: a
// forbidden address is an error of the Pipeline that no repetition fixes, as for the API.
// Where loopback is allowed, it is dialled.
func TestGitAtAForbiddenAddress(t *testing.T) {
	g := NewWithT(t)
	workspace, err := gitrepo.NewWorkspace(t.TempDir(), gitrepo.Limits{})
	g.Expect(err).NotTo(HaveOccurred())
	clone := func(a netguardtest.Address, allow bool) error {
		made, err := provider.New(provider.Options{
			Type: pipelinesv1.Gitea, URL: "https://" + a.Host() + ":1/fleet/apps.git", AllowLoopback: allow, Credentials: provider.Credentials{Token: "a-token-of-a-test"},
		})
		g.Expect(err).NotTo(HaveOccurred(), a.IP)
		p, err := newBreaker(testclock.NewFakeClock(time.Now()), partGit).enter()
		g.Expect(err).NotTo(HaveOccurred())
		return workspace.Clone(t.Context(), gitrepo.Remote{URL: made.Repository().CloneURL, Transport: &gate{pass: p, next: made.Transport()}},
			func(context.Context, *gitrepo.Clone) error { return nil })
	}
	var terminal *strategy.TerminalError
	for _, a := range append(slices.Clone(netguardtest.Forbidden), netguardtest.Loopback...) {
		err := clone(a, false)
		g.Expect(errors.As(explain(err, capstanv1.SecretVersion{}), &terminal)).To(BeTrue(), "%s: %v", a.IP, err)
		g.Expect(terminal.Reason).To(Equal(ReasonInvalidSpec), a.IP)
		g.Expect(terminal).To(MatchError(And(ContainSubstring(a.Reason), ContainSubstring("use another address in url of the Pipeline's strategy"))), a.IP)
	}
	for _, a := range netguardtest.Loopback {
		err := clone(a, true) // Nothing listens there.
		g.Expect(err).To(HaveOccurred(), a.IP)
		g.Expect(errors.As(explain(err, capstanv1.SecretVersion{}), &terminal)).To(BeFalse(), "%s: %v", a.IP, err)
	}
	g.Expect(workspace.Close()).To(Succeed())
}

// No value turns the text around it: neither a control character nor one of format.
func TestOneLine(t *testing.T) {
	g := NewWithT(t)
	for _, r := range "\n\x00\x1b\u0085\u00ad\u061c\u200b\u200d\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff\U000e0041" {
		g.Expect(oneLine("1.0"+string(r)+"0.1")).To(Equal("1.0�0.1"), "%U", r)
	}
	g.Expect(oneLine("Ünïted 日本 1.0+x")).To(Equal("Ünïted 日本 1.0+x"))
}

// Of Secrets that come and go nothing stays; what a service asked for does, for as long
// as it did.
func TestPacesAreForgotten(t *testing.T) {
	g := NewWithT(t)
	clock := testclock.NewFakeClock(time.Now())
	c := newConnections(Options{Clock: clock})
	limited := &provider.Error{Class: provider.RateLimited, RetryAfter: 50 * time.Minute}
	open := func(i int) *connection {
		url := fmt.Sprintf("https://git-%d.example.com/fleet/apps.git", i)
		made, err := provider.New(provider.Options{Type: pipelinesv1.Gitea, URL: url, Credentials: provider.Credentials{Token: "a-token-of-a-test"}})
		g.Expect(err).NotTo(HaveOccurred())
		return c.keep(connectionKey{secret: types.NamespacedName{Name: fmt.Sprint(i)}, url: url}, made)
	}
	open(-1).pace.note(clock.Now(), limited)
	for i := range 1000 {
		kept := open(i)
		g.Expect(kept.pace.poll(clock.Now())).To(Succeed())
		clock.Step(time.Minute)
		if i == 45 {
			g.Expect(c.lockedPaces).To(HaveKey(paceKey{"https://git--1.example.com", types.NamespacedName{Name: "-1"}}))
		}
	}
	g.Expect(len(c.lockedOpen)).To(BeNumerically("<=", 12))
	g.Expect(len(c.lockedPaces)).To(BeNumerically("<=", 12))
	g.Expect(len(c.lockedBreakers)).To(BeNumerically("<=", 12))
	c.close()
}
