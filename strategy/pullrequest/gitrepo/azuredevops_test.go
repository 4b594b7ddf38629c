package gitrepo_test

import (
	"context"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo/gittest"
)

// A repository at Azure DevOps can be cloned, edited and pushed, and its history can be
// fetched. Azure DevOps refuses each fetch of a client that does not request multi_ack; a
// fetch with haves gets one ACK for each of them and a last one.
func TestAzureDevOpsIsClonedPushedAndCompared(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	s := newScene(t, map[string]string{"a.yaml": "a: 1\n"}, gitrepo.Limits{})
	s.serve(t, gittest.LikeAzureDevOps)
	var made gitrepo.Made
	g.Expect(s.clone(t, promote(gittest.Base, "promotion", "a.yaml", "a: 2\n", &made))).To(Succeed())
	head, _ := s.Head("promotion")
	g.Expect(head).To(Equal(made.Hash.String()))

	built, _ := s.Head(gittest.Base)
	for _, content := range []string{"b: 1\n", "b: 2\n", "b: 3\n"} {
		s.Commit(gittest.Base, "more", map[string]string{"b.yaml": content})
	}
	g.Expect(s.clone(t, func(ctx context.Context, c *gitrepo.Clone) error {
		base, _ := c.Branch(gittest.Base)
		if err := c.Fetch(ctx, 2, base, made.Hash); err != nil {
			return err
		}
		leads, err := c.Leads(ctx, base, gitrepo.ParseHash(built))
		g.Expect(leads).To(BeTrue())
		if err != nil {
			return err
		}
		leads, err = c.Leads(ctx, base, made.Hash, gitrepo.ParseHash("1234567890123456789012345678901234567890"))
		g.Expect(leads).To(BeFalse())
		if err != nil {
			return err
		}
		foreign, err := c.Foreign(ctx, made.Hash, base, 10,
			func(gitrepo.Commit) bool { return true }, func(gitrepo.Commit) bool { return false })
		g.Expect(foreign).To(BeNil())
		return err
	})).To(Succeed())
}

// The server of the test before is a fair one: Git itself can use it.
func TestGitItselfClonesFromTheServerLikeAzureDevOps(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	repository := gittest.New(t, map[string]string{"a.yaml": "a: 1\n"})
	server := httptest.NewServer(gittest.LikeAzureDevOps(repository.Handler(func() string { return password })))
	t.Cleanup(server.Close)
	at, err := url.Parse(server.URL + "/apps.git")
	g.Expect(err).NotTo(HaveOccurred())
	at.User = url.UserPassword("git", password)
	to := filepath.Join(t.TempDir(), "clone")
	out, err := exec.CommandContext(t.Context(), "git", "clone", "--depth=1", at.String(), to).CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), "%s", out)
	repository.Commit(gittest.Base, "more", map[string]string{"b.yaml": "b: 1\n"})
	out, err = exec.CommandContext(t.Context(), "git", "-C", to, "fetch").CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), "%s", out)
}
