package watchers_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/index"
	"github.com/capstan-hub/capstan/internal/egress"
	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/playground/leaks"
	"github.com/capstan-hub/capstan/watchers"
	"github.com/capstan-hub/capstan/watchers/apps"
)

// patience is the timeout for real API servers on a busy machine.
const patience = 2 * time.Minute

// home is the management cluster and most workload clusters; bare is one without
// CRDs. Each is started when a test first needs it.
var (
	home = controlplane.Share("capstan", "cluster-api", "helm-controller", "kustomize-controller")
	bare = controlplane.Share()
)

// scheme of clientOf. Parallel tests read it, so it does not change.
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(s), capstanv1.AddToScheme(s)); err != nil {
		panic(err)
	}
	return s
}()

// clientOf a control plane, as its administrator.
func clientOf(t testing.TB, p *controlplane.Shared) client.Client {
	t.Helper()
	config := p.Get(t).Config()
	config.QPS = -1
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	SetDefaultEventuallyTimeout(patience) // The default of 1 s is too short on a busy machine.
	os.Exit(leaks.Main(func() int { return controlplane.StopShared(m.Run(), os.Stderr, home, bare) }))
}

// brisk are timings with which an outage and its end take seconds.
var brisk = watchers.Timings{
	FreshFor: 3 * time.Second, Check: 50 * time.Millisecond, Linger: 500 * time.Millisecond,
	Retry: 200 * time.Millisecond, RetryMax: time.Second, TransientRetry: 50 * time.Millisecond,
}

var briskClusters = clusters.Timings{
	ProbeInterval: time.Second, ProbeTimeout: time.Second, ProbeRetry: 100 * time.Millisecond, Silence: 300 * time.Millisecond,
	UnreachableRetry: 100 * time.Millisecond, UnreachableRetryMax: 500 * time.Millisecond,
	KindRetry: 200 * time.Millisecond, WriteDelay: 50 * time.Millisecond, Linger: 100 * time.Millisecond,
	ReleaseSpread: 20 * time.Millisecond,
}

// world is a namespace of the home cluster, with a clusters.Manager and a Watcher.
type world struct {
	t         *testing.T
	g         *WithT
	hub       client.Client
	namespace string
	manager   *clusters.Manager
	index     *index.Index
	watcher   *watchers.Watcher
	registry  *prometheus.Registry
	wakes     *wakes
}

// newWorld starts all of it; the end of the test stops it.
func newWorld(t *testing.T, edit func(*watchers.Options)) *world {
	t.Helper()
	return newWorldThrough(t, nil, edit)
}

// newWorldThrough is newWorld with a proxy to workload clusters.
func newWorldThrough(t *testing.T, proxy *egress.Proxy, edit func(*watchers.Options)) *world {
	t.Helper()
	w := &world{t: t, g: NewWithT(t), hub: clientOf(t, home), index: index.New(), registry: prometheus.NewRegistry(), wakes: &wakes{}}
	w.g.SetDefaultEventuallyTimeout(patience)
	w.g.SetDefaultEventuallyPollingInterval(10 * time.Millisecond)
	w.namespace = w.newNamespace(home)
	log := testr.NewWithOptions(t, testr.Options{Verbosity: 0})
	var err error
	w.manager, err = clusters.New(clusters.Options{
		Local: home.Get(t).Config(), Namespaces: []string{w.namespace}, AllowLoopback: true, Proxy: proxy, Timings: briskClusters, Logger: logr.Discard(),
	})
	w.g.Expect(err).NotTo(HaveOccurred())
	o := watchers.Options{
		Clusters: w.manager, Index: w.index, Kinds: apps.Kind, Wake: w.wakes.add,
		Registerer: w.registry, Timings: brisk, Logger: log,
	}
	if edit != nil {
		edit(&o)
	}
	w.watcher = watchers.New(o)
	w.manager.AddListener(w.watcher)

	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- w.manager.Start(ctx) }()
	go func() { done <- w.watcher.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		w.g.Eventually(done).Should(Receive(BeNil()))
		w.g.Eventually(done).Should(Receive(BeNil()))
	})
	return w
}

