package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/playground/simulated"
)

// patience with what has to happen.
const patience = 3 * time.Minute

var (
	management     *controlplane.ControlPlane
	admin          client.WithWatch
	kubeconfigFile string
	// settle is the time in which what a start left behind goes.
	settle = 2 * time.Second
)

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())
	SetDefaultEventuallyTimeout(patience)
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = management.Stop() }()
	defer func() { _ = os.RemoveAll(programs) }()
	code := m.Run()
	if len(missed) > 0 {
		fmt.Fprintf(os.Stderr, "FAIL: missed by more than a fifth: %s\n", strings.Join(missed, "; "))
		return 1
	}
	return code
}

func prepare() (err error) {
	management, err = controlplane.Start(controlplane.Options{CRDs: controlplane.CRDs(
		"capstan", "cluster-api", "cluster-controller", "helm-controller", "kustomize-controller")})
	if err != nil {
		return err
	}
	if programs, err = os.MkdirTemp("", "capstan-bench-"); err != nil {
		return err
	}
	kubeconfigFile = filepath.Join(programs, "kubeconfig")
	raw, err := management.Kubeconfig("")
	if err != nil {
		return err
	}
	if err := os.WriteFile(kubeconfigFile, raw, 0o600); err != nil {
		return err
	}
	scheme := hub.Scheme()
	if err := clusterv1.AddToScheme(scheme); err != nil {
		return err
	}
	config := management.Config()
	config.QPS = -1 // What declares a fleet is not measured.
	admin, err = client.NewWithWatch(config, client.Options{Scheme: scheme})
	return err
}

// scene is a fleet and its Pipelines, declared in a namespace of their own.
type scene struct {
	testing.TB
	g         *WithT
	namespace string
	clusters  []*simulated.Cluster
	// ends stops the fleet and the watch of Pipelines; the end of the test does it, too.
	ends func()

	mu          sync.Mutex
	lockedState struct {
		observe   func(*pipelinesv1.Pipeline)
		pipelines map[string]*pipelinesv1.Pipeline
		changed   chan struct{}
	}
}

// selected are the labels of all Clusters of a scene.
var selected = map[string]string{"tier": "prod"}

// newScene makes the fleet and declares its Clusters.
func newScene(t testing.TB, o simulated.Options) *scene {
	t.Helper()
	f, err := simulated.New(o)
	g := NewWithT(t)
	g.Expect(err).NotTo(HaveOccurred())
	s := &scene{TB: t, g: g, clusters: f.Clusters()}
	s.lockedState.pipelines, s.lockedState.changed = map[string]*pipelinesv1.Pipeline{}, make(chan struct{})
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"}}
	g.Expect(admin.Create(t.Context(), namespace)).To(Succeed())
	s.namespace = namespace.Name
	each(s.clusters, func(c *simulated.Cluster) {
		g.Expect(admin.Create(t.Context(), &clusterv1.Cluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: c.Name(), Labels: selected},
			Spec:       clusterv1.ClusterSpec{ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "127.0.0.1", Port: 6443}},
		})).To(Succeed())
		g.Expect(admin.Create(t.Context(), s.secret(c))).To(Succeed())
	})
	unfollow := s.follow()
	s.ends = sync.OnceFunc(func() {
		unfollow()
		f.Close()
	})
	t.Cleanup(s.ends)
	return s
}

// each does something with all, many at a time.
func each[T any](all []T, do func(T)) {
	var running sync.WaitGroup
	places := make(chan struct{}, 16)
	for _, one := range all {
		places <- struct{}{}
		running.Go(func() {
			do(one)
			<-places
		})
	}
	running.Wait()
}

func (s *scene) secret(c *simulated.Cluster) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.namespace, Name: c.Name() + "-kubeconfig",
			Labels: map[string]string{clusterv1.ClusterNameLabel: c.Name()},
		},
		Type: clusterv1.ClusterSecretType,
		Data: map[string][]byte{"value": c.Kubeconfig()},
	}
}

// renew writes the current credentials of a cluster.
func (s *scene) renew(c *simulated.Cluster) {
	s.g.Expect(admin.Update(s.Context(), s.secret(c))).To(Succeed())
}

// pipeline declares a Pipeline of one environment with a target in each cluster.
func (s *scene) pipeline(name, apiVersion, kind, app string, over ...*simulated.Cluster) {
	p := &pipelinesv1.Pipeline{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: pipelinesv1.PipelineSpec{
			AppRef:       pipelinesv1.LocalAppReference{APIVersion: apiVersion, Kind: kind, Name: app},
			Environments: []pipelinesv1.Environment{{Name: environment}},
		},
	}
	for _, c := range over {
		p.Spec.Environments[0].Targets = append(p.Spec.Environments[0].Targets, pipelinesv1.Target{
			Namespace: simulated.Namespace, ClusterRef: &pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Name: c.Name()},
		})
	}
	s.g.Expect(admin.Create(s.Context(), p)).To(Succeed())
}

