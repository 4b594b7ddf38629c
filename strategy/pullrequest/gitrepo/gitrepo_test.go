package gitrepo_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/playground/leaks"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo/gittest"
)

func TestMain(m *testing.M) {
	SetDefaultEventuallyTimeout(30 * time.Second) // The machine may be busy.
	os.Exit(leaks.MainAll(m.Run))
}

const password = "git-password-0123"

// scene is a repository behind a server, and a workspace.
type scene struct {
	*gittest.Repository
	server    *httptest.Server
	workspace *gitrepo.Workspace
	dir       string
	remote    gitrepo.Remote
}

func newScene(t *testing.T, files map[string]string, limits gitrepo.Limits) *scene {
	t.Helper()
	repository := gittest.New(t, files)
	s := &scene{Repository: repository, dir: t.TempDir()}
	s.serve(t, func(git http.Handler) http.Handler { return git })
	workspace, err := gitrepo.NewWorkspace(s.dir, limits)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := workspace.Close(); err != nil {
			t.Error(err)
		}
	})
	s.workspace = workspace
	return s
}

// serve the repository by another server, whose differences from Git's own like adds.
func (s *scene) serve(t *testing.T, like func(git http.Handler) http.Handler) {
	t.Helper()
	s.server = httptest.NewTLSServer(like(s.Handler(func() string { return password })))
	t.Cleanup(s.server.Close)
	transport := s.server.Client().Transport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	s.remote = gitrepo.Remote{URL: s.server.URL + "/apps.git", Username: "git", Password: password, Transport: transport}
}

// left is what stands in the workspace's folder beside its claim.
func (s *scene) left(g Gomega) []string {
	found, err := filepath.Glob(filepath.Join(s.dir, "*", "*"))
	g.Expect(err).NotTo(HaveOccurred())
	var clones []string
	for _, f := range found {
		if filepath.Base(f) != "claim" {
			clones = append(clones, f)
		}
	}
	return clones
}

func (s *scene) clone(t *testing.T, act func(context.Context, *gitrepo.Clone) error) error {
	t.Helper()
	return s.workspace.Clone(t.Context(), s.remote, act)
}

var by = gitrepo.Person{Name: "Capstan", Email: "capstan@example.com"}

// promote makes a commit that puts content into a file of base and pushes it.
func promote(base, branch, path, content string, made *gitrepo.Made) func(context.Context, *gitrepo.Clone) error {
	return func(ctx context.Context, c *gitrepo.Clone) error {
		parent, _ := c.Branch(base)
		old, _ := c.Branch(branch)
		if err := c.Fetch(ctx, 1, parent); err != nil {
			return err
		}
		var err error
		*made, err = c.Make(ctx, gitrepo.Change{
			Parent: parent, Files: map[string][]byte{path: []byte(content)}, By: by, At: time.Unix(1_800_000_000, 0), Message: "Promote\n\nPromotion-ID: x\n",
		})
		if err != nil {
			return err
		}
		return c.Push(ctx, branch, old, *made)
	}
}

func TestEditAndPush(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	s := newScene(t, map[string]string{
		"prod/web.yaml": "version: 1.0\n", "prod/deep/er/x.yml": "a: b\n", "README.md": "text\n", "staging/web.yaml": "version: 1.0\n",
	}, gitrepo.Limits{})
	s.Commit(gittest.Base, "more", map[string]string{"other.yaml": "c: d\n"})
	var seen []string
	var made, again gitrepo.Made
	g.Expect(s.clone(t, func(ctx context.Context, c *gitrepo.Clone) error {
		base, ok := c.Branch(gittest.Base)
		g.Expect(ok).To(BeTrue())
		_, ok = c.Branch("nothing")
		g.Expect(ok).To(BeFalse())
		g.Expect(c.Fetch(ctx, 1, base)).To(Succeed())
		return c.Manifests(ctx, base, func(f gitrepo.File) error {
			seen = append(seen, f.Path+"="+string(f.Content))
			return nil
		})
	})).To(Succeed())
	g.Expect(seen).To(Equal([]string{"other.yaml=c: d\n", "prod/deep/er/x.yml=a: b\n", "prod/web.yaml=version: 1.0\n", "staging/web.yaml=version: 1.0\n"}))

	g.Expect(s.clone(t, promote(gittest.Base, "promotion", "prod/web.yaml", "version: 1.1\n", &made))).To(Succeed())
	head, _ := s.Head("promotion")
	g.Expect(head).To(Equal(made.Hash.String()))
	g.Expect(s.File("promotion", "prod/web.yaml")).To(Equal("version: 1.1\n"))
	g.Expect(s.Changed(gittest.Base, "promotion")).To(Equal([]string{"prod/web.yaml"}))
	g.Expect(s.Show("promotion", "%an <%ae> %cn <%ce> %at %ct%n%B")).To(ContainSubstring("Capstan <capstan@example.com> Capstan <capstan@example.com> 1800000000 1800000000\nPromote\n\nPromotion-ID: x"))

	// The same change is the same commit.
	g.Expect(s.clone(t, promote(gittest.Base, "promotion", "prod/web.yaml", "version: 1.1\n", &again))).To(Succeed())
	g.Expect(again.Hash).To(Equal(made.Hash))
	g.Expect(s.left(g)).To(BeEmpty())
}