func (w *world) newNamespace(p *controlplane.Shared) string {
	w.t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "team-"}}
	w.g.Expect(clientOf(w.t, p).Create(w.t.Context(), namespace)).To(Succeed())
	return namespace.Name
}

// cluster makes a Cluster object with the kubeconfig.
func (w *world) cluster(name string, kubeconfig []byte) multicluster.ClusterName {
	w.t.Helper()
	w.kubeconfig(name, kubeconfig)
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"controlPlaneEndpoint": map[string]any{"host": "example.com", "port": int64(6443)},
		"infrastructureRef":    map[string]any{"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "AWSCluster", "name": name},
	}}}
	object.SetAPIVersion("cluster.x-k8s.io/v1beta2")
	object.SetKind("Cluster")
	object.SetNamespace(w.namespace)
	object.SetName(name)
	w.g.Expect(w.hub.Create(w.t.Context(), object)).To(Succeed())
	return clusters.Ref{Kind: "Cluster", Namespace: w.namespace, Name: name}.ClusterName()
}

// kubeconfig creates or replaces a cluster's Secret.
func (w *world) kubeconfig(name string, raw []byte) {
	w.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name + "-kubeconfig"}, Data: map[string][]byte{"value": raw}}
	err := w.hub.Create(w.t.Context(), secret)
	if apierrors.IsAlreadyExists(err) {
		err = w.hub.Patch(w.t.Context(), secret, client.Merge)
	}
	w.g.Expect(err).NotTo(HaveOccurred())
}

// admin makes a Cluster that stands for the plane.
func (w *world) admin(name string, p *controlplane.Shared) multicluster.ClusterName {
	w.t.Helper()
	raw, err := p.Get(w.t).Kubeconfig("")
	w.g.Expect(err).NotTo(HaveOccurred())
	return w.cluster(name, raw)
}

// use makes a Pipeline demand objects, in the order in which the hub does this.
func (w *world) use(pipeline string, objects ...index.Object) {
	key := types.NamespacedName{Namespace: w.namespace, Name: pipeline}
	var demands []watchers.Demand
	for _, o := range objects {
		demands = append(demands, watchers.Demand{
			Cluster: multicluster.ClusterName(o.Cluster), Kind: schema.GroupKind{Group: o.Kind.Group, Kind: o.Kind.Kind},
			Namespace: o.Namespace, Name: o.Name,
		})
	}
	if objects == nil {
		w.index.RemovePipeline(key)
	} else {
		w.index.SetPipeline(key, index.Use{Objects: objects})
	}
	w.watcher.SetDemand(key.String(), demands)
}

func (w *world) release(cluster multicluster.ClusterName, name string) index.Object {
	return index.Object{Cluster: string(cluster), Kind: index.Kind(apps.HelmRelease), Namespace: w.namespace, Name: name}
}

// sight is what the index says of an object.
type sight struct {
	Known, Fresh, Found, Ready bool
	Revision, Reason           string
}

func (w *world) sight(o index.Object) func() sight {
	return func() sight {
		seen, known, fresh := w.index.Last(o)
		return sight{known, fresh.Fresh, seen.Found, seen.Ready, seen.Revision, fresh.Reason}
	}
}

func (w *world) freshness(o index.Object) index.Freshness {
	_, _, f := w.index.Last(o)
	return f
}

var (
	absent  = sight{Known: true, Fresh: true}
	unready = func(revision string) sight { return sight{Known: true, Fresh: true, Found: true, Revision: revision} }
	ready   = func(revision string) sight {
		return sight{Known: true, Fresh: true, Found: true, Ready: true, Revision: revision}
	}
)

