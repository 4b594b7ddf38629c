package clusters_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
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
	lw := cache.NewListWatchFromClient(set.CoreV1().RESTClient(), "configmaps", w.namespace, fields.Everything())
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
	set, err := kubernetes.NewForConfig(workload.Get(w.t).Config())
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
// cluster next to it is not affected.
func TestOutage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.start()
	proxy := w.proxy()
	healthy := w.connected("healthy", "")
	away := w.connected("away", proxy.URL())
	w.change("1.0")
	store, counted := w.follow(away)
	w.sees(store, "1.0")
	w.change("1.1")
	w.sees(store, "1.1") // a watch that ends within a second of nothing is listed anew by client-go
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
	w.g.Expect(w.listener.of(w.clusterName("healthy"))).NotTo(ContainElement(ContainSubstring("Ready>")))
	w.g.Eventually(func() time.Duration { return time.Since(healthy.LastContact()) }).Should(BeNumerically("<", 5*time.Second))
	w.g.Eventually(w.recorder.Events).Should(Receive(ContainSubstring("Warning Unreachable ProbesFailed")))
}

// TestHangingAtStart: a cluster that never responds does not block the others.
func TestHangingAtStart(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
		raw, err := workload.Get(t).UserKubeconfig("", "hub", "system:masters")
		w.g.Expect(err).NotTo(HaveOccurred())
		w.secret("prod-kubeconfig", "value", raw)
		w.g.Eventually(func() float64 { return rotations("certificate") }).Should(BeEquivalentTo(i))
		w.change(fmt.Sprintf("3.%d", i))
		w.sees(store, fmt.Sprintf("3.%d", i))
	}
	after, _ := counted.counts()
	w.g.Expect(after).To(Equal(lists))
	w.g.Expect(w.reaches("prod", capstanv1.ConnectionReady, clusters.ReasonConnected).Epoch).To(BeEquivalentTo(1))
	w.g.Expect(w.listener.of(w.clusterName("prod"))).NotTo(ContainElement(ContainSubstring("Ready>")), "no Listener is notified")
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
// the Secret is fixed; it resumes without a list.
func TestUnauthorized(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.start()
	connection := w.connected("prod", "")
	w.change("1.0")
	store, counted := w.follow(connection)
	w.sees(store, "1.0")
	w.change("1.1")
	w.sees(store, "1.1")
	lists, _ := counted.counts()

	good := w.kubeconfig("")
	w.secret("prod-kubeconfig", "value", withToken(t, good, "expired"))
	failed := w.reaches("prod", capstanv1.ConnectionAuthFailed, clusters.ReasonUnauthorized)
	w.g.Expect(failed.Message).To(ContainSubstring(w.namespace + "/prod-kubeconfig"))
	w.change("2.0")
	w.secret("prod-kubeconfig", "value", good)
	w.reaches("prod", capstanv1.ConnectionReady, clusters.ReasonConnected)
	w.sees(store, "2.0")
	after, _ := counted.counts()
	w.g.Expect(after).To(Equal(lists))
}

// limited is the config of a hub with the rights it needs for one namespace, where
// it has the given verbs on Secrets.
func limited(t *testing.T, namespace string, onSecrets ...string) *rest.Config {
	t.Helper()
	g, ctx := NewWithT(t), t.Context()
	set, err := kubernetes.NewForConfig(management.Get(t).Config())
	g.Expect(err).NotTo(HaveOccurred())
	user := "hub-" + namespace
	_, err = set.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "hub"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"cluster.x-k8s.io"}, Resources: []string{"clusters"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"gitops.weave.works"}, Resources: []string{"gitopsclusters"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"capstan.dev"}, Resources: []string{"clusterconnections"}, Verbs: []string{"get", "list", "create", "patch", "delete"}},
		{APIGroups: []string{"capstan.dev"}, Resources: []string{"clusterconnections/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: append(onSecrets, "create")}, // any will do
	}}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = set.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "hub"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "hub"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	config, err := management.Get(t).UserConfig(user)
	g.Expect(err).NotTo(HaveOccurred())
	return config
}

