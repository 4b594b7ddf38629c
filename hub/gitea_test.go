package hub_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"testing"

	"code.gitea.io/sdk/gitea"
	. "github.com/onsi/gomega"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/playground/git"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider/providertest"
)

// N1 by pull request against a real Gitea: TestKilledAtRandom, with a repository for
// each run.
func TestKilledAtRandomOnGitea(t *testing.T) {
	runs := 3
	if os.Getenv("CAPSTAN_SOAK") != "" {
		runs = 20
	}
	g := NewWithT(t)
	server, err := git.Start(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	robot, err := server.AddUser(t.Context(), "robot")
	g.Expect(err).NotTo(HaveOccurred())
	// The runs are at a time, and an organisation is made once.
	_, err = server.CreateRepository(t.Context(), organisation, "first", map[string]string{"README.md": "the first\n"})
	g.Expect(err).NotTo(HaveOccurred())

	atRandom(t, runs, func(t *testing.T, random *rand.Rand, _ uint64) {
		var r *onGitea
		playKilled(t, random, func(w *world, envs ...string) { r = newOnGitea(t, w, server, robot, envs...) })
		r.checkBranches()
	})
}

const organisation = "teams"

// onGitea is a repository on a real Gitea, which the hub reaches through a proxy that
// kills it.
type onGitea struct {
	t          *testing.T
	repository *git.Repository
	front      *httptest.Server
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
	r.front = httptest.NewTLSServer(w.hosted.deadly(&httputil.ReverseProxy{
		Rewrite:   func(p *httputil.ProxyRequest) { p.SetURL(behind) },
		Transport: transport,
		// Who hung up needs no answer, and no line in the log.
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}))
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

// PullRequests are asked of Gitea itself, past the proxy.
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
