package promotions_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"code.gitea.io/sdk/gitea"
	. "github.com/onsi/gomega"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/playground/git"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider/providertest"
)

// N1 by pull request against a real Gitea: TestKilledAtRandom, with a repository for
// each run. Every other run is killed at requests to Git and to Gitea only, and first
// of all where a second pull request would come from: when one is opened, in turn
// before Gitea has received the request and after.
func TestKilledAtRandomOnGitea(t *testing.T) {
	t.Parallel()
	runs := 4
	if soak() {
		runs = 20
	}
	server, robot := startedGitea(t)
	kills := newTally(t)
	atRandom(t, runs, func(t *testing.T, random *rand.Rand, seed uint64) {
		next := anyCall(random)
		if seed%2 == 0 {
			next = openingFirst(random, seed%4 == 0)
		}
		var r *onGitea
		playKilled(t, random, kills.of(next), func(w *world, envs ...string) { r = newOnGitea(t, w, server, robot, envs...) })
		r.checkBranches()
	})
}

// openingFirst kills at requests to the service only: the first hub when it opens a
// pull request, the others when they push, if they do, or at any request.
func openingFirst(random *rand.Rand, after bool) func() *killer {
	first := true
	return func() *killer {
		if first {
			first = false
			return &killer{at: 1, only: true, after: after, aim: opens}
		}
		k := &killer{at: random.IntN(12) + 1, only: true, after: random.IntN(2) == 0}
		if random.IntN(2) == 0 {
			k.at, k.aim = 1, pushes
		}
		return k
	}
}

// pushes returns whether a request pushes to Git.
func pushes(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/git-receive-pack")
}

// opens returns whether a request opens a pull request at Gitea.
func opens(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/pulls")
}

// tally counts the kills of all runs by what was under way.
type tally struct {
	mu     sync.Mutex
	killed map[string]int
}

// newTally logs its counts when the test and its runs have ended. Several runs hit the
// opening of a pull request on both sides.
func newTally(t *testing.T) *tally {
	c := &tally{killed: map[string]int{}}
	t.Cleanup(func() {
		for _, at := range slices.Sorted(maps.Keys(c.killed)) {
			t.Logf("%3d killed at %s", c.killed[at], at)
		}
		if os.Getenv("CAPSTAN_SEED") == "" && !t.Failed() {
			g := NewWithT(t)
			g.Expect(c.killed).To(HaveKey("POST /pulls, before it took effect"))
			g.Expect(c.killed).To(HaveKey("POST /pulls, after it took effect"))
		}
	})
	return c
}

// of counts the killers that next makes, once each is over.
func (c *tally) of(next func() *killer) func() *killer {
	return func() *killer {
		k := next()
		k.died = c.add
		return k
	}
}

// ofRepository is what a request's path begins with; aNumber differs from run to run.
var (
	ofRepository = regexp.MustCompile(` /(api/v1/repos/)?` + organisation + `/[^/?]+`)
	aNumber      = regexp.MustCompile(`/\d+`)
	aPage        = regexp.MustCompile(`\?(limit|page)=.*`)
)

func (c *tally) add(k *killer) {
	at := "the API server"
	if k.where != "" {
		at = aPage.ReplaceAllString(aNumber.ReplaceAllString(ofRepository.ReplaceAllString(k.where, " "), "/N"), "")
	}
	side := "before"
	if k.after {
		side = "after"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.killed[at+", "+side+" it took effect"]++
}

const organisation = "teams"

// sharedGitea is the Gitea that all tests of this package share. Each world has a repository of
// its own.
var sharedGitea struct {
	once   sync.Once
	server *git.Server
	robot  git.Account
	err    error
}

// startedGitea returns the shared Gitea, and the user of the hubs. It starts when a test first
// needs it; TestMain stops it.
func startedGitea(t *testing.T) (*git.Server, git.Account) {
	t.Helper()
	s := &sharedGitea
	s.once.Do(func() {
		ctx := context.WithoutCancel(t.Context())
		if s.server, s.err = git.Start(ctx); s.err != nil {
			return
		}
		if s.robot, s.err = s.server.AddUser(ctx, "robot"); s.err != nil {
			return
		}
		// Tests create repositories at the same time, and the organisation must exist before.
		_, s.err = s.server.CreateRepository(ctx, organisation, "first", map[string]string{"README.md": "the first\n"})
	})
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.server, s.robot
}

// stopGitea stops the shared Gitea if it was started. It returns the exit code of the tests.
func stopGitea(code int) int {
	if sharedGitea.server == nil {
		return code
	}
	if err := sharedGitea.server.Stop(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err) // If this fails, the exit code still shows the error.
		return max(code, 1)
	}
	return code
}