// TestLeastRights: a Role in the namespace is enough, and without rights on Secrets
// the state says so until they are given.
func TestLeastRights(t *testing.T) {
	t.Parallel()
	t.Run("enough", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, func(o *clusters.Options) { o.Local = limited(t, o.Namespaces[0], "get", "list", "watch") })
		w.start()
		w.connected("prod", "")
		w.secret("prod-kubeconfig", "value", []byte("rubbish"))
		w.shows("cluster.prod", capstanv1.ConnectionAuthFailed, clusters.ReasonKubeconfigRefused)
	})
	t.Run("none on Secrets", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, func(o *clusters.Options) {
			o.Local = limited(t, o.Namespaces[0])
			o.Timings.ForbiddenRetry = 200 * time.Millisecond
		})
		w.start()
		w.createCluster("prod")
		w.secret("prod-kubeconfig", "value", w.kubeconfig(""))
		w.manager.Demand(w.clusterName("prod"), "test")
		s := w.reaches("prod", capstanv1.ConnectionAuthFailed, clusters.ReasonSecretForbidden)
		w.g.Expect(s.Message).To(And(ContainSubstring("config/rbac/cluster-secrets to namespace "+w.namespace), ContainSubstring("the hub checks every 200ms")))
		patch := `{"rules":[{"apiGroups":[""],"resources":["secrets"],"verbs":["get","list","watch"]}]}`
		role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "hub"}}
		w.g.Expect(w.hub.Patch(t.Context(), role, client.RawPatch("application/merge-patch+json", []byte(patch)))).To(Succeed())
		w.reaches("prod", capstanv1.ConnectionReady, clusters.ReasonConnected)
	})
}

// kubeconfigOf a server of the test's own.
func kubeconfigOf(t *testing.T, server *httptest.Server, token string) []byte {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server.URL, CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	raw, err := clientcmd.Write(*config)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return raw
}

// TestServerThatIsNone: a kubeconfig leads to a server that answers, but is no API
// server. The state shows that; it does not stay Connecting.
func TestServerThatIsNone(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]int{"not found": http.StatusNotFound, "redirect": http.StatusFound, "too many requests": http.StatusTooManyRequests} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(code) }))
			defer server.Close()
			w := newWorld(t, nil)
			w.start()
			w.createCluster("prod")
			w.secret("prod-kubeconfig", "value", kubeconfigOf(t, server, "token"))
			w.manager.Demand(w.clusterName("prod"), "test")
			seen := w.reaches("prod", capstanv1.ConnectionUnreachable, clusters.ReasonProbesFailed)
			w.g.Expect(seen.Message).To(ContainSubstring(fmt.Sprint(code)))
			w.shows("cluster.prod", capstanv1.ConnectionUnreachable, clusters.ReasonProbesFailed)
		})
	}
}

