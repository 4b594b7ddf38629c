package clusters_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/internal/egress"
	"github.com/capstan-hub/capstan/internal/egress/egresstest"
)

// behind is a made-up host: only the proxy of a test knows where it is.
const behind = "prod.made-up.example.com:6443"

// kubeconfigBehind is a kubeconfig of the workload cluster with the made-up host.
func (w *world) kubeconfigBehind(edit func(*clientcmdapi.Cluster)) []byte {
	w.t.Helper()
	file, err := clientcmd.Load(w.kubeconfig("https://" + behind))
	w.g.Expect(err).NotTo(HaveOccurred())
	for _, c := range file.Clusters {
		c.TLSServerName = "127.0.0.1" // The name in the certificate of the API server.
		if edit != nil {
			edit(c)
		}
	}
	raw, err := clientcmd.Write(*file)
	w.g.Expect(err).NotTo(HaveOccurred())
	return raw
}

// TestThroughAProxy: a cluster that only a proxy reaches is connected to and watched through it. When the
// proxy fails, the ClusterConnection names the proxy, without its credentials, and the watch resumes
// afterwards.
func TestThroughAProxy(t *testing.T) {
	t.Parallel()
	server := strings.Trim(strings.TrimPrefix(workload.Get(t).Config().Host, "https:"), "/")
	between := egresstest.Start(t, map[string]string{behind: server})
	between.RequireUser("robot:canary")
	file := filepath.Join(t.TempDir(), "credentials")
	NewWithT(t).Expect(os.WriteFile(file, []byte("robot:canary-wrong"), 0o600)).To(Succeed())
	proxy, err := egress.New(egress.Options{URL: between.URL, CredentialsFile: file, Flag: "cluster-proxy"})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	w := newWorld(t, func(o *clusters.Options) { o.Proxy, o.AllowLoopback = proxy, false })
	w.start()

	w.createCluster("prod")
	w.secret("prod-kubeconfig", "value", w.kubeconfigBehind(nil))
	w.manager.Demand(w.clusterName("prod"), "test")
	w.reaches("prod", capstanv1.ConnectionUnreachable, clusters.ReasonProbesFailed)
	shown := w.shows("cluster.prod", capstanv1.ConnectionUnreachable, clusters.ReasonProbesFailed)
	w.g.Expect(shown.Status.Message).To(And(
		ContainSubstring("the proxy "+between.URL+" answers 407 Proxy Authentication Required: give valid credentials in the file of --cluster-proxy-credentials-file"),
		Not(ContainSubstring("canary"))))

	w.g.Expect(os.WriteFile(file, []byte("robot:canary"), 0o600)).To(Succeed())
	w.reaches("prod", capstanv1.ConnectionReady, clusters.ReasonConnected)
	connection, err := w.manager.Connection(w.clusterName("prod"))
	w.g.Expect(err).NotTo(HaveOccurred())
	w.change("proxied-1.0")
	store, _ := w.follow(connection)
	w.sees(store, "proxied-1.0")
	w.change("proxied-1.1")
	w.sees(store, "proxied-1.1")
	w.g.Expect(between.Targets()).To(HaveEach(behind))

	between.Answer(503)
	between.Cut()
	w.reaches("prod", capstanv1.ConnectionUnreachable, clusters.ReasonProbesFailed)
	w.g.Eventually(func() string {
		s, _ := w.manager.Snapshot(w.clusterName("prod"))
		return s.Message
	}).Should(ContainSubstring("the proxy " + between.URL + " cannot connect to " + behind + ": it answers 503"))
	w.change("proxied-1.2")
	between.Answer(0)
	w.reaches("prod", capstanv1.ConnectionReady, clusters.ReasonConnected)
	w.sees(store, "proxied-1.2")

	between.Stop()
	w.reaches("prod", capstanv1.ConnectionUnreachable, clusters.ReasonProbesFailed)
	w.g.Eventually(func() string {
		object, err := w.shown("cluster.prod")
		w.g.Expect(err).NotTo(HaveOccurred())
		return object.Status.Message
	}).Should(ContainSubstring("the proxy " + between.URL + " cannot be reached: dial: connect: connection refused; check --cluster-proxy"))
	w.g.Expect(w.logs.String()).NotTo(ContainSubstring("canary"))
}

// TestATenantNamesNoProxy: with and without a proxy of the administrator.
func TestATenantNamesNoProxy(t *testing.T) {
	t.Parallel()
	between := egresstest.Start(t, nil)
	w := newWorld(t, nil)
	w.start()
	w.createCluster("prod")
	w.secret("prod-kubeconfig", "value", w.kubeconfigBehind(func(c *clientcmdapi.Cluster) { c.ProxyURL = between.URL }))
	w.manager.Demand(w.clusterName("prod"), "test")
	refused := w.reaches("prod", capstanv1.ConnectionAuthFailed, clusters.ReasonKubeconfigRefused)
	w.g.Expect(refused.Message).To(ContainSubstring("the kubeconfig's proxy-url is not allowed: only the administrator names a proxy, by the hub's flag --cluster-proxy"))
	w.g.Expect(between.Targets()).To(BeEmpty())
}
