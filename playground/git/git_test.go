package git_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"code.gitea.io/sdk/gitea"
	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/playground/git"
	"github.com/capstan-hub/capstan/playground/leaks"
)

const patience = time.Minute

// server is the Gitea of all tests here.
var server *git.Server

func TestMain(m *testing.M) {
	SetDefaultEventuallyTimeout(patience)
	os.Exit(func() int {
		var err error
		if server, err = git.Start(context.Background()); err != nil {
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			return 1
		}
		code := m.Run()
		if err := server.Stop(); err != nil {
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			return 1
		}
		if err := leaks.FindAll(); err != nil && code == 0 {
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			return 1
		}
		return code
	}())
}

func newRepository(t *testing.T) *git.Repository {
	t.Helper()
	r, err := server.CreateRepository(t.Context(), "teams", strings.ToLower(t.Name()), map[string]string{
		"clusters/dev/shop.yaml": "version: 1.0.0\n", "README.md": "The fleet.\n",
	})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return r
}

// open a pull request as a user, from a branch with one commit.
func open(t *testing.T, r *git.Repository, as git.Account, branch string) int64 {
	t.Helper()
	g := NewWithT(t)
	c, err := server.Client(t.Context(), as)
	g.Expect(err).NotTo(HaveOccurred())
	_, _, err = c.CreateBranch(r.Owner, r.Name, gitea.CreateBranchOption{BranchName: branch, OldBranchName: git.Main})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = r.Commit(t.Context(), branch, "clusters/dev/shop.yaml", "1.1.0", func(string) string { return "version: 1.1.0\n" })
	g.Expect(err).NotTo(HaveOccurred())
	pr, _, err := c.CreatePullRequest(r.Owner, r.Name, gitea.CreatePullRequestOption{Head: branch, Base: git.Main, Title: branch})
	g.Expect(err).NotTo(HaveOccurred())
	return pr.Index
}

func robot(t *testing.T, r *git.Repository) git.Account {
	t.Helper()
	g := NewWithT(t)
	a, err := server.AddUser(t.Context(), "robot-"+r.Name)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(r.Allow(t.Context(), a.Username)).To(Succeed())
	return a
}

func TestPullRequestsAreMergedAndClosed(t *testing.T) {
	g := NewWithT(t)
	r := newRepository(t)
	as := robot(t, r)
	merged, closed, left := open(t, r, as, "first"), open(t, r, as, "second"), open(t, r, as, "third")
	g.Expect(r.Merge(t.Context(), merged)).To(Succeed())
	g.Expect(r.Close(t.Context(), closed)).To(Succeed())

	all, err := r.PullRequests(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(all).To(HaveExactElements(
		And(HaveField("Index", merged), HaveField("HasMerged", true), HaveField("State", gitea.StateClosed)),
		And(HaveField("Index", closed), HaveField("HasMerged", false), HaveField("State", gitea.StateClosed)),
		And(HaveField("Index", left), HaveField("HasMerged", false), HaveField("State", gitea.StateOpen)),
	))
	g.Expect(all[0].HTMLURL).To(HavePrefix(server.URL() + "/teams/"))
	g.Expect(r.Read(t.Context(), git.Main, "clusters/dev/shop.yaml")).To(Equal("version: 1.1.0\n"))
	g.Expect(r.Branches(t.Context())).To(Equal([]string{"first", git.Main, "second", "third"}))

	g.Expect(r.Merge(t.Context(), closed)).To(MatchError(ContainSubstring("merging pull request")), "a closed one is merged by nobody")
}

// Commits that are made at a time all arrive, though each clones and pushes by itself.
func TestCommitsAtATime(t *testing.T) {
	g := NewWithT(t)
	r := newRepository(t)
	const teams = 3
	var group sync.WaitGroup
	errs := make([]error, teams)
	for i := range teams {
		group.Go(func() {
			_, errs[i] = r.Commit(t.Context(), git.Main, "teams.txt", "One more", func(before string) string { return before + "team\n" })
		})
	}
	group.Wait()
	g.Expect(errs).To(HaveEach(BeNil()))
	g.Expect(r.Read(t.Context(), git.Main, "teams.txt")).To(Equal(strings.Repeat("team\n", teams)))
	g.Expect(r.Read(t.Context(), git.Main, "README.md")).To(Equal("The fleet.\n"))
}

// What the product's HTTPS rule is tested with: a certificate that only its own
// authority vouches for.
func TestCertificateIsOfItsOwnAuthority(t *testing.T) {
	g := NewWithT(t)
	ask := func(roots *x509.CertPool) error {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
		defer transport.CloseIdleConnections()
		response, err := (&http.Client{Transport: transport}).Get(server.URL() + "/api/healthz")
		if err == nil {
			_ = response.Body.Close()
		}
		return err
	}
	var unknown x509.UnknownAuthorityError
	g.Expect(ask(x509.NewCertPool())).To(MatchError(ContainSubstring(unknown.Error())))
	roots := x509.NewCertPool()
	g.Expect(roots.AppendCertsFromPEM(server.CA())).To(BeTrue())
	g.Expect(ask(roots)).To(Succeed())
}

func TestSeveralSideBySideLeaveNothing(t *testing.T) {
	g := NewWithT(t)
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	other, err := git.Start(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(other.URL()).NotTo(Equal(server.URL()))
	g.Expect(os.ReadDir(temporary)).NotTo(BeEmpty())
	g.Expect(other.Stop()).To(Succeed())
	g.Expect(os.ReadDir(temporary)).To(BeEmpty())
	_, err = other.AddUser(t.Context(), "late")
	g.Expect(err).To(MatchError(ContainSubstring("refused")), "the port is free again")
}