// TestRequestRenewsCredentials: a 401 to a request has the Secret read again at
// once, even where no watch tells of it, and the request succeeds.
func TestRequestRenewsCredentials(t *testing.T) {
	t.Parallel()
	var valid atomic.Value
	valid.Store("first")
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+valid.Load().(string) {
			rw.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer server.Close()
	kubeconfig := func(token string) []byte { return kubeconfigOf(t, server, token) }
	w := newWorld(t, func(o *clusters.Options) {
		o.Local = limited(t, o.Namespaces[0], "get") // one by one, and no watch
		o.Registerer = prometheus.NewRegistry()
		o.Timings.ProbeInterval = time.Hour
	})
	w.start()
	w.createCluster("prod")
	w.secret("prod-kubeconfig", "value", kubeconfig("first"))
	w.manager.Demand(w.clusterName("prod"), "test")
	w.reaches("prod", capstanv1.ConnectionReady, clusters.ReasonConnected)
	connection, err := w.manager.Connection(w.clusterName("prod"))
	w.g.Expect(err).NotTo(HaveOccurred())

	w.secret("prod-kubeconfig", "value", kubeconfig("second"))
	valid.Store("second")
	codes := make(chan int, 10)
	for range cap(codes) {
		go func() {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/version", nil)
			if err != nil {
				t.Error(err)
			}
			response, err := connection.HTTPClient().Do(request)
			if err != nil {
				t.Error(err)
				codes <- 0
				return
			}
			_ = response.Body.Close()
			codes <- response.StatusCode
		}()
	}
	for range cap(codes) {
		w.g.Eventually(codes).Should(Receive(Equal(http.StatusOK)))
	}
	w.g.Expect(metric(t, w.options.Registerer, "capstan_cluster_rotations_total", "token")).To(BeEquivalentTo(1))
	w.g.Expect(w.listener.of(w.clusterName("prod"))).NotTo(ContainElement(ContainSubstring("Ready>")))
}

// TestEndpointChange: another server of the same cluster is used next to the old
// one, which ends a while later. The cluster never leaves Ready.
func TestEndpointChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *clusters.Options) {
		o.Timings.Handover, o.Registerer = 300*time.Millisecond, prometheus.NewRegistry()
	})
	w.start()
	old := w.connected("prod", "")
	uid := w.identified("prod").ClusterUID
	proxy := w.proxy()
	w.secret("prod-kubeconfig", "value", w.kubeconfig(proxy.URL()))
	w.g.Eventually(func() int64 { s, _ := w.manager.Snapshot(w.clusterName("prod")); return s.Epoch }).Should(BeEquivalentTo(2))
	s := w.reaches("prod", capstanv1.ConnectionReady, clusters.ReasonConnected)
	w.g.Expect(s.ClusterUID).To(Equal(uid), "the same cluster behind another address")
	w.g.Expect(s.Server).To(Equal(proxy.URL()))
	w.g.Eventually(old.Context().Done()).Should(BeClosed())
	w.g.Expect(w.listener.of(w.clusterName("prod"))).NotTo(ContainElement(Or(HavePrefix("Ready>Connecting"), HavePrefix("Ready>Degraded"))))
	w.g.Expect(metric(t, w.options.Registerer, "capstan_cluster_rotations_total", "endpoint")).To(BeEquivalentTo(1))
}

// TestNewServerFailing: the Secret names a server that does not answer, before the
// old one ends. The old connection goes on, and says so, until the new one answers,
// or the Secret names the old one again.
func TestNewServerFailing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.start()
	old := w.connected("prod", "")
	proxy := w.proxy()
	proxy.Set(controlplane.Refuse)
	w.secret("prod-kubeconfig", "value", w.kubeconfig(proxy.URL()))
	s := w.reaches("prod", capstanv1.ConnectionDegraded, clusters.ReasonNewServerFailing)
	w.g.Expect(s.Message).To(And(ContainSubstring("Secret "+w.namespace+"/prod-kubeconfig"), ContainSubstring(strings.TrimPrefix(proxy.URL(), "https://"))))
	w.g.Expect(s.Epoch).To(BeEquivalentTo(1))
	w.g.Expect(old.Context().Err()).NotTo(HaveOccurred())
	version, err := kubernetes.NewForConfigAndClient(old.Config(), old.HTTPClient())
	w.g.Expect(err).NotTo(HaveOccurred())
	_, err = version.Discovery().ServerVersion()
	w.g.Expect(err).NotTo(HaveOccurred())

	w.secret("prod-kubeconfig", "value", w.kubeconfig(""))
	w.reaches("prod", capstanv1.ConnectionReady, clusters.ReasonConnected)
	w.secret("prod-kubeconfig", "value", w.kubeconfig(proxy.URL()))
	w.reaches("prod", capstanv1.ConnectionDegraded, clusters.ReasonNewServerFailing)
	proxy.Set(controlplane.Pass)
	w.g.Expect(w.reaches("prod", capstanv1.ConnectionReady, clusters.ReasonConnected).Epoch).To(BeEquivalentTo(2))
}

// TestOldServerEndsFirst: the old server ends while the new one does not answer.
func TestOldServerEndsFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.start()
	before, after := w.proxy(), w.proxy()
	old := w.connected("prod", before.URL())
	after.Set(controlplane.Refuse)
	w.secret("prod-kubeconfig", "value", w.kubeconfig(after.URL()))
	w.reaches("prod", capstanv1.ConnectionDegraded, clusters.ReasonNewServerFailing)
	before.Set(controlplane.Refuse)
	w.g.Eventually(old.Context().Done()).Should(BeClosed())
	w.reaches("prod", capstanv1.ConnectionUnreachable, clusters.ReasonProbesFailed)
	after.Set(controlplane.Pass)
	w.g.Expect(w.reaches("prod", capstanv1.ConnectionReady, clusters.ReasonConnected).Epoch).To(BeEquivalentTo(2))
}

