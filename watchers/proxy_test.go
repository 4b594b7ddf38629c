package watchers_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/capstan-hub/capstan/internal/egress"
	"github.com/capstan-hub/capstan/internal/egress/egresstest"
)

// TestIndexThroughAProxy: the index has the observations of a cluster that only a proxy reaches. They are
// stale while the proxy is down, and the watch resumes without a list.
func TestIndexThroughAProxy(t *testing.T) {
	t.Parallel()
	const made = "prod.made-up.example.com:6443"
	between := egresstest.Start(t, map[string]string{made: strings.Trim(strings.TrimPrefix(home.Get(t).Config().Host, "https:"), "/")})
	proxy, err := egress.New(egress.Options{URL: between.URL, Flag: "cluster-proxy"})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	w := newWorldThrough(t, proxy, nil)
	raw, err := home.Get(t).Kubeconfig("https://" + made)
	w.g.Expect(err).NotTo(HaveOccurred())
	file, err := clientcmd.Load(raw)
	w.g.Expect(err).NotTo(HaveOccurred())
	for _, c := range file.Clusters {
		c.TLSServerName = "127.0.0.1" // The name in the certificate of the API server.
	}
	raw, err = clientcmd.Write(*file)
	w.g.Expect(err).NotTo(HaveOccurred())
	app := w.release(w.cluster("prod", raw), "web")
	u := w.createRelease(w.hub, w.namespace, "web")
	w.deploy(w.hub, u, "1.0.0")
	w.use("shop", app)
	w.g.Eventually(w.sight(app)).Should(Equal(ready("1.0.0")))
	w.deploy(w.hub, u, "1.0.1")
	w.g.Eventually(w.sight(app)).Should(Equal(ready("1.0.1")))
	lists := w.meter("capstan_lists_total")

	between.Answer(503)
	between.Cut()
	w.g.Eventually(func() bool { return w.sight(app)().Fresh }).Should(BeFalse())
	w.deploy(w.hub, u, "1.0.2")
	between.Answer(0)
	w.g.Eventually(w.sight(app)).Should(Equal(ready("1.0.2")))
	w.g.Expect(w.meter("capstan_lists_total")).To(Equal(lists))
	w.g.Expect(between.Targets()).To(HaveEach(made))
}