// environment of the scene's Pipelines.
const environment = "all"

// targetsEach is how many targets a Pipeline has, where nothing else is said.
const targetsEach = 20

// releases declares the Pipelines that follow applications [from, to) in clusters,
// with a number of targets each.
func (s *scene) releases(from, to int, over []*simulated.Cluster, targetsEach int) (names []string) {
	type one struct {
		name string
		app  int
		over []*simulated.Cluster
	}
	var all []one
	for app := from; app < to; app++ {
		for first := 0; first < len(over); first += targetsEach {
			some := over[first:min(first+targetsEach, len(over))]
			all = append(all, one{fmt.Sprintf("app-%d-of-%s", app, some[0].Name()), app, some})
		}
	}
	for _, p := range all {
		names = append(names, p.name)
	}
	each(all, func(p one) {
		s.pipeline(p.name, "helm.toolkit.fluxcd.io/v2", "HelmRelease", fmt.Sprintf("app-%d", p.app), p.over...)
	})
	return names
}

// follow keeps the Pipelines of the namespace at hand, as a watch tells them. A watch
// that the API server ends, because this machine was too slow for it, is begun anew. It returns a
// function that ends the watch.
func (s *scene) follow() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var reading sync.WaitGroup
	reading.Go(func() {
		for ctx.Err() == nil {
			var list pipelinesv1.PipelineList
			if admin.List(ctx, &list, client.InNamespace(s.namespace)) != nil {
				continue
			}
			for i := range list.Items {
				s.note(&list.Items[i])
			}
			w, err := admin.Watch(ctx, &pipelinesv1.PipelineList{}, client.InNamespace(s.namespace),
				&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
			if err != nil {
				continue
			}
			for event := range w.ResultChan() {
				if p, ok := event.Object.(*pipelinesv1.Pipeline); ok && event.Type != watch.Deleted {
					s.note(p)
				}
			}
			w.Stop()
		}
	})
	return func() {
		cancel()
		reading.Wait()
	}
}

// observe sets what is called with each state of a Pipeline, once.
func (s *scene) observe(do func(*pipelinesv1.Pipeline)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lockedState.observe = do
}

func (s *scene) note(p *pipelinesv1.Pipeline) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.lockedState.pipelines[p.Name]
	s.lockedState.pipelines[p.Name] = p
	if s.lockedState.observe != nil && (before == nil || before.ResourceVersion != p.ResourceVersion) {
		s.lockedState.observe(p)
	}
	close(s.lockedState.changed)
	s.lockedState.changed = make(chan struct{})
}

// until waits until a condition on the Pipelines holds, and returns when that was.
func (s *scene) until(what string, holds func(map[string]*pipelinesv1.Pipeline) bool) time.Time {
	s.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		s.mu.Lock()
		held, changed := holds(s.lockedState.pipelines), s.lockedState.changed
		s.mu.Unlock()
		if held {
			return time.Now()
		}
		select {
		case <-changed:
		case <-deadline.C:
			s.Fatalf("%s: not within %s", what, patience)
		}
	}
}

// shown waits until Pipelines show, of every target that wanted names, a revision
// that counts.
func (s *scene) shown(names []string, wanted func(cluster string) bool) time.Time {
	s.Helper()
	left := map[string]bool{}
	for _, name := range names {
		left[name] = true
	}
	s.Cleanup(func() {
		for name := range left {
			s.mu.Lock()
			p := s.lockedState.pipelines[name]
			s.mu.Unlock()
			s.Logf("%d left, such as %s: %+v", len(left), name, p.Status)
			break
		}
	})
	return s.until("all targets are shown", func(all map[string]*pipelinesv1.Pipeline) bool {
		for name := range left {
			if p := all[name]; p != nil && whole(p, wanted) {
				delete(left, name)
			}
		}
		return len(left) == 0
	})
}

func whole(p *pipelinesv1.Pipeline, wanted func(cluster string) bool) bool {
	status := p.Status.Environments[environment]
	if status == nil || len(status.Targets) != len(p.Spec.Environments[0].Targets) {
		return false
	}
	for i, target := range status.Targets {
		if wanted(p.Spec.Environments[0].Targets[i].ClusterRef.Name) && (target.Stale || target.Revision == "") {
			return false
		}
	}
	return true
}

func every(string) bool { return true }
