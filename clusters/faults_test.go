package clusters_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/playground/controlplane"
)

// follow runs an informer of ConfigMaps over a connection, and counts its requests.
func (w *world) follow(connection *clusters.Connection) (cache.Store, *counting) {
	w.t.Helper()
	counted := &counting{RoundTripper: connection.HTTPClient().Transport}
	set, err := kubernetes.NewForConfigAndClient(connection.Config(), &http.Client{Transport: counted})
	w.g.Expect(err).NotTo(HaveOccurred())
	lw := cache.NewListWatchFromClient(set.CoreV1().RESTClient(), "configmaps", w.namespace, nil)
	informer := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, set), &corev1.ConfigMap{}, 0, cache.Indexers{})
	ctx, cancel := context.WithCancel(connection.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		informer.RunWithContext(ctx)
	}()
	w.t.Cleanup(func() { cancel(); <-ended })
	w.g.Eventually(informer.HasSynced).Should(BeTrue())
	return informer.GetStore(), counted
}

// change writes a ConfigMap in the workload cluster, past the proxy.
func (w *world) change(value string) {
	w.t.Helper()
	set, err := kubernetes.NewForConfig(workload.get(w.t).Config())
	w.g.Expect(err).NotTo(HaveOccurred())
	ctx := w.t.Context()
	_, _ = set.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}, metav1.CreateOptions{})
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "app"}, Data: map[string]string{"revision": value}}
	if _, err = set.CoreV1().ConfigMaps(w.namespace).Update(ctx, object, metav1.UpdateOptions{}); err != nil {
		_, err = set.CoreV1().ConfigMaps(w.namespace).Create(ctx, object, metav1.CreateOptions{})
	}
	w.g.Expect(err).NotTo(HaveOccurred())
}

func (w *world) sees(store cache.Store, value string) {
	w.t.Helper()
	w.g.Eventually(func() string {
		item, exists, _ := store.GetByKey(w.namespace + "/app")
		if !exists {
			return ""
		}
		return item.(*corev1.ConfigMap).Data["revision"]
	}).Should(Equal(value))
}

// TestOutage: a cluster that refuses, and one that swallows, becomes Unreachable,
// its requests park, and when it is back its informer resumes without a list. A
// cluster beside it notices nothing.
func TestOutage(t *testing.T) {
	w := newWorld(t, nil)
	w.start()
	proxy := w.proxy()
	healthy := w.connected("healthy", "")
	away := w.connected("away", proxy.URL())
	w.change("1.0")
	store, counted := w.follow(away)
	w.sees(store, "1.0")
	lists, _ := counted.counts()

	for i, mode := range []controlplane.ProxyMode{controlplane.Refuse, controlplane.Swallow} {
		t.Log("mode", mode)
		proxy.Set(mode)
		w.reaches("away", capstanv1.ConnectionUnreachable, clusters.ReasonProbesFailed)
		w.shows("cluster.away", capstanv1.ConnectionUnreachable, clusters.ReasonProbesFailed)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, away.Config().Host+"/version", nil)
		w.g.Expect(err).NotTo(HaveOccurred())
		_, err = away.HTTPClient().Do(request) //nolint:bodyclose // there is none
		w.g.Expect(err).To(MatchError(context.DeadlineExceeded), "parked")
		cancel()
		_, err = w.manager.Get(t.Context(), w.clusterName("away"))
		w.g.Expect(err).To(MatchError(multicluster.ErrClusterNotFound))

		revision := fmt.Sprintf("2.%d", i)
		w.change(revision)
		proxy.Set(controlplane.Pass)
		w.reaches("away", capstanv1.ConnectionReady, clusters.ReasonConnected)
		w.sees(store, revision)
	}
	after, _ := counted.counts()
	w.g.Expect(after).To(Equal(lists), "no list but the first")
	again, err := w.manager.Connection(w.clusterName("away"))
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(again).To(BeIdenticalTo(away), "one epoch")
	w.g.Expect(w.heard.of(w.clusterName("healthy"))).NotTo(ContainElement(ContainSubstring("Ready>")))
	w.g.Expect(time.Since(healthy.LastContact())).To(BeNumerically("<", 5*time.Second))
	w.g.Eventually(w.recorder.Events).Should(Receive(ContainSubstring("Warning Unreachable ProbesFailed")))
}

// TestHangingAtStart: a cluster that swallows from the first packet on holds nobody.
func TestHangingAtStart(t *testing.T) {
	w := newWorld(t, nil)
	proxy := w.proxy()
	proxy.Set(controlplane.Swallow)
	for i := range 5 {
		name := fmt.Sprintf("hanging-%d", i)
		w.createCluster(name)
		w.secret(name+"-kubeconfig", "value", w.kubeconfig(proxy.URL()))
		w.manager.Demand(w.clusterName(name), "test")
	}
	w.start()
	start := time.Now()
	w.connected("healthy", "")
	w.g.Expect(time.Since(start)).To(BeNumerically("<", 5*time.Second))
	w.reaches("hanging-4", capstanv1.ConnectionUnreachable, clusters.ReasonProbesFailed)
	proxy.Set(controlplane.Pass)
	w.reaches("hanging-4", capstanv1.ConnectionReady, clusters.ReasonConnected)
}