// TestMoveToAnotherCluster: the server that the Secret names now is another cluster's.
// Nothing known of the old one holds, and its connection ends at once.
func TestMoveToAnotherCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.start()
	old := w.connected("prod", "")
	w.reaches("prod", capstanv1.ConnectionReady, clusters.ReasonConnected)
	uid := w.identified("prod").ClusterUID
	raw, err := management.Get(t).Kubeconfig("")
	w.g.Expect(err).NotTo(HaveOccurred())
	w.secret("prod-kubeconfig", "value", raw)
	w.g.Eventually(old.Context().Done()).Should(BeClosed())
	w.reaches("prod", capstanv1.ConnectionReady, clusters.ReasonConnected)
	s := w.identified("prod")
	w.g.Expect(s.ClusterUID).NotTo(Equal(uid))
	w.g.Expect(s.Epoch).To(BeEquivalentTo(2))
	w.g.Expect(w.listener.of(w.clusterName("prod"))).To(ContainElement("Ready>Connecting/EndpointChanged"))
}

// aware is a multicluster.Aware whose results the test sets.
type aware struct {
	mu      sync.Mutex
	engaged []string
	engage  func(context.Context, multicluster.ClusterName) error
}

func (a *aware) Engage(ctx context.Context, name multicluster.ClusterName, c cluster.Cluster) error {
	a.mu.Lock()
	a.engaged = append(a.engaged, string(name))
	a.mu.Unlock()
	if c == nil {
		return errors.New("no cluster")
	}
	return a.engage(ctx, name)
}

func (a *aware) count(name multicluster.ClusterName) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, e := range a.engaged {
		if e == string(name) {
			n++
		}
	}
	return n
}

// TestEngage: an Aware that blocks on one cluster, or fails, holds no other; a
// cluster is engaged once per epoch, with any rotation.
func TestEngage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	blocks, fails, works := w.clusterName("blocks"), w.clusterName("fails"), w.clusterName("works")
	failures := 2
	ended := make(chan struct{}) // closed by the one engagement of blocks
	a := &aware{engage: func(ctx context.Context, name multicluster.ClusterName) error {
		switch name {
		case blocks:
			<-ctx.Done()
			close(ended)
		case fails:
			if failures > 0 {
				failures--
				return errors.New("not yet")
			}
		}
		return nil
	}}
	w.manager.SetAware(a)
	w.start()
	w.connected("blocks", "")
	w.selfManaged("blocks", true)
	w.g.Eventually(func() int { return a.count(blocks) }).Should(Equal(1))
	w.connected("fails", "")
	w.selfManaged("fails", true)
	w.connected("works", "")
	w.selfManaged("works", true)
	w.g.Eventually(func() int { return a.count(works) }).Should(Equal(1))
	w.g.Eventually(func() int { return a.count(fails) }).Should(Equal(3))

	w.secret("works-kubeconfig", "value", w.kubeconfig(""))
	w.manager.ReportKinds(works, []capstanv1.WatchedKind{{Kind: "x", Reason: "Forbidden"}}, 0)
	w.reaches("works", capstanv1.ConnectionDegraded, clusters.ReasonKindNotSynced)
	w.manager.ReportKinds(works, nil, 0)
	w.reaches("works", capstanv1.ConnectionReady, clusters.ReasonConnected)
	w.g.Expect(a.count(works)).To(Equal(1))
	w.g.Expect(a.count(clusters.LocalName)).To(BeZero(), "the management cluster is the manager's own to engage")

	c, err := w.manager.Get(t.Context(), works)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(c.GetAPIReader().Get(t.Context(), client.ObjectKey{Name: "kube-system"}, &corev1.Namespace{})).To(Succeed())
	again, err := w.manager.Get(t.Context(), works)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(again).To(BeIdenticalTo(c))
	_, err = w.manager.Get(t.Context(), "Cluster/no/where")
	w.g.Expect(err).To(MatchError(multicluster.ErrClusterNotFound))
	w.g.Expect(w.manager.IndexField(t.Context(), &corev1.Pod{}, "x", nil)).To(MatchError(clusters.ErrNoIndexes))

	// The epoch's end ends what was engaged.
	w.g.Expect(w.hub.Delete(t.Context(), w.newCluster("blocks"))).To(Succeed())
	w.g.Eventually(ended).Should(BeClosed())
}

