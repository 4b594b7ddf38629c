package clusters_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/playground/leaks"
)

// patience with real API servers on a busy machine.
const patience = 2 * time.Minute

// management and workload are started when a test first needs them.
var (
	management    = controlplane.Share("capstan", "cluster-api")
	oldManagement = controlplane.Share("capstan", "cluster-api-old")
	workload      = controlplane.Share()
)

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	SetDefaultEventuallyTimeout(30 * time.Second) // The default of 1 s is too short on a busy machine.
	os.Exit(leaks.Main(func() int {
		return controlplane.StopShared(m.Run(), os.Stderr, management, oldManagement, workload)
	}))
}

// brisk are timings that let a test see an outage and its end in seconds.
func brisk() clusters.Timings {
	return clusters.Timings{
		ProbeInterval: time.Second, ProbeTimeout: time.Second, ProbeRetry: 100 * time.Millisecond, Silence: 300 * time.Millisecond,
		UnreachableRetry: 100 * time.Millisecond, UnreachableRetryMax: 500 * time.Millisecond,
		AuthRecheck: 50 * time.Millisecond, AuthRetry: 30 * time.Second, KindRetry: 200 * time.Millisecond, WriteDelay: 50 * time.Millisecond,
		ReleaseSpread: 20 * time.Millisecond,
	}
}

// world is a namespace of the management cluster with a Manager for it.
type world struct {
	t         *testing.T
	g         *WithT
	hub       client.Client
	namespace string
	manager   *clusters.Manager
	options   clusters.Options
	logs      *logs
	recorder  *events.FakeRecorder
	listener  *listener
}

// newWorld makes a namespace; start starts the Manager.
func newWorld(t *testing.T, edit func(*clusters.Options)) *world {
	t.Helper()
	return newWorldOn(t, management, edit)
}

func newWorldOn(t *testing.T, hub *controlplane.Shared, edit func(*clusters.Options)) *world {
	t.Helper()
	w := &world{t: t, g: NewWithT(t), logs: &logs{}, recorder: events.NewFakeRecorder(1000), listener: &listener{}}
	w.g.SetDefaultEventuallyTimeout(patience)
	w.g.SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	cp := hub.Get(t)
	scheme := runtime.NewScheme()
	w.g.Expect(errors.Join(clientscheme.AddToScheme(scheme), capstanv1.AddToScheme(scheme))).To(Succeed())
	config := cp.Config()
	config.QPS = -1
	var err error
	w.hub, err = client.New(config, client.Options{Scheme: scheme})
	w.g.Expect(err).NotTo(HaveOccurred())
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "team-"}}
	w.g.Expect(w.hub.Create(t.Context(), namespace)).To(Succeed())
	w.namespace = namespace.Name

	w.options = clusters.Options{
		Local: cp.Config(), Namespaces: []string{w.namespace}, AllowLoopback: true,
		Recorder: w.recorder, Timings: brisk(), Logger: w.logs.logger(),
	}
	if edit != nil {
		edit(&w.options)
	}
	w.manager, err = clusters.New(w.options)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.manager.AddListener(w.listener)
	return w
}

// start runs the Manager until the test ends, or until stop.
func (w *world) start() (stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.manager.Start(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			w.g.Eventually(done).Should(Receive(BeNil()))
			if w.t.Failed() {
				w.t.Log(w.logs.String())
			}
		})
	}
	w.t.Cleanup(stop)
	return stop
}

func (w *world) ref(kind, name string) clusters.Ref {
	return clusters.Ref{Kind: kind, Namespace: w.namespace, Name: name}
}

func (w *world) clusterName(name string) multicluster.ClusterName {
	return w.ref("Cluster", name).ClusterName()
}

var clusterKind = schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: "Cluster"}

func (w *world) newCluster(name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(clusterKind)
	object.SetNamespace(w.namespace)
	object.SetName(name)
	_ = unstructured.SetNestedField(object.Object, map[string]any{
		"controlPlaneEndpoint": map[string]any{"host": "example.com", "port": int64(6443)},
		"infrastructureRef":    map[string]any{"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "AWSCluster", "name": name},
	}, "spec")
	return object
}

func (w *world) createCluster(name string) *unstructured.Unstructured {
	w.t.Helper()
	object := w.newCluster(name)
	w.g.Expect(w.hub.Create(w.t.Context(), object)).To(Succeed())
	return object
}

func (w *world) newGitopsCluster(name string, spec map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: "gitops.weave.works", Version: "v1alpha1", Kind: "GitopsCluster"})
	object.SetNamespace(w.namespace)
	object.SetName(name)
	return object
}

// secret creates or updates a Secret.
func (w *world) secret(name, key string, value []byte) {
	w.t.Helper()
	object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Data: map[string][]byte{key: value}}
	err := w.hub.Create(w.t.Context(), object)
	if apierrors.IsAlreadyExists(err) {
		err = w.hub.Patch(w.t.Context(), object, client.Merge)
	}
	w.g.Expect(err).NotTo(HaveOccurred())
}

