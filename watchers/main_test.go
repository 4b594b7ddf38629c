package watchers_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/index"
	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/watchers"
	"github.com/capstan-hub/capstan/watchers/apps"
)

const patience = 30 * time.Second

var (
	plane   *controlplane.ControlPlane
	helmGVR = schema.GroupVersionResource{Group: "helm.toolkit.fluxcd.io", Version: "v2", Resource: "helmreleases"}
	helm    = index.Kind{Group: apps.HelmRelease.Group, Kind: apps.HelmRelease.Kind}
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	plane, err = controlplane.Start(controlplane.Options{CRDs: controlplane.CRDs("helm-controller", "cluster-api", "capstan")})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer plane.Stop() //nolint:errcheck // The process ends.
	return m.Run()
}

// wakes are what the watcher asked to be looked at.
type wakes struct {
	mu   sync.Mutex
	live map[string]int
	init map[string]int
}

func (w *wakes) wake(pipelines []types.NamespacedName, initial bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range pipelines {
		if initial {
			w.init[p.Name]++
		} else {
			w.live[p.Name]++
		}
	}
}

func (w *wakes) liveOf(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.live[name]
}

// world is a watcher on a real connection to a real API server: the management
// cluster's own, of name "".
type world struct {
	*testing.T
	g           Gomega
	connections *clusters.Manager
	watcher     *watchers.Watcher
	index       *index.Index
	wakes       *wakes
	registry    *prometheus.Registry
	remote      *dynamic.DynamicClient
}

// newWorld starts a watcher with the rights of a rest.Config; nil means all. It
// checks that nothing is left running when the test ends.
func newWorld(t *testing.T, config *rest.Config) *world {
	t.Helper()
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(patience)
	g.SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	if config == nil {
		config = plane.Config()
	}
	w := &world{T: t, g: g, index: index.New(), registry: prometheus.NewRegistry(), wakes: &wakes{live: map[string]int{}, init: map[string]int{}}}
	var err error
	w.remote, err = dynamic.NewForConfig(plane.Config())
	g.Expect(err).NotTo(HaveOccurred())
	before := goleak.IgnoreCurrent()
	w.connections, err = clusters.New(clusters.Options{
		Local: config, AllowLoopback: true, Timings: clusters.Timings{KindRetry: time.Second, Linger: time.Second},
	})
	g.Expect(err).NotTo(HaveOccurred())
	w.watcher = watchers.New(watchers.Options{
		Clusters: w.connections, Index: w.index, Kinds: kinds, Wake: w.wakes.wake, Registerer: w.registry,
		Timings: watchers.Timings{Check: 50 * time.Millisecond, Linger: 300 * time.Millisecond, Retry: 300 * time.Millisecond},
	})
	w.connections.AddListener(w.watcher)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- w.connections.Start(ctx) }()
	go func() { ended <- w.watcher.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		g.Eventually(ended).Should(Receive(BeNil()))
		g.Eventually(ended).Should(Receive(BeNil()))
		if !t.Failed() {
			// Idle connections of the process's own clients.
			goleak.VerifyNone(t, before,
				goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
				goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*clientConnReadLoop).run"),
				goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*ClientConn).readLoop"),
				goleak.IgnoreAnyFunction("net/http.(*http2ClientConn).readLoop"),
				goleak.IgnoreAnyFunction("net/http/internal/http2.(*ClientConn).readLoop"))
		}
	})
	return w
}

// kinds reads applications, and everything else as it is.
func kinds(gk schema.GroupKind) watchers.Kind {
	if gk == apps.HelmRelease || gk == apps.Kustomization {
		return apps.Kind(gk)
	}
	return watchers.Kind{GroupKind: gk, Reduce: func(u *unstructured.Unstructured) (client.Object, error) { return u, nil }}
}

func object(name string) index.Object {
	return index.Object{Kind: helm, Namespace: "default", Name: name}
}

func pipeline(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "team", Name: name}
}

// follow has a Pipeline use applications, as hub/pipeline does.
func (w *world) follow(name string, objects ...index.Object) {
	var demands []watchers.Demand
	for _, o := range objects {
		demands = append(demands, watchers.Demand{Kind: schema.GroupKind(o.Kind), Namespace: o.Namespace, Name: o.Name})
	}
	w.index.SetPipeline(pipeline(name), index.Use{Objects: objects})
	w.watcher.SetDemand("Pipeline/team/"+name, demands)
}

func (w *world) unfollow(name string) {
	w.index.RemovePipeline(pipeline(name))
	w.watcher.SetDemand("Pipeline/team/"+name, nil)
}

// release makes a HelmRelease, or changes it.
func (w *world) release(name, revision string, ready bool) {
	w.Helper()
	c := w.remote.Resource(helmGVR).Namespace("default")
	u, err := c.Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		u, err = c.Create(w.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "metadata": map[string]any{"namespace": "default", "name": name},
			"spec": map[string]any{"interval": "1m", "chartRef": map[string]any{"kind": "OCIRepository", "name": name}},
		}}, metav1.CreateOptions{})
		w.g.Expect(err).NotTo(HaveOccurred())
		w.Cleanup(func() { _ = c.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	}
	status := "False"
	if ready {
		status = "True"
	}
	u.Object["status"] = map[string]any{
		"observedGeneration": u.GetGeneration(),
		"conditions":         []any{map[string]any{"type": "Ready", "status": status, "reason": "Test", "message": "as told", "lastTransitionTime": "2026-01-01T00:00:00Z"}},
		"history": []any{map[string]any{"chartName": name, "chartVersion": revision, "status": "deployed", "name": name, "namespace": "default", "version": int64(1),
			"digest": "sha256:1", "configDigest": "sha256:2", "firstDeployed": "2026-01-01T00:00:00Z", "lastDeployed": "2026-01-01T00:00:00Z"}},
	}
	_, err = c.UpdateStatus(w.Context(), u, metav1.UpdateOptions{})
	w.g.Expect(err).NotTo(HaveOccurred())
}

// expect waits until an application is seen as the check says, and fresh.
func (w *world) expect(name string, check func(Gomega, index.Observation)) {
	w.Helper()
	w.g.Eventually(func(g Gomega) {
		o, known, fresh := w.index.Last(object(name))
		g.Expect(fresh.Fresh).To(BeTrue(), "%+v", fresh)
		g.Expect(known).To(BeTrue())
		check(g, o)
	}).Should(Succeed())
}

// metric sums a metric's series.
func (w *world) metric(name string) float64 {
	families, err := w.registry.Gather()
	w.g.Expect(err).NotTo(HaveOccurred())
	sum := 0.0
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return sum
}