// onGitea is a repository on a real Gitea, which the hub reaches through a proxy that
// kills it.
type onGitea struct {
	t          *testing.T
	repository *git.Repository
	front      *httptest.Server
	pushes     pushLog
}

// newOnGitea gives a world a repository on Gitea, and the robot's Secret for it.
func newOnGitea(t *testing.T, w *world, server *git.Server, robot git.Account, envs ...string) *onGitea {
	t.Helper()
	g := NewWithT(t)
	r := &onGitea{t: t}
	var err error
	r.repository, err = server.CreateRepository(t.Context(), organisation, w.ns, w.fleet(envs))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(r.repository.Allow(t.Context(), robot.Username)).To(Succeed())
	w.hosted = &hosted{service: r, t: t, kind: pipelinesv1.Gitea, dir: t.TempDir()}

	behind, err := url.Parse(server.URL())
	g.Expect(err).NotTo(HaveOccurred())
	roots := x509.NewCertPool()
	g.Expect(roots.AppendCertsFromPEM(server.CA())).To(BeTrue())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	r.front = httptest.NewTLSServer(w.hosted.deadly(r.pushes.note(&httputil.ReverseProxy{
		Rewrite:   func(p *httputil.ProxyRequest) { p.SetURL(behind) },
		Transport: transport,
		// Who hung up needs no answer, and no line in the log.
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	})))
	t.Cleanup(func() {
		r.front.Close()
		transport.CloseIdleConnections()
	})
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.front.Certificate().Raw})
	w.gitSecret(t.Context(), robot.Token, ca)
	return r
}

func (r *onGitea) URL() string {
	return r.front.URL + "/" + r.repository.Owner + "/" + r.repository.Name + ".git"
}

// PullRequests reads the pull requests from Gitea directly, not through the proxy.
func (r *onGitea) PullRequests() []providertest.PullRequest {
	r.t.Helper()
	found, err := r.repository.PullRequests(r.t.Context())
	NewWithT(r.t).Expect(err).NotTo(HaveOccurred())
	all := make([]providertest.PullRequest, 0, len(found))
	for _, pr := range found {
		state := providertest.Closed
		switch {
		case pr.HasMerged:
			state = providertest.Merged
		case pr.State == gitea.StateOpen:
			state = providertest.Open
		}
		all = append(all, providertest.PullRequest{
			Number: pr.Index, Title: pr.Title, Body: pr.Body, Head: pr.Head.Name, Base: pr.Base.Name, State: state,
		})
	}
	return all
}

func (r *onGitea) merge(number int64) {
	r.t.Helper()
	NewWithT(r.t).Expect(r.repository.Merge(r.t.Context(), number)).To(Succeed())
}

func (r *onGitea) read(path string) string {
	r.t.Helper()
	content, err := r.repository.Read(r.t.Context(), git.Main, path)
	NewWithT(r.t).Expect(err).NotTo(HaveOccurred())
	return content
}

// checkBranches finds no branch but the base and those of pull requests.
func (r *onGitea) checkBranches() {
	r.t.Helper()
	g := NewWithT(r.t)
	branches, err := r.repository.Branches(r.t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	heads := []any{git.Main}
	for _, pr := range r.PullRequests() {
		heads = append(heads, pr.Head)
	}
	g.Expect(branches).To(ContainElement(git.Main))
	g.Expect(branches).To(HaveEach(BeElementOf(heads...)))
}
