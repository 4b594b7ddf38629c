package pullrequest_test

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/internal/promotions"
	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/playground/leaks"
	"github.com/capstan-hub/capstan/strategy"
	"github.com/capstan-hub/capstan/strategy/pullrequest"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo/gittest"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider/providertest"
)

// management is the API server that the tests share; each has a namespace of its own.
var management *rest.Config

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	SetDefaultEventuallyTimeout(time.Minute) // The machine may be busy.
	plane, err := controlplane.Start(controlplane.Options{CRDs: controlplane.CRDs("capstan")})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := plane.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	management = plane.Config()
	return leaks.Main(m.Run)
}

var services = []pipelinesv1.GitProviderType{
	pipelinesv1.GitHub, pipelinesv1.GitLab, pipelinesv1.Gitea, pipelinesv1.AzureDevOps, pipelinesv1.BitbucketServer,
}

const (
	pipelineUID = "8f14e45f-ceea-467f-a0e6-1c3d1c2f8f5a"
	secretName  = "git"
	manifest    = "clusters/prod/web.yaml"
)

// release is a manifest whose version bears the marker of an environment.
func release(ns, env, version string) string {
	return fmt.Sprintf(`apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: web, namespace: shop}
spec:
  chart:
    spec:
      chart: web
      version: "%s" # {"$promotion": "%s:web:%s"}
`, version, ns, env)
}

// scene is a repository at a service, and a strategy that may read its Secret.
type scene struct {
	*gittest.Repository
	*pullrequest.Strategy
	t       *testing.T
	kind    pipelinesv1.GitProviderType
	server  *providertest.Server
	c       client.Client
	ns      string
	clock   *testclock.FakeClock
	options pullrequest.Options
	spec    pipelinesv1.PullRequestPromotion
	// requireUpToDate is a rule of the service.
	requireUpToDate bool
	// like changes the Git server, if it is not nil.
	like atomic.Pointer[func(http.Handler) http.Handler]
}

// through serves Git as like says at the time of the request.
func (s *scene) through(git http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if like := s.like.Load(); like != nil {
			(*like)(git).ServeHTTP(w, r)
			return
		}
		git.ServeHTTP(w, r)
	})
}

var scenes atomic.Int64

// each runs a test at each of the services.
func each(t *testing.T, test func(t *testing.T, g *WithT, s *scene)) {
	for _, kind := range services {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			test(t, NewWithT(t), newScene(t, kind))
		})
	}
}

// managementClient returns the client of all scenes. A client for each scene would discover the
// API again.
var managementClient = sync.OnceValues(func() (client.Client, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, pipelinesv1.AddToScheme, capstanv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return client.New(management, client.Options{Scheme: scheme})
})

func newScene(t *testing.T, kind pipelinesv1.GitProviderType) *scene {
	t.Helper()
	g := NewWithT(t)
	c, err := managementClient()
	g.Expect(err).NotTo(HaveOccurred())
	s := &scene{t: t, kind: kind, c: c, ns: fmt.Sprintf("scene-%d", scenes.Add(1)), clock: testclock.NewFakeClock(time.Now())}
	g.Expect(c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.ns}})).To(Succeed())
	s.Repository = gittest.New(t, map[string]string{
		manifest: release(s.ns, "prod", "1.0.0"), "clusters/staging/web.yaml": release(s.ns, "staging", "1.0.0"), "README.md": "apps\n",
	})
	git := s.Handler(func() string { return providertest.Token })
	if kind == pipelinesv1.AzureDevOps {
		git = gittest.LikeAzureDevOps(git)
	}
	s.server = providertest.New(t, providertest.Options{
		Type: kind, Git: s.through(git), Head: s.Head, Merge: s.Merge,
		Behind: func(head, base string) bool { return s.requireUpToDate && !s.Contains(head, base) },
	})
	g.Expect(c.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: secretName},
		Data:       map[string][]byte{"token": []byte(providertest.Token), "caFile": s.server.CA()},
	})).To(Succeed())
	workspace, err := gitrepo.NewWorkspace(t.TempDir(), gitrepo.Limits{})
	g.Expect(err).NotTo(HaveOccurred())
	s.options = pullrequest.Options{Reader: c, Workspace: workspace, AllowLoopback: true, Clock: s.clock}
	s.Strategy = pullrequest.New(s.options)
	t.Cleanup(func() {
		s.Close()
		g.Expect(workspace.Close()).To(Succeed())
	})
	s.spec = pipelinesv1.PullRequestPromotion{
		Type: kind, URL: s.server.URL(), BaseBranch: gittest.Base, SecretRef: pipelinesv1.LocalObjectReference{Name: secretName},
	}
	return s
}

