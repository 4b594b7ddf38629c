package hub_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/playground/controlplane"
)

// A leader cannot reach the API server until it has given up. It gives its lease back when it can again: the next leader need not wait
// until it ends, which a late renewal may have moved on.
func TestALostLeaseIsGivenBack(t *testing.T) {
	t.Parallel()
	const lease, givenUp, released = 24 * time.Second, 18500 * time.Millisecond, 10 * time.Second
	g := NewWithT(t)
	plane, ns := withAWS.Get(t), "given-back"
	admin, err := client.New(plane.Config(), client.Options{Scheme: hub.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})).To(Succeed())
	proxy, err := controlplane.NewProxy(plane.Config().Host)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = proxy.Close() })
	config := rest.CopyConfig(plane.Config())
	config.Host = proxy.URL()
	h, err := hub.New(hub.Options{
		Config: config, Registerer: prometheus.NewRegistry(), Logger: logr.Discard(), CloneDir: t.TempDir(),
		LeaderElect: true, WarmStandby: true, LeaderElectionNamespace: ns, LeaderElectionLease: lease, Namespaces: []string{ns},
	})
	g.Expect(err).NotTo(HaveOccurred())
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go func() { ended <- h.Start(ctx) }()
	g.Eventually(h.Elected(), lease).Should(BeClosed())
	proxy.Set(controlplane.Swallow)
	// The deadline of a renewal is 16 s, and client-go's attempt to release the lease takes 1.6 s. The process tries again for 3 s.
	g.Consistently(ended, givenUp).ShouldNot(Receive())
	proxy.Set(controlplane.Pass)
	g.Eventually(func(g Gomega) {
		var l coordinationv1.Lease
		g.Expect(admin.Get(ctx, client.ObjectKey{Namespace: ns, Name: hub.LeaseName}, &l)).To(Succeed())
		g.Expect(l.Spec.HolderIdentity).To(HaveValue(BeEmpty()))
	}, released).Should(Succeed())
	g.Eventually(ended, lease).Should(Receive(MatchError(ContainSubstring("leader election lost"))))
}