// createRelease makes a HelmRelease as a user does.
func (w *world) createRelease(c client.Client, namespace, name string) *unstructured.Unstructured {
	w.t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"interval": "10m",
		"chartRef": map[string]any{"kind": "OCIRepository", "name": name},
		"values":   map[string]any{"replicas": int64(2)},
	}}}
	u.SetAPIVersion("helm.toolkit.fluxcd.io/v2")
	u.SetKind("HelmRelease")
	u.SetNamespace(namespace)
	u.SetName(name)
	w.g.Expect(c.Create(w.t.Context(), u)).To(Succeed())
	return u
}

// deploy writes the status that helm-controller writes after a release.
func (w *world) deploy(c client.Client, u *unstructured.Unstructured, version string) {
	w.t.Helper()
	now := time.Now().UTC().Format(time.RFC3339)
	w.status(c, u, map[string]any{
		"observedGeneration": u.GetGeneration(),
		"conditions": []any{map[string]any{
			"type": "Ready", "status": "True", "reason": "UpgradeSucceeded", "message": "done", "lastTransitionTime": now,
		}},
		"history": []any{map[string]any{
			"name": u.GetName(), "namespace": u.GetNamespace(), "version": int64(1), "status": "deployed", "digest": "sha256:1",
			"chartName": "web", "chartVersion": version + "+0cc9a8446c95", "ociDigest": "sha256:0cc9a8446c95ee", "configDigest": "sha256:2",
			"firstDeployed": now, "lastDeployed": now,
		}},
	})
}

func (w *world) status(c client.Client, u *unstructured.Unstructured, status map[string]any) {
	w.t.Helper()
	patch := u.DeepCopy()
	patch.Object = map[string]any{"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(), "status": status,
		"metadata": map[string]any{"name": u.GetName(), "namespace": u.GetNamespace()}}
	w.g.Expect(c.Status().Patch(w.t.Context(), patch, client.Merge)).To(Succeed())
}

// meter is the sum of a metric over its labels; those given must match.
func (w *world) meter(name string, label ...string) float64 {
	w.t.Helper()
	families, err := w.registry.Gather()
	w.g.Expect(err).NotTo(HaveOccurred())
	sum := 0.0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			match := len(label) == 0
			for _, l := range m.GetLabel() {
				match = match || slices.Equal(label, []string{l.GetName(), l.GetValue()})
			}
			if f.GetName() == name && match {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// reported is what a ClusterConnection shows of a kind.
func (w *world) reported(name string, kind schema.GroupKind) func() (capstanv1.WatchedKind, error) {
	return func() (capstanv1.WatchedKind, error) {
		var c capstanv1.ClusterConnection
		if err := w.hub.Get(context.Background(), client.ObjectKey{Namespace: w.namespace, Name: "cluster." + name}, &c); err != nil {
			return capstanv1.WatchedKind{}, err
		}
		for _, k := range c.Status.Kinds {
			if k.Kind == kind.String() {
				return k, nil
			}
		}
		return capstanv1.WatchedKind{}, errors.New("not reported")
	}
}

// wakes records which Pipelines were woken.
type wakes struct {
	mu    sync.Mutex
	calls []wake
}

type wake struct {
	pipelines []string
	initial   bool
}

func (w *wakes) add(keys []types.NamespacedName, initial bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var names []string
	for _, k := range keys {
		names = append(names, k.Name)
	}
	slices.Sort(names)
	w.calls = append(w.calls, wake{names, initial})
}

func (w *wakes) take() []wake {
	w.mu.Lock()
	defer w.mu.Unlock()
	calls := w.calls
	w.calls = nil
	return calls
}

// of counts the wakes of a Pipeline.
func (w *wakes) of(pipeline string, initial bool) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, c := range w.calls {
		if c.initial == initial && slices.Contains(c.pipelines, pipeline) {
			n++
		}
	}
	return n
}
