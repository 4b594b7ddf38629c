package bench

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/playground/simulated"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo/gittest"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider/providertest"
)

// forge is a Git service that notes what the budgets ask for.
type forge struct {
	*providertest.Server

	mu          sync.Mutex
	lockedState struct {
		opened  map[string]time.Time // when, by the pull request's head branch
		clones  int
		most    int
		changed chan struct{}
	}
}

// newForge serves a repository of so many manifests, of which each of the first has
// the marker of a Pipeline.
func newForge(t testing.TB, namespace string, manifests, pipelines int) *forge {
	t.Helper()
	files := map[string]string{}
	for i := range manifests {
		marker := ""
		if i < pipelines {
			marker = fmt.Sprintf(` # {"$promotion": "%s:app-%d:staging"}`, namespace, i)
		}
		files[fmt.Sprintf("clusters/staging/team-%d/app-%d.yaml", i%20, i)] = fmt.Sprintf(`apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata:
  name: app-%d
spec:
  interval: 10m
  chart:
    spec:
      chart: app
      version: "1.0.0"%s
  values:
    text: %q
`, i, marker, strings.Repeat("value ", 200))
	}
	repository := gittest.New(t, files)
	f := &forge{}
	f.lockedState.opened, f.lockedState.changed = map[string]time.Time{}, make(chan struct{})
	f.Server = providertest.New(t, providertest.Options{
		Type: pipelinesv1.Gitea, Git: repository.Handler(func() string { return providertest.Token }), Head: repository.Head, Around: f.note,
	})
	return f
}

func (f *forge) note(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		clone := strings.HasSuffix(r.URL.Path, "/git-upload-pack")
		if clone {
			f.count(1)
			defer f.count(-1)
		}
		next.ServeHTTP(w, r)
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/pulls") {
			f.opening()
		}
	})
}

func (f *forge) count(clones int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lockedState.clones += clones
	f.lockedState.most = max(f.lockedState.most, f.lockedState.clones)
}

// opening notes the pull requests that are new.
func (f *forge) opening() {
	now, all := time.Now(), f.PullRequests()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, pr := range all {
		if _, known := f.lockedState.opened[pr.Head]; !known {
			f.lockedState.opened[pr.Head] = now
		}
	}
	close(f.lockedState.changed)
	f.lockedState.changed = make(chan struct{})
}

// wait until so many are open, and return when each was.
func (f *forge) wait(t testing.TB, number int) map[string]time.Time {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		f.mu.Lock()
		opened, changed := f.lockedState.opened, f.lockedState.changed
		if len(opened) >= number {
			all := map[string]time.Time{}
			for head, at := range opened {
				all[head] = at
			}
			f.mu.Unlock()
			return all
		}
		f.mu.Unlock()
		select {
		case <-changed:
		case <-deadline.C:
			t.Fatalf("%d of %d pull requests are open: not within %s", len(opened), number, patience)
		}
	}
}

// TestPullRequests: from a revision in dev to an open pull request, in a repository
// of 1,000 manifests; and 200 of them due at once.
func TestPullRequests(t *testing.T) {
	manifests, one, many := count(50, 1000), count(3, 60), count(10, 200)
	s := newScene(t, simulated.Options{Clusters: 2, Applications: one + many})
	f := newForge(t, s.namespace, max(manifests, one+many), one+many)
	s.g.Expect(admin.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "git"},
		Data:       map[string][]byte{"token": []byte(providertest.Token), "caFile": f.CA()},
	})).To(Succeed())
	var names []string
	for app := range one + many {
		names = append(names, fmt.Sprintf("app-%d", app))
	}
	each(names, func(name string) {
		p := &pipelinesv1.Pipeline{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
			Spec: pipelinesv1.PipelineSpec{
				AppRef: pipelinesv1.LocalAppReference{APIVersion: "helm.toolkit.fluxcd.io/v2", Kind: "HelmRelease", Name: name},
				Promotion: &pipelinesv1.Promotion{Strategy: pipelinesv1.Strategy{PullRequest: &pipelinesv1.PullRequestPromotion{
					Type: pipelinesv1.Gitea, URL: f.URL(), BaseBranch: gittest.Base, SecretRef: pipelinesv1.LocalObjectReference{Name: "git"},
				}}},
			},
		}
		for i, env := range []string{"dev", "staging"} {
			p.Spec.Environments = append(p.Spec.Environments, pipelinesv1.Environment{Name: env, Targets: []pipelinesv1.Target{{
				Namespace: simulated.Namespace, ClusterRef: &pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Name: s.clusters[i].Name()},
			}}})
		}
		s.g.Expect(admin.Create(t.Context(), p)).To(Succeed())
	})
	h := startHub(t, s.namespace)
	t.Cleanup(func() { s.tellPromotions() })
	s.until("all run what they ran", func(all map[string]*pipelinesv1.Pipeline) bool {
		for _, name := range names {
			p := all[name]
			if p == nil || p.Status.Environments["staging"] == nil || p.Status.Environments["staging"].Agreed == nil || p.Status.Environments["dev"].Agreed == nil {
				return false
			}
		}
		return true
	})
	pause(settle)
	idle := h.cost().Resident

	var took []time.Duration
	for app := range one {
		began := time.Now()
		s.clusters[0].Deploy(app, "9.0.0")
		head := fmt.Sprintf("promotion-%s-app-%d-staging", s.namespace, app)
		took = append(took, f.wait(t, app+1)[head].Sub(began))
	}
	slices.Sort(took)
	report(fmt.Sprintf("revision → open pull request, %d manifests, p95", manifests), quantile(took, 0.95), 1500, "ms")

	h.forgetPeak()
	began := time.Now()
	for app := one; app < one+many; app++ {
		s.clusters[0].Deploy(app, "9.0.0")
	}
	f.wait(t, one+many)
	ended := time.Since(began)
	f.mu.Lock()
	most := f.lockedState.most
	f.mu.Unlock()
	report(fmt.Sprintf("%d pull requests due at once, clones at a time", many), float64(most), 4, "")
	report("the same, resident above idle at most", float64(h.peak(t)-idle)/mib, 200, "MiB")
	fmt.Fprintf(os.Stderr, "| the same, until the last is open | %s s | – | |\n", figure(ended.Seconds()))
	NewWithT(t).Expect(most).To(BeNumerically("<=", 4))
	NewWithT(t).Expect(f.PullRequests()).To(HaveLen(one + many))
}

// tellPromotions says what those that are not open wait for, if the test failed.
func (s *scene) tellPromotions() {
	var list capstanv1.PromotionList
	if !s.Failed() || admin.List(context.Background(), &list, client.InNamespace(s.namespace)) != nil {
		return
	}
	for _, p := range list.Items {
		if p.Status.Phase != capstanv1.PhaseAwaitingMerge {
			s.Logf("%s: %s %s: %s", p.Name, p.Status.Phase, p.Status.Reason, p.Status.Message)
		}
	}
}

// forgetPeak begins a new count of the most memory that the process has resident
// (proc(5), clear_refs).
func (h *hubProcess) forgetPeak() {
	const peak = "5"
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", h.process.Pid()), []byte(peak), 0)
}

// peak is the most memory that the process has had resident since, in bytes.
func (h *hubProcess) peak(t testing.TB) int64 {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", h.process.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if rest, found := strings.CutPrefix(line, "VmHWM:"); found {
			n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n * kib
		}
	}
	t.Fatal("no VmHWM")
	return 0
}