// TestEngagedWhileSelfManaged: a cluster without the label is not engaged and has no
// cluster.Cluster. The end of the label ends the engagement, and its goroutines, in the same
// epoch; the label engages it again.
func TestEngagedWhileSelfManaged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	var live atomic.Int32
	a := &aware{engage: func(ctx context.Context, _ multicluster.ClusterName) error {
		live.Add(1)
		context.AfterFunc(ctx, func() { live.Add(-1) })
		return nil
	}}
	w.manager.SetAware(a)
	w.start()
	connection := w.connected("prod", "")
	name := w.clusterName("prod")
	get := func() error { _, err := w.manager.Get(t.Context(), name); return err }
	w.g.Consistently(func() int { return a.count(name) }, 100*time.Millisecond).Should(BeZero())
	w.g.Expect(get()).To(MatchError(multicluster.ErrClusterNotFound))

	const times = 10
	var last cluster.Cluster
	for n := range times {
		w.selfManaged("prod", true)
		w.g.Eventually(live.Load).Should(BeEquivalentTo(1))
		w.g.Expect(a.count(name)).To(Equal(n + 1))
		c, err := w.manager.Get(t.Context(), name)
		w.g.Expect(err).NotTo(HaveOccurred())
		w.g.Expect(c).NotTo(BeIdenticalTo(last), "that of the last engagement has ended")
		last = c
		w.selfManaged("prod", false)
		w.g.Eventually(live.Load).Should(BeZero())
		w.g.Expect(get()).To(MatchError(multicluster.ErrClusterNotFound))
	}
	w.g.Expect(connection.Context().Err()).NotTo(HaveOccurred(), "the epoch goes on")
}

// TestCanary: no byte of a Secret reaches logs, errors, ClusterConnections or
// Events, for any defect.
func TestCanary(t *testing.T) {
	t.Parallel()
	const canary = "CANARY5f1d0e"
	w := newWorld(t, nil)
	w.start()
	name := w.clusterName("prod")
	good := w.kubeconfig("")
	connection := w.connected("prod", "")
	config, err := clientcmd.Load(good)
	w.g.Expect(err).NotTo(HaveOccurred())
	secrets := []string{canary, config.AuthInfos["user"].Token}

	certificate, err := workload.Get(t).UserKubeconfig("", "hub", "system:masters")
	w.g.Expect(err).NotTo(HaveOccurred())
	config, err = clientcmd.Load(certificate)
	w.g.Expect(err).NotTo(HaveOccurred())
	block, _ := pem.Decode(config.AuthInfos["user"].ClientKeyData)
	key := strings.Split(strings.TrimSpace(string(config.AuthInfos["user"].ClientKeyData)), "\n")
	secrets = append(secrets, key[1], string(block.Bytes))

	var said []string
	for _, raw := range [][]byte{
		good, certificate, []byte(canary), []byte("{" + canary), []byte("token: " + canary),
		withToken(t, good, canary), withToken(t, good, canary+"\n"+canary),
		[]byte(strings.Replace(string(good), "token:", "tokenFile: /"+canary+"\n    token:", 1)),
		[]byte(strings.Replace(string(good), "https://", "https://user:"+canary+"@", 1)),
		[]byte(strings.Replace(string(good), "certificate-authority-data: ", "certificate-authority-data: "+canary, 1)),
		good,
	} {
		w.secret("prod-kubeconfig", "value", good)
		w.reaches("prod", capstanv1.ConnectionReady, clusters.ReasonConnected)
		w.secret("prod-kubeconfig", "value", raw)
		if !slices.ContainsFunc([][]byte{good, certificate}, func(fine []byte) bool { return bytes.Equal(fine, raw) }) {
			w.g.Eventually(func() capstanv1.ConnectionState { s, _ := w.manager.Snapshot(name); return s.State }).Should(Equal(capstanv1.ConnectionAuthFailed))
		}
		s, _ := w.manager.Snapshot(name)
		_, getErr := w.manager.Get(t.Context(), name)
		_, connectionErr := w.manager.Connection(name)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, connection.Config().Host+"/version", nil)
		w.g.Expect(err).NotTo(HaveOccurred())
		response, requestErr := connection.HTTPClient().Do(request)
		if response != nil {
			_ = response.Body.Close()
		}
		cancel()
		said = append(said, fmt.Sprintf("%+v %v %v %v %+v", s, getErr, connectionErr, requestErr, connection.Config()))
	}
	w.shows("cluster.prod", capstanv1.ConnectionReady, clusters.ReasonConnected)
	shown, err := w.shown("cluster.prod")
	w.g.Expect(err).NotTo(HaveOccurred())
	said = append(said, fmt.Sprintf("%+v", shown), w.logs.String())
	for len(w.recorder.Events) > 0 {
		said = append(said, <-w.recorder.Events)
	}
	w.g.Expect(strings.Join(said, "\n")).To(ContainSubstring("KubeconfigRefused"))
	for _, s := range said {
		for _, secret := range secrets {
			if strings.Contains(s, secret) {
				t.Errorf("a secret was printed in: %s", s)
			}
		}
	}
}

