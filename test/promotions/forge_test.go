package promotions_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/internal/egress"
	"github.com/capstan-hub/capstan/strategy"
	"github.com/capstan-hub/capstan/strategy/pullrequest"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo/gittest"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider/providertest"
)

const gitSecret = "git"

// service is a Git service with the fleet's repository.
type service interface {
	// URL that the repository is cloned by.
	URL() string
	// PullRequests are all there ever were, open and closed.
	PullRequests() []providertest.PullRequest
	// merge a pull request as a person does.
	merge(number int64)
	// read a file at the head of the base branch.
	read(path string) string
}

// hosted is a service that a world has its repository at, whichever it is.
type hosted struct {
	service
	t    *testing.T
	kind pipelinesv1.GitProviderType
	dir  string
	// proxy of the hub's administrator; nil for none.
	proxy *egress.Proxy
	// killer of the hub that calls; nil for one that lives.
	killer atomic.Pointer[killer]
	// before is called before each request takes effect; nil for none.
	before atomic.Pointer[func(*http.Request)]
}

// forge is a service that tests control: a real Git repository behind the published API of
// a service.
type forge struct {
	*gittest.Repository
	*providertest.Server
	*hosted
}

// kinds are all kinds of services.
var kinds = []pipelinesv1.GitProviderType{
	pipelinesv1.GitHub, pipelinesv1.GitLab, pipelinesv1.Gitea, pipelinesv1.AzureDevOps, pipelinesv1.BitbucketServer,
}

// newForge gives a world a forge, and the Secret for it.
func newForge(t *testing.T, w *world, kind pipelinesv1.GitProviderType, envs ...string) {
	t.Helper()
	f := &forge{Repository: gittest.New(t, w.fleet(envs))}
	f.hosted = &hosted{service: f, t: t, kind: kind, dir: t.TempDir()}
	git := f.Handler(func() string { return providertest.Token })
	if kind == pipelinesv1.AzureDevOps {
		git = gittest.LikeAzureDevOps(git)
	}
	f.Server = providertest.New(t, providertest.Options{
		Type: kind, Git: git, Head: f.Head, Merge: f.Merge, Around: f.deadly,
	})
	w.forge, w.hosted = f, f.hosted
	w.gitSecret(t.Context(), providertest.Token, f.CA())
}

// gitSecret makes the Secret for the world's service.
func (w *world) gitSecret(ctx context.Context, token string, ca []byte) {
	w.Helper()
	if err := w.c.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: gitSecret},
		Data:       map[string][]byte{"token": []byte(token), "caFile": ca},
	}); err != nil {
		w.Fatalf("%v", err)
	}
}

// fleet is the files of a repository whose environments run 1.0.
func (w *world) fleet(envs []string) map[string]string {
	files := map[string]string{"README.md": "the fleet\n"}
	for _, env := range envs {
		files[manifestOf(env)] = w.manifest(env, "1.0")
	}
	return files
}

func manifestOf(env string) string { return "clusters/" + env + "/web.yaml" }

func (w *world) manifest(env, version string) string {
	return fmt.Sprintf("kind: HelmRelease\nspec:\n  version: \"%s\" # {\"$promotion\": \"%s:web:%s\"}\n", version, w.ns, env)
}