// again is the strategy of another process.
func (s *scene) again() { s.Strategy.Close(); s.Strategy = pullrequest.New(s.options) }

// promotion into prod, as it stands at the API server.
func (s *scene) promotion(number int64, revision string) *capstanv1.Promotion {
	s.t.Helper()
	p := &capstanv1.Promotion{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.ns, Name: promotions.Name("web", pipelineUID, "prod", number), Labels: map[string]string{capstanv1.PipelineUIDLabel: pipelineUID},
		},
		Spec: capstanv1.PromotionSpec{
			Pipeline:    capstanv1.PipelineReference{Name: "web", UID: pipelineUID},
			App:         pipelinesv1.LocalAppReference{APIVersion: "helm.toolkit.fluxcd.io/v2", Kind: "HelmRelease", Name: "web"},
			Environment: "prod", Number: number, Revision: revision,
			Source:   capstanv1.PromotionSource{Environment: "staging", Sequence: number},
			From:     &capstanv1.PromotionBase{Revisions: []string{"1.0.0"}, Targets: []string{"shop/web in Cluster fleet/prod"}},
			Strategy: pipelinesv1.Strategy{PullRequest: s.spec.DeepCopy()},
		},
	}
	if err := s.c.Create(s.t.Context(), p); err != nil {
		s.t.Fatal(err)
	}
	p.Status.Attempt = &capstanv1.Attempt{Number: 1}
	return p
}

// promote keeps in the promotion what the hub would keep.
func (s *scene) promote(p *capstanv1.Promotion) strategy.Result {
	s.t.Helper()
	result, err := s.Promote(s.t.Context(), p, always)
	if err != nil {
		s.t.Fatal(err)
	}
	p.Status.PullRequest, p.Status.URL = result.PullRequest, result.URL
	return result
}

func (s *scene) follow(p *capstanv1.Promotion) strategy.Result {
	s.t.Helper()
	result, err := s.Follow(s.t.Context(), p)
	if err != nil {
		s.t.Fatal(err)
	}
	if result.State != strategy.Due {
		p.Status.PullRequest = result.PullRequest
	}
	return result
}

// withdraw expects that nothing is still needed.
func (s *scene) withdraw(p *capstanv1.Promotion, why string) {
	s.t.Helper()
	needed, err := s.Withdraw(s.t.Context(), p, why)
	if err != nil || needed != "" {
		s.t.Fatal(needed, err)
	}
}

func (s *scene) branch() string { return "promotion-" + s.ns + "-web-prod" }

// pulls counts the pull requests in each state, as "open 1, merged 2".
func (s *scene) pulls() string {
	count := map[providertest.State]int{}
	for _, pr := range s.server.PullRequests() {
		count[pr.State]++
	}
	var texts []string
	for _, state := range []providertest.State{providertest.Open, providertest.Merged, providertest.Closed} {
		if count[state] > 0 {
			texts = append(texts, fmt.Sprintf("%s %d", state, count[state]))
		}
	}
	return strings.Join(texts, ", ")
}

// merge by hand, as people do through the service.
func (s *scene) merge(number int64) {
	s.t.Helper()
	pr := s.server.PullRequests()[number-1]
	head, _ := s.Head(pr.Head)
	if _, err := s.Repository.Merge(pr.Head, pr.Base, head); err != nil {
		s.t.Fatal(err)
	}
	s.server.SetState(number, providertest.Merged)
}

// updateBranch merges the base into the branch, as a service does when a person requests it.
func (s *scene) updateBranch() string {
	s.t.Helper()
	merge, err := s.Repository.Merge(gittest.Base, s.branch(), mustHead(s, gittest.Base))
	if err != nil {
		s.t.Fatal(err)
	}
	return merge
}

// looked lets the time for a look at the base come.
func (s *scene) looked() { s.clock.Step(31 * time.Minute) }

func (s *scene) secret(change func(map[string][]byte)) {
	s.t.Helper()
	secret := &corev1.Secret{}
	if err := s.c.Get(context.Background(), client.ObjectKey{Namespace: s.ns, Name: secretName}, secret); err != nil {
		s.t.Fatal(err)
	}
	change(secret.Data)
	if err := s.c.Update(context.Background(), secret); err != nil {
		s.t.Fatal(err)
	}
}

// writes are the requests that change something at the service.
func (s *scene) writes() int {
	n := 0
	for _, request := range s.server.Requests() {
		method, path, _ := strings.Cut(request, " ")
		if method != http.MethodGet && method != http.MethodOptions && !strings.HasSuffix(path, "/git-upload-pack") {
			n++
		}
	}
	return n
}

// always is the permit of a promotion without gates.
func always(context.Context, strategy.Step) error { return nil }