// The lease: a branch that is another at the moment of the push is not overwritten.
func TestPushLosesToAPersonsPush(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	s := newScene(t, map[string]string{"a.yaml": "a: 1\n"}, gitrepo.Limits{})
	var made gitrepo.Made
	g.Expect(s.clone(t, promote(gittest.Base, "promotion", "a.yaml", "a: 2\n", &made))).To(Succeed())
	byHand := ""
	for name, between := range map[string]func(){
		"changed": func() { byHand = s.Commit("promotion", "by hand", map[string]string{"a.yaml": "a: 3\n"}) },
		"deleted": func() { s.Delete("promotion"); byHand = "" },
		"made":    func() { byHand = s.Commit("promotion", "by hand", map[string]string{"a.yaml": "a: 4\n"}) },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			if name == "made" {
				if _, ok := s.Head("promotion"); ok {
					s.Delete("promotion")
				}
			} else {
				s.Set("promotion", made.Hash.String())
			}
			before, exists := s.Head("promotion")
			err := s.clone(t, func(ctx context.Context, c *gitrepo.Clone) error {
				old, ok := c.Branch("promotion")
				g.Expect(ok).To(Equal(exists))
				if exists {
					g.Expect(old.String()).To(Equal(before))
				}
				base, _ := c.Branch(gittest.Base)
				g.Expect(c.Fetch(ctx, 1, base)).To(Succeed())
				made, err := c.Make(ctx, gitrepo.Change{Parent: base, Files: map[string][]byte{"a.yaml": []byte("a: 9\n")}, By: by, Message: "m"})
				g.Expect(err).NotTo(HaveOccurred())
				between()
				return c.Push(ctx, "promotion", old, made)
			})
			g.Expect(gitrepo.IsMoved(err)).To(BeTrue(), "%v", err)
			now, exists := s.Head("promotion")
			g.Expect(exists).To(Equal(byHand != ""))
			g.Expect(now).To(Equal(byHand))
		})
	}
}

// Between the server's list of branches and the push itself only the server can
// tell: its own compare-and-swap refuses.
func TestPushLosesAtTheServer(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	s := newScene(t, map[string]string{"a.yaml": "a: 1\n"}, gitrepo.Limits{})
	var made gitrepo.Made
	g.Expect(s.clone(t, promote(gittest.Base, "promotion", "a.yaml", "a: 2\n", &made))).To(Succeed())
	byHand := ""
	inner := s.remote.Transport
	s.remote.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPost && filepath.Base(r.URL.Path) == "git-receive-pack" {
			byHand = s.Commit("promotion", "by hand", map[string]string{"a.yaml": "a: 3\n"})
		}
		return inner.RoundTrip(r)
	})
	err := s.clone(t, promote(gittest.Base, "promotion", "a.yaml", "a: 4\n", &made))
	g.Expect(gitrepo.IsMoved(err)).To(BeTrue(), "%v", err)
	now, _ := s.Head("promotion")
	g.Expect(now).To(Equal(byHand))
}

// endless is a list of branches without an end, and how much of it was read.
type endless struct{ read int64 }

func (e *endless) Read(p []byte) (int, error) {
	const line = "00420123456789012345678901234567890123456789 refs/heads/branch-xx\n"
	n := 0
	for n < len(p) {
		n += copy(p[n:], line[(e.read+int64(n))%int64(len(line)):])
	}
	e.read += int64(n)
	return n, nil
}

