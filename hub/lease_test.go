package hub_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/hub/claim"
	"github.com/capstan-hub/capstan/playground/controlplane"
)

// elected starts a hub and waits until it leads. It returns what the hub's Start returns.
func elected(t *testing.T, config *rest.Config, ns string, lease time.Duration, names ...string) (ended <-chan error, cancel context.CancelFunc) {
	t.Helper()
	g := NewWithT(t)
	h, err := hub.New(hub.Options{
		Config: config, Registerer: prometheus.NewRegistry(), Logger: logr.Discard(), CloneDir: t.TempDir(),
		LeaderElect: true, WarmStandby: true, LeaderElectionNamespace: ns, LeaderElectionLease: lease, Namespaces: []string{ns},
		Eventing: hub.Eventing{Name: strings.Join(names, "")},
	})
	g.Expect(err).NotTo(HaveOccurred())
	ends := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go func() { ends <- h.Start(ctx) }()
	g.Eventually(h.Elected(), max(2*time.Minute, 2*lease)).Should(BeClosed())
	return ends, cancel
}

func leaseIn(t *testing.T, ns string) (client.Client, func(Gomega) *coordinationv1.Lease) {
	t.Helper()
	g := NewWithT(t)
	admin, err := client.New(withAWS.Get(t).Config(), client.Options{Scheme: hub.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})).To(Succeed())
	return admin, func(g Gomega) *coordinationv1.Lease {
		var l coordinationv1.Lease
		g.Expect(admin.Get(context.WithoutCancel(t.Context()), client.ObjectKey{Namespace: ns, Name: hub.LeaseName}, &l)).To(Succeed())
		return &l
	}
}

// A leader that finds that another process has the lease ends at once, and leaves the lease to it.
func TestALeaseOfAnother(t *testing.T) {
	t.Parallel()
	const soon = 15 * time.Second // client-go tries for 20 s to get it back.
	g := NewWithT(t)
	admin, read := leaseIn(t, "of-another")
	ended, _ := elected(t, withAWS.Get(t).Config(), "of-another", 30*time.Second)
	g.Eventually(func(g Gomega) {
		l := read(g)
		l.Spec.HolderIdentity = ptr.To("another")
		g.Expect(admin.Update(t.Context(), l)).To(Succeed())
	}).WithTimeout(time.Minute).Should(Succeed())
	g.Eventually(ended, soon).Should(Receive(MatchError(ContainSubstring("leader election lost: another has the lease of-another/" + hub.LeaseName))))
	g.Consistently(func(g Gomega) { g.Expect(read(g).Spec.HolderIdentity).To(HaveValue(Equal("another"))) }).Should(Succeed())
}

// A hub that waited until another hub did not serve its namespace any more, for longer than a lease, leads as long as any other.
func TestALeaderThatWaitedForANamespace(t *testing.T) {
	t.Parallel()
	const lease = 6 * time.Second
	g := NewWithT(t)
	admin, _ := leaseIn(t, "waited")
	for name, holder := range map[string]string{"capstan-hub-west": "west-1", "capstan-namespace-waited": "west"} {
		now := metav1.NewMicroTime(time.Now())
		g.Expect(admin.Create(t.Context(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "waited", Name: name, Labels: map[string]string{claim.HubLabel: "west"}},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: ptr.To(int32(lease / time.Second)), RenewTime: &now, AcquireTime: &now},
		})).To(Succeed())
	}
	began := time.Now()
	ended, _ := elected(t, withAWS.Get(t).Config(), "waited", lease, "east")
	g.Expect(time.Since(began)).To(BeNumerically(">", lease-time.Second))
	g.Consistently(ended, lease/2).ShouldNot(Receive())
}

// A leader that ends in order gives its lease back.
func TestAnOrderlyEndGivesTheLeaseBack(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	_, read := leaseIn(t, "orderly")
	ended, cancel := elected(t, withAWS.Get(t).Config(), "orderly", 30*time.Second)
	cancel()
	g.Eventually(ended, 10*time.Second).Should(Receive(Succeed()))
	g.Expect(read(g).Spec.HolderIdentity).To(HaveValue(BeEmpty()))
}

// A leader cannot reach the API server until it has given up. It gives its lease back when it can again: the next leader need not wait
// until it ends, which a late renewal may have moved on.
func TestALostLeaseIsGivenBack(t *testing.T) {
	t.Parallel()
	const lease, givenUp, released = 24 * time.Second, 17500 * time.Millisecond, 10 * time.Second
	g := NewWithT(t)
	plane, ns := withAWS.Get(t), "given-back"
	_, read := leaseIn(t, ns)
	proxy, err := controlplane.NewProxy(plane.Config().Host)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = proxy.Close() })
	config := rest.CopyConfig(plane.Config())
	config.Host = proxy.URL()
	ended, _ := elected(t, config, ns, lease)
	proxy.Set(controlplane.Swallow)
	// The deadline of a renewal is 16 s. The process tries to give the lease back until 22.4 s after the last one.
	g.Consistently(ended, givenUp).ShouldNot(Receive())
	proxy.Set(controlplane.Pass)
	g.Eventually(func(g Gomega) { g.Expect(read(g).Spec.HolderIdentity).To(HaveValue(BeEmpty())) }, released).Should(Succeed())
	g.Eventually(ended, lease).Should(Receive(MatchError(ContainSubstring("leader election lost"))))
}

// A hub whose caches are not synced ends with its context.
func TestEndsBeforeItsCachesAreSynced(t *testing.T) {
	t.Parallel()
	const soon, patience = 15 * time.Second, 2 * time.Minute
	g := NewWithT(t)
	proxy, err := controlplane.NewProxy(withAWS.Get(t).Config().Host)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = proxy.Close() })
	config := rest.CopyConfig(withAWS.Get(t).Config())
	config.Host = proxy.URL()
	h, err := hub.New(hub.Options{
		Config: config, Registerer: prometheus.NewRegistry(), Logger: logr.Discard(), CloneDir: t.TempDir(), Namespaces: []string{"default"},
	})
	g.Expect(err).NotTo(HaveOccurred())
	proxy.Set(controlplane.Refuse)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- h.Start(ctx) }()
	g.Consistently(ended, time.Second).ShouldNot(Receive())
	cancel()
	g.Eventually(ended, soon).Should(Receive(Succeed()))
	proxy.Set(controlplane.Pass) // What a process would have left behind ends.
	g.Eventually(h.Elected(), patience).Should(BeClosed())
}