// deadly kills the calling hub at a request: before the request takes effect, or after that
// and before the answer is received.
func (f *hosted) deadly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if before := f.before.Load(); before != nil {
			(*before)(r)
		}
		k := f.killer.Load()
		if k == nil || !k.aims(r) {
			next.ServeHTTP(w, r)
			return
		}
		made, lost := k.step(requested(r))
		if lost && k.where == "" {
			k.where = r.Method + " " + r.URL.RequestURI()
		}
		switch {
		case !made:
			k.end()
			panic(http.ErrAbortHandler)
		case lost:
			next.ServeHTTP(httptest.NewRecorder(), r)
			k.end()
			panic(http.ErrAbortHandler)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// once calls do before the first request of a method whose path has a part.
func (f *hosted) once(method, part string, do func()) {
	var done atomic.Bool
	before := func(r *http.Request) {
		if r.Method == method && strings.Contains(r.URL.Path, part) && done.CompareAndSwap(false, true) {
			do()
		}
	}
	f.before.Store(&before)
}

// pulling is the strategy over the world's service, if it has one.
func (w *world) pulling(c client.Client) strategy.Registry {
	if w.hosted == nil {
		return nil
	}
	workspace, err := gitrepo.NewWorkspace(w.hosted.dir, gitrepo.Limits{})
	if err != nil {
		w.Fatalf("%v", err)
	}
	pulls := pullrequest.New(pullrequest.Options{Reader: c, Workspace: workspace, AllowLoopback: true, Proxy: w.hosted.proxy, Deadline: pullrequest.MinDeadline, Clock: w.clock})
	w.hosted.t.Cleanup(func() {
		pulls.Close()
		if err := workspace.Close(); err != nil {
			w.hosted.t.Error(err)
		}
	})
	return strategy.Registry{pulls}
}

// pull configures promotion by pull request.
func (w *world) pull(change func(*pipelinesv1.PullRequestPromotion)) *pipelinesv1.Promotion {
	spec := &pipelinesv1.PullRequestPromotion{
		Type: w.hosted.kind, URL: w.hosted.URL(), BaseBranch: gittest.Base, SecretRef: pipelinesv1.LocalObjectReference{Name: gitSecret},
	}
	if change != nil {
		change(spec)
	}
	return &pipelinesv1.Promotion{Strategy: pipelinesv1.Strategy{PullRequest: spec}}
}

// opened returns the numbers of the open pull requests from an environment's branch.
func (f *hosted) opened(env string) []int64 {
	var open []int64
	for _, pr := range f.PullRequests() {
		if pr.State == providertest.Open && strings.HasSuffix(pr.Head, "-"+env) {
			open = append(open, pr.Number)
		}
	}
	return open
}

func (f *forge) merge(number int64) {
	f.t.Helper()
	pr := f.PullRequests()[number-1]
	head, _ := f.Head(pr.Head)
	if _, err := f.Repository.Merge(pr.Head, pr.Base, head); err != nil {
		f.t.Fatal(err)
	}
	f.SetState(number, providertest.Merged)
}

func (f *forge) read(path string) string { return f.File(gittest.Base, path) }

var versionLine = regexp.MustCompile(`version: "([^"]+)"`)

// wants is the version that the base branch has for an environment.
func (f *hosted) wants(env string) string {
	f.t.Helper()
	return versionLine.FindStringSubmatch(f.read(manifestOf(env)))[1]
}

var idLine = regexp.MustCompile(`(?m)^Promotion-ID: (\S+)$`)

// identities of the pull requests, in their order.
func (f *hosted) identities() []string {
	var ids []string
	for _, pr := range f.PullRequests() {
		if m := idLine.FindStringSubmatch(pr.Body); m != nil {
			ids = append(ids, m[1])
		}
	}
	return ids
}

// doubled are identities that two pull requests have.
func (f *hosted) doubled() []string {
	ids := f.identities()
	slices.Sort(ids)
	var twice []string
	for i := 1; i < len(ids); i++ {
		if ids[i] == ids[i-1] {
			twice = append(twice, ids[i])
		}
	}
	return twice
}

// doomed runs a hub until it is killed at one of its outside calls, or for so many
// passes.
func (w *world) doomed(ctx context.Context, k *killer, passes int) {
	process := k.process(ctx)
	defer k.end()
	w.hosted.killer.Store(k)
	defer w.hosted.killer.Store(nil)
	h := w.hub("doomed", k.client(w.c), k)
	for range passes {
		if !k.over() {
			h.pass(process)
		}
		w.clock.Step(pollStep)
	}
}
