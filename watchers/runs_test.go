package watchers_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/watchers"
)

// TestWhatWentBetweenRuns: an application that was deleted while nothing watched is
// not taken for what it was, though the index still holds it.
func TestWhatWentBetweenRuns(t *testing.T) {
	w := newWorld(t, nil)
	proxy, err := controlplane.NewProxy(home.get(t).Config().Host)
	w.g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = proxy.Close() })
	raw, err := home.get(t).Kubeconfig(proxy.URL())
	w.g.Expect(err).NotTo(HaveOccurred())
	app := w.release(w.cluster("prod", raw), "web")
	u := w.createRelease(w.hub, w.namespace, "web")
	w.deploy(w.hub, u, "1.0.0")
	w.use("shop", app)
	w.g.Eventually(w.sight(app)).Should(Equal(ready("1.0.0")))

	proxy.Set(controlplane.Swallow) // The deletion is not told.
	w.g.Expect(w.hub.Delete(t.Context(), u)).To(Succeed())
	raw, err = home.get(t).Kubeconfig("") // The same cluster at another address: a new epoch.
	w.g.Expect(err).NotTo(HaveOccurred())
	w.kubeconfig("prod", raw)
	w.g.Eventually(w.sight(app)).Should(Equal(absent))
}

// rebuilt says of every cluster that it has another UID.
type rebuilt struct {
	*clusters.Manager
	uid atomic.Value
}

func (r *rebuilt) Snapshot(name multicluster.ClusterName) (clusters.Snapshot, bool) {
	s, known := r.Manager.Snapshot(name)
	if uid, ok := r.uid.Load().(string); ok && s.ClusterUID != "" {
		s.ClusterUID = uid
	}
	return s, known
}

// TestClusterRebuiltInPlace: another cluster answers at the same address, with the
// same CA. The connection stays, and all is listed anew, without trouble.
func TestClusterRebuiltInPlace(t *testing.T) {
	r := &rebuilt{}
	w := newWorld(t, func(o *watchers.Options) {
		manager, ok := o.Clusters.(*clusters.Manager)
		NewWithT(t).Expect(ok).To(BeTrue())
		r.Manager, o.Clusters = manager, r
		o.Timings.TransientRetry = patience // It is not waited for.
	})
	app := w.release(w.admin("prod", home), "web")
	u := w.createRelease(w.hub, w.namespace, "web")
	w.deploy(w.hub, u, "1.0.0")
	w.use("shop", app)
	w.g.Eventually(w.sight(app)).Should(Equal(ready("1.0.0")))
	for i := range 5 { // The loop and the keeper race.
		lists := w.meter("capstan_lists_total")
		r.uid.Store(fmt.Sprintf("another-%d", i))
		w.g.Eventually(func() float64 { return w.meter("capstan_lists_total") }).Should(BeNumerically(">", lists))
		w.g.Eventually(w.sight(app)).Should(Equal(ready("1.0.0")))
	}
	w.deploy(w.hub, u, "1.0.1")
	w.g.Eventually(w.sight(app)).Should(Equal(ready("1.0.1")))
}