func (w *world) kubeconfig(server string) []byte {
	w.t.Helper()
	raw, err := workload.Get(w.t).TokenKubeconfig(w.t.Context(), server, "hub", time.Hour)
	w.g.Expect(err).NotTo(HaveOccurred())
	return raw
}

// proxy stands before the workload cluster.
func (w *world) proxy() *controlplane.Proxy {
	w.t.Helper()
	p, err := controlplane.NewProxy(workload.Get(w.t).Config().Host)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.t.Cleanup(func() { _ = p.Close() })
	return p
}

// connected makes a Cluster with its Secret, demands it and waits for Ready.
func (w *world) connected(name, server string) *clusters.Connection {
	w.t.Helper()
	w.createCluster(name)
	w.secret(name+"-kubeconfig", "value", w.kubeconfig(server))
	w.manager.Demand(w.clusterName(name), "test")
	w.reaches(name, capstanv1.ConnectionReady, clusters.ReasonConnected)
	connection, err := w.manager.Connection(w.clusterName(name))
	w.g.Expect(err).NotTo(HaveOccurred())
	return connection
}

// selfManaged sets or removes SelfManagedLabel of a cluster.
func (w *world) selfManaged(name string, is bool) {
	w.t.Helper()
	var value any
	if is {
		value = "true"
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{clusters.SelfManagedLabel: value}}})
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(w.hub.Patch(w.t.Context(), w.newCluster(name), client.RawPatch(types.MergePatchType, patch))).To(Succeed())
}

// reaches waits for a state, in the Manager and in the ClusterConnection.
func (w *world) reaches(name string, state capstanv1.ConnectionState, reason string) clusters.Snapshot {
	w.t.Helper()
	return w.nameReaches(w.clusterName(name), state, reason)
}

func (w *world) nameReaches(name multicluster.ClusterName, state capstanv1.ConnectionState, reason string) clusters.Snapshot {
	w.t.Helper()
	var last clusters.Snapshot
	w.g.Eventually(func() string {
		last, _ = w.manager.Snapshot(name)
		return string(last.State) + "/" + last.Reason
	}).Should(Equal(string(state)+"/"+reason), func() string { return fmt.Sprintf("%+v", last) })
	return last
}

// identified waits until the identity of a cluster is known, which may be after Ready.
func (w *world) identified(name string) clusters.Snapshot {
	w.t.Helper()
	var last clusters.Snapshot
	w.g.Eventually(func() string {
		last, _ = w.manager.Snapshot(w.clusterName(name))
		return last.ClusterUID
	}).ShouldNot(BeEmpty())
	return last
}

func (w *world) shown(name string) (*capstanv1.ClusterConnection, error) {
	object := &capstanv1.ClusterConnection{}
	err := w.hub.Get(context.Background(), client.ObjectKey{Namespace: w.namespace, Name: name}, object)
	return object, err
}

// shows waits for what a ClusterConnection says.
func (w *world) shows(name string, state capstanv1.ConnectionState, reason string) *capstanv1.ClusterConnection {
	w.t.Helper()
	var object *capstanv1.ClusterConnection
	w.g.Eventually(func() (string, error) {
		var err error
		object, err = w.shown(name)
		return string(object.Status.State) + "/" + object.Status.Reason, err
	}).Should(Equal(string(state) + "/" + reason))
	return object
}

// logs keeps what is logged, at every level.
type logs struct {
	mu    sync.Mutex
	lines bytes.Buffer
}

func (l *logs) logger() logr.Logger {
	return funcr.New(func(prefix, args string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		fmt.Fprintln(&l.lines, prefix, args)
	}, funcr.Options{Verbosity: 10})
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.String()
}

// listener records the notifications.
type listener struct {
	mu          sync.Mutex
	transitions []string
	references  []clusters.Ref
}

func (l *listener) ConnectionChanged(from, to clusters.Snapshot) {
	if from.State == to.State && from.Reason == to.Reason && from.Epoch == to.Epoch {
		return // Only the message has changed.
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.transitions = append(l.transitions, fmt.Sprintf("%s %s>%s/%s", to.Name, from.State, to.State, to.Reason))
}

func (l *listener) ReferenceChanged(ref clusters.Ref) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.references = append(l.references, ref)
}

func (l *listener) of(name multicluster.ClusterName) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var own []string
	for _, s := range l.transitions {
		if rest, ok := strings.CutPrefix(s, string(name)+" "); ok {
			own = append(own, rest)
		}
	}
	return own
}

func (l *listener) referenceChanges(ref clusters.Ref) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, r := range l.references {
		if r == ref {
			n++
		}
	}
	return n
}

// counting counts the lists and watches that leave through a connection's client.
type counting struct {
	http.RoundTripper
	mu             sync.Mutex
	lists, watches int
}

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	query := r.URL.Query()
	c.mu.Lock()
	if query.Get("watch") != "true" || query.Get("sendInitialEvents") == "true" {
		c.lists++
	} else {
		c.watches++
	}
	c.mu.Unlock()
	return c.RoundTripper.RoundTrip(r)
}

func (c *counting) counts() (lists, watches int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lists, c.watches
}