// A list of branches is held in memory: it is not as long as a clone may be.
func TestAnEndlessListOfBranches(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	s := newScene(t, nil, gitrepo.Limits{})
	list := &endless{}
	const begin = "001e# service=git-upload-pack\n0000003a0123456789012345678901234567890123456789 HEAD\x00shallow\n"
	s.remote.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Request: r, Body: io.NopCloser(io.MultiReader(strings.NewReader(begin), list))}, nil
	})
	err := s.clone(t, func(context.Context, *gitrepo.Clone) error { return nil })
	g.Expect(gitrepo.ClassOf(err)).To(Equal(gitrepo.TooLarge), "%v", err)
	g.Expect(list.read).To(BeNumerically("<", 33<<20))
}

// A hook or a proxy that shows what it was sent gives no credential away.
func TestNoErrorShowsThePassword(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	s := newScene(t, map[string]string{"a.yaml": "a: 1\n"}, gitrepo.Limits{})
	travels := base64.StdEncoding.EncodeToString([]byte("git:" + password))
	s.Hook("pre-receive", "echo refused for Authorization: Basic "+travels+" which is "+password+" >&2; exit 1")
	var made gitrepo.Made
	err := s.clone(t, promote(gittest.Base, "promotion", "a.yaml", "a: 2\n", &made))
	g.Expect(gitrepo.ClassOf(err)).To(Equal(gitrepo.Refused))
	g.Expect(err).To(MatchError(ContainSubstring("refused for Authorization: Basic [redacted] which is [redacted]")))
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestClassesOfErrors(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(t *testing.T, s *scene)
		class  gitrepo.Class
	}{
		"wrong password":    {func(_ *testing.T, s *scene) { s.remote.Password = "wrong" }, gitrepo.Unauthorized},
		"unknown authority": {func(t *testing.T, s *scene) { s.remote.Transport = plain(t) }, gitrepo.Untrusted},
		"credentials in the URL": {func(_ *testing.T, s *scene) {
			s.remote.URL = "https://ann:secret@" + s.server.Listener.Addr().String()
		}, gitrepo.Invalid},
		"no such repository": {func(_ *testing.T, s *scene) { s.answer(http.StatusNotFound, nil) }, gitrepo.NotFound},
		"forbidden":          {func(_ *testing.T, s *scene) { s.answer(http.StatusForbidden, nil) }, gitrepo.Forbidden},
		"unavailable":        {func(_ *testing.T, s *scene) { s.answer(http.StatusBadGateway, nil) }, gitrepo.Transient},
		"a page instead": {func(_ *testing.T, s *scene) {
			s.remote.Transport = roundTrip(func(*http.Request) (*http.Response, error) {
				w := httptest.NewRecorder()
				_, _ = w.WriteString("<html>sign in</html>")
				return w.Result(), nil
			})
		}, gitrepo.Transient},
		"limited": {func(_ *testing.T, s *scene) {
			s.answer(http.StatusTooManyRequests, http.Header{"Retry-After": {"7"}})
		}, gitrepo.RateLimited},
		"limited until a date": {func(_ *testing.T, s *scene) {
			s.answer(http.StatusTooManyRequests, http.Header{"Date": {"Sun, 22 Nov 2026 08:00:00 GMT"}, "Retry-After": {"Sun, 22 Nov 2026 08:00:07 GMT"}})
		}, gitrepo.RateLimited},
		"protected branch": {func(_ *testing.T, s *scene) {
			s.Hook("update", "echo 'protected branch: ask an owner' >&2; exit 1")
		}, gitrepo.Refused},
		"no force pushes": {func(t *testing.T, s *scene) {
			s.Commit("promotion", "by hand", map[string]string{"b.yaml": "b: 1\n"})
			s.Configure("receive.denyNonFastForwards", "true")
		}, gitrepo.Refused},
		"too large": {func(t *testing.T, s *scene) {
			big := make([]byte, 2<<20)
			_, _ = rand.Read(big)
			s.Commit(gittest.Base, "big", map[string]string{"big.bin": string(big)})
		}, gitrepo.TooLarge},
		"too many files": {func(t *testing.T, s *scene) {
			files := map[string]string{}
			for i := range 30 {
				files[fmt.Sprintf("d/%d.yaml", i)] = "x: y\n"
			}
			s.Commit(gittest.Base, "many", files)
		}, gitrepo.TooLarge},
		"elsewhere": {func(_ *testing.T, s *scene) {
			s.answer(http.StatusFound, http.Header{"Location": {"https://elsewhere.example/apps.git/info/refs"}})
		}, gitrepo.NotFound},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := newScene(t, map[string]string{"a.yaml": "a: 1\n"}, gitrepo.Limits{MaxPack: 1 << 20, MaxEntries: 20})
			tc.change(t, s)
			var made gitrepo.Made
			err := s.clone(t, func(ctx context.Context, c *gitrepo.Clone) error {
				base, _ := c.Branch(gittest.Base)
				if err := c.Fetch(ctx, 1, base); err != nil {
					return err
				}
				if err := c.Manifests(ctx, base, func(gitrepo.File) error { return nil }); err != nil {
					return err
				}
				return promote(gittest.Base, "promotion", "a.yaml", "a: 2\n", &made)(ctx, c)
			})
			var e *gitrepo.Error
			g.Expect(errors.As(err, &e)).To(BeTrue(), "%v", err)
			g.Expect(e.Class).To(Equal(tc.class), "%v", err)
			g.Expect(err.Error()).NotTo(ContainSubstring(password))
			if tc.class == gitrepo.RateLimited {
				g.Expect(e.RetryAfter).To(Equal(7 * time.Second))
			}
			g.Expect(s.left(g)).To(BeEmpty())
		})
	}
}