// TestMetrics: series are of the present, and two Managers share a registry.
func TestMetrics(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	w := newWorld(t, func(o *clusters.Options) { o.Registerer = registry })
	stop := w.start()
	// The Manager that registers first is the one whose series are shown.
	w.g.Eventually(func() float64 { return metric(t, registry, "capstan_cluster_state", "management", "Ready") }).Should(BeEquivalentTo(1))
	other := newWorld(t, func(o *clusters.Options) { o.Registerer = registry })
	stopOther := other.start()
	w.connected("prod", "")
	name := string(w.clusterName("prod"))
	w.g.Expect(metric(t, registry, "capstan_cluster_state", name, "Ready")).To(BeEquivalentTo(1))
	w.g.Expect(metric(t, registry, "capstan_cluster_state", "management", "Ready")).To(BeEquivalentTo(1))
	w.g.Expect(metric(t, registry, "capstan_cluster_last_contact_timestamp_seconds", name)).To(BeNumerically("~", time.Now().Unix(), 60))
	w.g.Expect(metric(t, registry, "capstan_cluster_credential_expiry_timestamp_seconds", name)).To(BeNumerically(">", time.Now().Unix()))
	w.g.Expect(metric(t, registry, "capstan_cluster_probe_duration_seconds", "good")).To(BeNumerically(">=", 2))
	connection, err := w.manager.Connection(w.clusterName("prod"))
	w.g.Expect(err).NotTo(HaveOccurred())
	_, err = connection.HTTPClient().Post(connection.Config().Host, "text/plain", strings.NewReader("x")) //nolint:bodyclose // refused
	w.g.Expect(err).To(HaveOccurred())
	w.g.Expect(metric(t, registry, "capstan_cluster_refused_requests_total", "write")).To(BeEquivalentTo(1))

	w.manager.Release(w.clusterName("prod"), "test")
	w.g.Expect(w.hub.Delete(t.Context(), w.newCluster("prod"))).To(Succeed())
	w.g.Eventually(func() float64 { return metric(t, registry, "capstan_cluster_state", name, "Ready") }).Should(BeEquivalentTo(-1), "no series outlives its cluster")
	stopOther()
	stop()
	families, err := registry.Gather()
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(families).To(BeEmpty())
}

// metric is the value (or count) of a series with the given label values; -1 if
// there is none.
func metric(t *testing.T, registerer prometheus.Registerer, name string, labels ...string) float64 {
	t.Helper()
	families, err := registerer.(*prometheus.Registry).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			var values []string
			for _, l := range m.GetLabel() {
				values = append(values, l.GetValue())
			}
			if strings.Join(values, ",") != strings.Join(labels, ",") {
				continue
			}
			switch {
			case m.GetHistogram() != nil:
				return float64(m.GetHistogram().GetSampleCount())
			case m.GetCounter() != nil:
				return m.GetCounter().GetValue()
			}
			return m.GetGauge().GetValue()
		}
	}
	return -1
}
