package gitrepo_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo/gittest"
)

// A base branch that has moved on by more than a clone may receive is compared without its
// files where the server can filter: as GitHub and Gitea can, and as GitLab, which allows only
// some filters. Where the server cannot, the error is TooLarge, and the clone can still push.
func TestLeadsOverABaseThatMovedOnByMuch(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		configure map[string]string
		tooLarge  bool
	}{
		"any filter": {configure: map[string]string{"uploadpack.allowFilter": "true"}},
		"by type only": {configure: map[string]string{
			"uploadpack.allowFilter": "true", "uploadpackfilter.allow": "false", "uploadpackfilter.object:type.allow": "true",
		}},
		"no filter is allowed": {configure: map[string]string{"uploadpack.allowFilter": "true", "uploadpackfilter.allow": "false"}, tooLarge: true},
		"no filter is offered": {tooLarge: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := newScene(t, map[string]string{"a.yaml": "a: 1\n"}, gitrepo.Limits{MaxPack: 1 << 20})
			for key, value := range tc.configure {
				s.Configure(key, value)
			}
			built, _ := s.Head(gittest.Base)
			for i := range 5 {
				s.Commit(gittest.Base, fmt.Sprint(i), map[string]string{"media.bin": noise(400 << 10)})
			}
			received := int64(0)
			inner := s.remote.Transport
			s.remote.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
				response, err := inner.RoundTrip(r)
				if err == nil && filepath.Base(r.URL.Path) == "git-upload-pack" {
					response.Body = &counted{ReadCloser: response.Body, n: &received}
				}
				return response, err
			})
			var made gitrepo.Made
			g.Expect(s.clone(t, func(ctx context.Context, c *gitrepo.Clone) error {
				base, _ := c.Branch(gittest.Base)
				if err := c.Fetch(ctx, 1, base); err != nil {
					return err
				}
				received = 0
				leads, err := c.Leads(ctx, base, gitrepo.ParseHash(built))
				if tc.tooLarge {
					g.Expect(gitrepo.ClassOf(err)).To(Equal(gitrepo.TooLarge), "%v", err)
				} else {
					g.Expect(err).NotTo(HaveOccurred())
					g.Expect(leads).To(BeTrue())
					g.Expect(received).To(BeNumerically("<", 8<<10), "five commits, not their files")
				}
				if made, err = c.Make(ctx, gitrepo.Change{Parent: base, Files: map[string][]byte{"a.yaml": []byte("a: 2\n")}, By: by, Message: "m"}); err != nil {
					return err
				}
				return c.Push(ctx, "promotion", gitrepo.Hash{}, made)
			})).To(Succeed())
			head, _ := s.Head("promotion")
			g.Expect(head).To(Equal(made.Hash.String()))
		})
	}
}

// The commits below the one that was checked last are not fetched again, and a base that was
// replaced since is noticed.
func TestLeadsFetchesOnlyWhatIsNew(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	s := newScene(t, map[string]string{"a.yaml": "a: 1\n"}, gitrepo.Limits{MaxPack: 1 << 20})
	built, _ := s.Head(gittest.Base)
	for i := range 5 {
		s.Commit(gittest.Base, fmt.Sprint(i), map[string]string{"media.bin": noise(400 << 10)})
	}
	checked := s.Commit(gittest.Base, "small again", map[string]string{"media.bin": ""})
	leads := func() (found bool) {
		g.Expect(s.clone(t, func(ctx context.Context, c *gitrepo.Clone) (err error) {
			base, _ := c.Branch(gittest.Base)
			if err := c.Fetch(ctx, 1, base); err != nil {
				return err
			}
			found, err = c.Leads(ctx, base, gitrepo.ParseHash(built), gitrepo.ParseHash(checked))
			return err
		})).To(Succeed())
		return found
	}
	g.Expect(leads()).To(BeTrue(), "the base has not changed")
	s.Commit(gittest.Base, "next", map[string]string{"b.yaml": "b: 1\n"})
	g.Expect(leads()).To(BeTrue())
	s.Delete(gittest.Base)
	s.Commit(gittest.Base, "another history", map[string]string{"a.yaml": "a: 1\n"})
	g.Expect(leads()).To(BeFalse())
}

// counted counts what is read of a body.
type counted struct {
	io.ReadCloser
	n *int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	*c.n += int64(n)
	return n, err
}