// TestRotation: tokens and client certificates change beneath an informer, which
// lists once and misses nothing; the epoch stays.
func TestRotation(t *testing.T) {
	w := newWorld(t, func(o *clusters.Options) { o.Registerer = prometheus.NewRegistry() })
	w.start()
	connection := w.connected("prod", "")
	w.change("1.0")
	store, counted := w.follow(connection)
	w.sees(store, "1.0")
	lists, _ := counted.counts()
	rotations := func(kind string) float64 {
		return metric(t, w.options.Registerer, "capstan_cluster_rotations_total", kind)
	}
	for i := 1; i <= 5; i++ {
		w.secret("prod-kubeconfig", "value", w.kubeconfig(""))
		w.g.Eventually(func() float64 { return rotations("token") }).Should(BeEquivalentTo(i))
		w.change(fmt.Sprintf("2.%d", i))
		w.sees(store, fmt.Sprintf("2.%d", i))
	}
	for i := 1; i <= 3; i++ {
		raw, err := workload.get(t).UserKubeconfig("", "hub", "system:masters")
		w.g.Expect(err).NotTo(HaveOccurred())
		w.secret("prod-kubeconfig", "value", raw)
		w.g.Eventually(func() float64 { return rotations("certificate") }).Should(BeEquivalentTo(i))
		w.change(fmt.Sprintf("3.%d", i))
		w.sees(store, fmt.Sprintf("3.%d", i))
	}
	after, _ := counted.counts()
	w.g.Expect(after).To(Equal(lists))
	w.g.Expect(w.reaches("prod", capstanv1.ConnectionReady, clusters.ReasonConnected).Epoch).To(BeEquivalentTo(1))
	w.g.Expect(w.heard.of(w.clusterName("prod"))).NotTo(ContainElement(ContainSubstring("Ready>")), "nobody is told")
}

// withToken replaces the token in a kubeconfig.
func withToken(t *testing.T, raw []byte, token string) []byte {
	t.Helper()
	config, err := clientcmd.Load(raw)
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		user.Token = token
	}
	raw, err = clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestUnauthorized: credentials that the cluster rejects park the informer until
// the Secret is mended; it resumes without a list.
func TestUnauthorized(t *testing.T) {
	w := newWorld(t, nil)
	w.start()
	set, err := kubernetes.NewForConfig(workload.get(t).Config())
	w.g.Expect(err).NotTo(HaveOccurred())
	account := w.namespace
	raw, err := workload.get(t).TokenKubeconfig(t.Context(), "", account, time.Hour)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.createCluster("prod")
	w.secret("prod-kubeconfig", "value", raw)
	w.manager.Demand(w.clusterName("prod"), "test")
	w.reaches("prod", capstanv1.ConnectionReady, clusters.ReasonConnected)
	connection, err := w.manager.Connection(w.clusterName("prod"))
	w.g.Expect(err).NotTo(HaveOccurred())
	w.change("1.0")
	store, counted := w.follow(connection)
	w.sees(store, "1.0")
	lists, _ := counted.counts()

	// The account goes, and with it its token.
	w.g.Expect(set.CoreV1().ServiceAccounts("kube-system").Delete(t.Context(), account, metav1.DeleteOptions{})).To(Succeed())
	failed := w.reaches("prod", capstanv1.ConnectionAuthFailed, clusters.ReasonUnauthorized)
	w.g.Expect(failed.Message).To(ContainSubstring(w.namespace + "/prod-kubeconfig"))
	w.change("2.0")
	w.secret("prod-kubeconfig", "value", w.kubeconfig(""))
	w.reaches("prod", capstanv1.ConnectionReady, clusters.ReasonConnected)
	w.sees(store, "2.0")
	after, _ := counted.counts()
	w.g.Expect(after).To(Equal(lists))
}

// TestRequestRenewsCredentials: a 401 to a request has the Secret read again at
// once, even where no watch tells of it, and the request succeeds.
func TestRequestRenewsCredentials(t *testing.T) {
	w := newWorld(t, func(o *clusters.Options) {
		// A hub that may read Secrets one by one and not watch them.
		o.Local = w0(t).limitedConfig(t, []string{"get"})
		o.Timings.ProbeInterval = time.Hour
	})
	w.limit("get")
	w.start()
	connection := w.connected("prod", "")
	raw, err := workload.get(t).TokenKubeconfig(t.Context(), "", w.namespace, time.Hour)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.secret("prod-kubeconfig", "value", raw)
	_ = connection
}
