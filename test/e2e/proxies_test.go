package e2e

import (
	"net/url"
	"strings"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/internal/egress/egresstest"
	"github.com/capstan-hub/capstan/playground/git"
)

const (
	// kiosk is an application whose Pipeline has the environments dev and prod.
	kiosk = "kiosk"
	// gitBehind is the host of Gitea that only a proxy resolves. ".test" is reserved: no name server
	// has it.
	gitBehind = "git.behind.test"
	// absence is how long is waited for what must not happen.
	absence = 3 * time.Second
)

// clusterBehind returns the host of a workload cluster's API server that only a proxy resolves.
func clusterBehind(cluster string) string { return cluster + ".behind.test" }

// revisionGoesThroughProxies: Gitea and the workload clusters have names that only a proxy each
// resolves, and certificates for these names. The hub may not connect to loopback, so it reaches
// nothing directly. It promotes with both proxies, and with one less it does not. The proxies that
// tenants name, in a kubeconfig and in the Secret of a repository, are refused and get no request.
func (w *world) revisionGoesThroughProxies() {
	const revision = "1.1.0"
	servers, clusters := map[string]string{}, []string{}
	for _, cluster := range environments {
		at := clusterBehind(cluster) + ":6443"
		servers[at] = address(w, w.workloads[cluster].plane.Config().Host)
		clusters = append(clusters, at)
		w.moveCluster(cluster, "https://"+at)
	}
	gitProxy := egresstest.Start(w.T, map[string]string{gitBehind + ":443": address(w, w.gitea.URL())})
	clusterProxy := egresstest.Start(w.T, servers)
	tenants := egresstest.Start(w.T, nil)
	w.declareKiosk()
	w.declareTenant(tenants.URL)
	moved := expected{kiosk, prod, revision}

	w.Log("without proxies, no cluster is reached")
	w.startHub()
	for _, cluster := range environments {
		w.connection(cluster, capstanv1.ConnectionUnreachable, "lookup "+clusterBehind(cluster))
	}
	w.stopHub()

	w.Log("with the proxy of clusters, the clusters are reached, and Git is not")
	w.startHub("--cluster-proxy=" + clusterProxy.URL)
	for _, cluster := range environments {
		w.connection(cluster, capstanv1.ConnectionReady, "")
	}
	for _, env := range []string{dev, prod} {
		w.g.Eventually(func() error { return w.agreed(kiosk, env, firstRevision) }).Should(Succeed())
	}
	w.commitKiosk(dev, revision)
	w.g.Eventually(func(g Gomega) {
		g.Expect(w.promotionsOf(g, moved)).To(HaveExactElements(And(
			HaveField("Status.Phase", capstanv1.PhasePromoting), HaveField("Status.Message", ContainSubstring("lookup "+gitBehind)))), w.ledger(moved))
	}).Should(Succeed())

	w.Log("a tenant names no proxy")
	w.connection(annex, capstanv1.ConnectionAuthFailed, "the kubeconfig's proxy-url is not allowed: only the administrator names a proxy, by the hub's flag --cluster-proxy")
	tenant := expected{smuggled, prod, revision}
	w.g.Eventually(func(g Gomega) {
		g.Expect(w.promotionsOf(g, tenant)).To(HaveExactElements(And(
			HaveField("Status.Phase", capstanv1.PhaseFailed), HaveField("Status.Reason", "InvalidCredentials"),
			HaveField("Status.Message", ContainSubstring("has the key proxyURL: only the administrator names a proxy, by the hub's flag --git-proxy; remove the key")))))
	}).Should(Succeed())
	w.stopHub()
	w.g.Expect(w.pullRequestsOf(moved)).To(BeEmpty())

	w.Log("with both proxies, the revision is promoted")
	w.startHub("--cluster-proxy="+clusterProxy.URL, "--git-proxy="+gitProxy.URL)
	pr := w.open(moved)
	w.g.Expect(w.repository.Read(w.Context(), pr.Head.Ref, manifestPath(prod, kiosk))).To(Equal(kioskManifest(prod, revision)))
	w.g.Expect(w.repository.Merge(w.Context(), pr.Index)).To(Succeed())
	w.succeeded(moved, w.behind(pr.HTMLURL)) // A user behind the proxy opens it, too.
	w.g.Expect(gitProxy.Targets()).To(And(Not(BeEmpty()), HaveEach(gitBehind+":443")))
	w.g.Expect(clusterProxy.Targets()).To(And(ContainElements(clusters), HaveEach(BeElementOf(clusters))))

	w.g.Consistently(func(g Gomega) {
		g.Expect(w.pullRequestsOf(moved)).To(HaveLen(1))
		g.Expect(w.pullRequestsOf(tenant)).To(BeEmpty())
		g.Expect(tenants.Targets()).To(BeEmpty())
	}).WithTimeout(absence).Should(Succeed())
	w.stopHub()
}

// address returns the host:port of a URL.
func address(w *world, of string) string {
	w.Helper()
	u, err := url.Parse(of)
	w.g.Expect(err).NotTo(HaveOccurred())
	return u.Host
}

// behind returns the URL at which the proxy has a URL of Gitea.
func (w *world) behind(of string) string {
	return strings.Replace(of, w.gitea.URL(), "https://"+gitBehind, 1)
}