// answer everything so.
func (s *scene) answer(status int, header http.Header) {
	s.remote.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		for k, v := range header {
			w.Header()[k] = v
		}
		w.WriteHeader(status)
		response := w.Result()
		response.Request = r
		return response, nil
	})
}

// plain trusts the system's authorities only.
func plain(t *testing.T) http.RoundTripper {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

func TestEmptyRepository(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	s := newScene(t, map[string]string{"a.yaml": "a: 1\n"}, gitrepo.Limits{})
	s.Delete(gittest.Base)
	err := s.clone(t, func(context.Context, *gitrepo.Clone) error { return nil })
	g.Expect(gitrepo.ClassOf(err)).To(Equal(gitrepo.Empty), "%v", err)
}

func TestARemovedCloneAlsoByAPanic(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	s := newScene(t, map[string]string{"a.yaml": "a: 1\n"}, gitrepo.Limits{})
	g.Expect(func() {
		_ = s.clone(t, func(ctx context.Context, c *gitrepo.Clone) error {
			base, _ := c.Branch(gittest.Base)
			g.Expect(c.Fetch(ctx, 1, base)).To(Succeed())
			g.Expect(s.left(g)).To(HaveLen(1))
			panic("an act that fails")
		})
	}).To(Panic())
	g.Expect(s.left(g)).To(BeEmpty())
	var made gitrepo.Made
	g.Expect(s.clone(t, promote(gittest.Base, "p", "a.yaml", "a: 2\n", &made))).To(Succeed(), "its slot is free again")
}

// What a killed process left behind goes at the next start; a living one's stays.
func TestLeftoversOfAKilledProcess(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	dir := t.TempDir()
	living, err := gitrepo.NewWorkspace(dir, gitrepo.Limits{})
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { g.Expect(living.Close()).To(Succeed()) }()
	dead := filepath.Join(dir, "capstan-clones-dead")
	g.Expect(os.MkdirAll(filepath.Join(dead, "clone", "objects"), 0o700)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(dead, "claim"), nil, 0o600)).To(Succeed()) // locked by nobody
	foreign := filepath.Join(dir, "of-somebody-else")
	g.Expect(os.Mkdir(foreign, 0o700)).To(Succeed())

	next, err := gitrepo.NewWorkspace(dir, gitrepo.Limits{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(dead).NotTo(BeADirectory())
	g.Expect(foreign).To(BeADirectory())
	left, err := filepath.Glob(filepath.Join(dir, "capstan-clones-*"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(left).To(HaveLen(2), "the living one's and its own")
	g.Expect(next.Close()).To(Succeed())
}

func TestNoMoreClonesAtOnceThanAllowed(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	s := newScene(t, map[string]string{"a.yaml": "a: 1\n"}, gitrepo.Limits{Clones: 2})
	var now, most atomic.Int32
	var group sync.WaitGroup
	gate := make(chan struct{})
	for range 6 {
		group.Go(func() {
			_ = s.workspace.Clone(t.Context(), s.remote, func(context.Context, *gitrepo.Clone) error {
				most.Store(max(most.Load(), now.Add(1)))
				<-gate
				now.Add(-1)
				return nil
			})
		})
	}
	g.Eventually(now.Load).Should(BeEquivalentTo(2))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := s.workspace.Clone(ctx, s.remote, func(context.Context, *gitrepo.Clone) error { return nil })
	g.Expect(err).To(MatchError(context.Canceled), "waiting ends with the context")
	close(gate)
	group.Wait()
	g.Expect(most.Load()).To(BeEquivalentTo(2))
}

// A server that hangs leaves a place to others as soon as there are others, and the
// wait for a place is not its failure; alone it may have all.
func TestNoServerHasAllPlaces(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	s := newScene(t, map[string]string{"a.yaml": "a: 1\n"}, gitrepo.Limits{Clones: 4})
	other := newScene(t, map[string]string{"a.yaml": "a: 1\n"}, gitrepo.Limits{})
	var held atomic.Int32
	var group sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	hang := func() {
		group.Go(func() {
			_ = s.workspace.Clone(ctx, s.remote, func(ctx context.Context, _ *gitrepo.Clone) error {
				held.Add(1)
				defer held.Add(-1)
				<-ctx.Done()
				return ctx.Err()
			})
		})
	}
	alone, stop := context.WithCancel(t.Context())
	for range 4 {
		group.Go(func() {
			_ = s.workspace.Clone(alone, s.remote, func(ctx context.Context, _ *gitrepo.Clone) error {
				held.Add(1)
				defer held.Add(-1)
				<-ctx.Done()
				return nil
			})
		})
	}
	g.Eventually(held.Load).Should(BeEquivalentTo(4))
	late, end := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer end()
	err := s.workspace.Clone(late, other.remote, func(context.Context, *gitrepo.Clone) error { return nil })
	var e *gitrepo.Error
	g.Expect(errors.As(err, &e)).To(BeTrue())
	g.Expect(e).To(MatchError(context.DeadlineExceeded))
	g.Expect(e.TimedOut).To(BeFalse(), "the server was not even asked")
	stop()
	g.Eventually(held.Load).Should(BeZero())
	for range 10 {
		hang()
	}
	g.Eventually(held.Load).Should(BeEquivalentTo(3))
	for range 3 {
		g.Expect(s.workspace.Clone(t.Context(), other.remote, func(context.Context, *gitrepo.Clone) error { return nil })).To(Succeed())
	}
	g.Consistently(held.Load).WithTimeout(100 * time.Millisecond).Should(BeEquivalentTo(3))
	cancel()
	group.Wait()
}

// A server that hangs holds nobody longer than the context.
func TestEveryOperationEndsWithItsContext(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"GET git-upload-pack", "POST git-upload-pack", "GET git-receive-pack", "POST git-receive-pack"} {
		t.Run(at, func(t *testing.T) {
			g := NewWithT(t)
			s := newScene(t, map[string]string{"a.yaml": "a: 1\n"}, gitrepo.Limits{})
			ctx, cancel := context.WithCancel(t.Context())
			inner := s.remote.Transport
			s.remote.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
				if r.Method+" "+filepath.Base(r.URL.Path) == at || r.Method+" "+r.URL.Query().Get("service") == at {
					cancel()
					<-r.Context().Done()
					return nil, r.Context().Err()
				}
				return inner.RoundTrip(r)
			})
			var made gitrepo.Made
			err := s.workspace.Clone(ctx, s.remote, promote(gittest.Base, "p", "a.yaml", "a: 2\n", &made))
			g.Expect(err).To(MatchError(context.Canceled))
			g.Expect(s.left(g)).To(BeEmpty())
		})
	}
}

// Whether a branch goes on from where it was, or was replaced.
func TestLeads(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	s := newScene(t, map[string]string{"a.yaml": "a: 1\n"}, gitrepo.Limits{})
	first, _ := s.Head(gittest.Base)
	s.Commit(gittest.Base, "2", map[string]string{"a.yaml": "a: 2\n"})
	var made gitrepo.Made
	g.Expect(s.clone(t, promote(gittest.Base, "p", "a.yaml", "a: 9\n", &made))).To(Succeed())
	built, _ := s.Head(gittest.Base)
	s.Commit(gittest.Base, "3", map[string]string{"a.yaml": "a: 3\n"})
	s.Commit(gittest.Base, "4", map[string]string{"a.yaml": "a: 4\n"})
	leads := func() bool {
		found := false
		g.Expect(s.clone(t, func(ctx context.Context, c *gitrepo.Clone) error {
			base, _ := c.Branch(gittest.Base)
			branch, _ := c.Branch("p")
			if err := c.Fetch(ctx, 2, base, branch); err != nil {
				return err
			}
			head, err := c.Commit(branch)
			if err != nil {
				return err
			}
			g.Expect(head.Parents[0].String()).To(Equal(built))
			found, err = c.Leads(ctx, base, head.Parents[0])
			return err
		})).To(Succeed())
		return found
	}
	g.Expect(leads()).To(BeTrue())
	_, err := s.Merge("p", gittest.Base, made.Hash.String())
	g.Expect(err).To(HaveOccurred(), "they conflict")
	s.Set(gittest.Base, first)
	s.Commit(gittest.Base, "another 2", map[string]string{"a.yaml": "a: 5\n"})
	g.Expect(leads()).To(BeFalse())
}

// A marker may stand in a file that is too large to be edited; it is found there
// without the file being held.
func TestHugeFile(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	const marker = `{"$promotion": "team:web:prod"}`
	pad := make([]byte, 9<<20)
	for i := range pad {
		pad[i] = "abcdefgh\n"[i%9]
	}
	s := newScene(t, map[string]string{"big.yaml": string(pad) + "x: 1 # " + marker + "\n", "none.yaml": string(pad)}, gitrepo.Limits{})
	found := map[string]bool{}
	g.Expect(s.clone(t, func(ctx context.Context, c *gitrepo.Clone) error {
		base, _ := c.Branch(gittest.Base)
		if err := c.Fetch(ctx, 1, base); err != nil {
			return err
		}
		return c.Manifests(ctx, base, func(f gitrepo.File) error {
			g.Expect(f.TooLarge).To(BeTrue())
			g.Expect(f.Content).To(BeNil())
			var err error
			found[f.Path], err = c.Contains(f, marker)
			return err
		})
	})).To(Succeed())
	g.Expect(found).To(Equal(map[string]bool{"big.yaml": true, "none.yaml": false}))
}

// A file of 300 MB that is some hundred KiB packed is not inflated into memory: the
// repository is refused, with what is to be done about it.
func TestAPackedBomb(t *testing.T) {
	g := NewWithT(t)
	s := newScene(t, map[string]string{"prod/web.yaml": "version: 1.0\n"}, gitrepo.Limits{})
	s.Configure("pack.compression", "9")
	s.Commit(gittest.Base, "a bomb", map[string]string{"bomb.bin": strings.Repeat("\x01", 300<<20)})
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var made gitrepo.Made
	err := s.clone(t, promote(gittest.Base, "p", "prod/web.yaml", "version: 1.1\n", &made))
	runtime.ReadMemStats(&after)
	g.Expect(gitrepo.ClassOf(err)).To(Equal(gitrepo.TooLarge), "%v", err)
	g.Expect(err).To(MatchError(ContainSubstring("300 MiB")))
	g.Expect(s.left(g)).To(BeEmpty())
	allocated := after.TotalAlloc - before.TotalAlloc
	t.Logf("%d KiB allocated on the way", allocated>>10)
	g.Expect(allocated).To(BeNumerically("<", 16<<20))
}

// A repository of 40 MB (100 MB with CAPSTAN_SOAK) is cloned, edited and pushed in a heap of less
// than half of that.
func TestHugeRepositoryInLittleMemory(t *testing.T) {
	g := NewWithT(t)
	blocks := 8
	if os.Getenv("CAPSTAN_SOAK") != "" {
		blocks = 20
	}
	files := map[string]string{"prod/web.yaml": "version: 1.0\n"}
	block := make([]byte, 5<<20)
	for i := range blocks {
		_, _ = rand.Read(block)
		files[fmt.Sprintf("media/%d.bin", i)] = string(block)
	}
	s := newScene(t, files, gitrepo.Limits{})
	files, block = nil, nil
	_, _ = files, block
	runtime.GC()
	var before, during runtime.MemStats
	runtime.ReadMemStats(&before)
	var made gitrepo.Made
	most := uint64(0)
	g.Expect(s.clone(t, func(ctx context.Context, c *gitrepo.Clone) error {
		defer func() {
			runtime.GC()
			runtime.ReadMemStats(&during)
			most = during.HeapAlloc
		}()
		return promote(gittest.Base, "p", "prod/web.yaml", "version: 1.1\n", &made)(ctx, c)
	})).To(Succeed())
	g.Expect(s.Changed(gittest.Base, "p")).To(Equal([]string{"prod/web.yaml"}))
	runtime.ReadMemStats(&during)
	t.Logf("live heap %d KiB before, %d KiB with the clone, %d KiB taken from the system more", before.HeapAlloc>>10, most>>10, (int64(during.HeapSys)-int64(before.HeapSys))>>10)
	g.Expect(most).To(BeNumerically("<", before.HeapAlloc+16<<20))
}