// moveCluster gives the hub another address of a cluster.
func (w *world) moveCluster(cluster, server string) {
	w.Helper()
	const validity = 8 * time.Hour
	kubeconfig, err := w.workloads[cluster].plane.TokenKubeconfig(w.Context(), server, "capstan", validity)
	w.g.Expect(err).NotTo(HaveOccurred())
	secret := &corev1.Secret{}
	w.g.Expect(w.admin.Get(w.Context(), client.ObjectKey{Namespace: fleetNamespace, Name: cluster + "-kubeconfig"}, secret)).To(Succeed())
	secret.Data["value"] = kubeconfig
	w.g.Expect(w.admin.Update(w.Context(), secret)).To(Succeed())
}

// kioskManifest returns the manifest of kiosk in a cluster.
func kioskManifest(cluster, revision string) string { return manifest(cluster, kiosk, revision) }

func (w *world) commitKiosk(cluster, revision string) {
	w.Helper()
	_, err := w.repository.Commit(w.Context(), git.Main, manifestPath(cluster, kiosk), "Release kiosk "+revision+" in "+cluster,
		func(string) string { return kioskManifest(cluster, revision) })
	w.g.Expect(err).NotTo(HaveOccurred())
}

// declareKiosk declares the application and its Pipeline, whose repository is behind the proxy.
func (w *world) declareKiosk() {
	w.Helper()
	for _, env := range []string{dev, prod} {
		w.commitKiosk(env, firstRevision)
		w.g.Eventually(func(g Gomega) { w.installed(g, kiosk, env, firstRevision) }).Should(Succeed())
	}
	w.g.Expect(w.admin.Create(w.Context(), w.kioskPipeline(kiosk, repositorySecret))).To(Succeed())
}

// kioskPipeline returns a Pipeline from dev to prod for the application, whose repository is behind
// the proxy.
func (w *world) kioskPipeline(name, secret string) *pipelinesv1.Pipeline {
	p := w.pipeline(name, helmRelease(kiosk), dev, prod)
	p.Spec.Promotion.Strategy.PullRequest.URL = w.behind(w.repository.URL())
	p.Spec.Promotion.Strategy.PullRequest.SecretRef.Name = secret
	return p
}

const (
	// smuggled is a Pipeline of kiosk whose Secret names a proxy.
	smuggled = "kiosk-smuggled"
	// annex is a Cluster whose kubeconfig names a proxy, and a Pipeline that has it.
	annex = "annex"
)

// declareTenant declares a kubeconfig and a Secret of a repository that name a proxy. Both would
// work without it.
func (w *world) declareTenant(proxy string) {
	w.Helper()
	w.g.Expect(w.admin.Create(w.Context(), &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: fleetNamespace, Name: annex},
		Spec:       clusterv1.ClusterSpec{ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "127.0.0.1", Port: 6443}},
	})).To(Succeed())
	secret := &corev1.Secret{}
	w.g.Expect(w.admin.Get(w.Context(), client.ObjectKey{Namespace: fleetNamespace, Name: dev + "-kubeconfig"}, secret)).To(Succeed())
	kubeconfig, err := clientcmd.Load(secret.Data["value"])
	w.g.Expect(err).NotTo(HaveOccurred())
	for _, c := range kubeconfig.Clusters {
		c.ProxyURL = proxy
	}
	raw, err := clientcmd.Write(*kubeconfig)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(w.admin.Create(w.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: fleetNamespace, Name: annex + "-kubeconfig", Labels: map[string]string{clusterv1.ClusterNameLabel: annex}},
		Type:       clusterv1.ClusterSecretType,
		Data:       map[string][]byte{"value": raw},
	})).To(Succeed())
	inAnnex := w.kioskPipeline(annex, repositorySecret)
	inAnnex.Spec.Environments[1].Targets = []pipelinesv1.Target{target(annex, kiosk)}
	w.g.Expect(w.admin.Create(w.Context(), inAnnex)).To(Succeed())

	credentials := &corev1.Secret{}
	w.g.Expect(w.admin.Get(w.Context(), client.ObjectKey{Namespace: appsNamespace, Name: repositorySecret}, credentials)).To(Succeed())
	named := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: appsNamespace, Name: smuggled}, Data: credentials.Data}
	named.Data["proxyURL"] = []byte(proxy)
	w.g.Expect(w.admin.Create(w.Context(), named)).To(Succeed())
	w.g.Expect(w.admin.Create(w.Context(), w.kioskPipeline(smuggled, smuggled))).To(Succeed())
}

// connection waits until the ClusterConnection has the state, with the text in its message.
func (w *world) connection(cluster string, state capstanv1.ConnectionState, text string) {
	w.Helper()
	w.g.Eventually(func(g Gomega) {
		shown := &capstanv1.ClusterConnection{}
		g.Expect(w.admin.Get(w.Context(), client.ObjectKey{Namespace: fleetNamespace, Name: "cluster." + cluster}, shown)).To(Succeed())
		g.Expect(shown.Status.State).To(Equal(state), "%s: %s; the last log lines of the hub:\n%s", cluster, shown.Status.Message, w.hub.Tail())
		g.Expect(shown.Status.Message).To(ContainSubstring(text), cluster)
	}).Should(Succeed())
}

// pullRequestsOf returns the pull requests of a promotion.
func (w *world) pullRequestsOf(p expected) []string {
	w.Helper()
	all, err := w.repository.PullRequests(w.Context())
	w.g.Expect(err).NotTo(HaveOccurred())
	var urls []string
	for _, pr := range all {
		if pr.Title == p.title() {
			urls = append(urls, pr.HTMLURL)
		}
	}
	return urls
}
