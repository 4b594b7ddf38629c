package claim_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"

	"github.com/capstan-hub/capstan/hub/claim"
	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/playground/leaks"
)

var management = controlplane.Share()

func TestMain(m *testing.M) {
	SetDefaultEventuallyTimeout(2 * time.Minute)
	os.Exit(leaks.Main(func() int { return controlplane.StopShared(m.Run(), os.Stderr, management) }))
}

// lease of the hubs in these tests.
const lease = 2 * time.Second

const allLease = "capstan-hub"

func leaseOf(hub string) string { return allLease + "-" + hub }

// place is a namespace with Leases.
type place struct {
	t         *testing.T
	g         *WithT
	client    kubernetes.Interface
	namespace string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{t: t, g: NewWithT(t)}
	config := management.Get(t).Config()
	config.QPS = -1
	var err error
	p.client, err = kubernetes.NewForConfig(config)
	p.g.Expect(err).NotTo(HaveOccurred())
	namespace, err := p.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "hubs-"}}, metav1.CreateOptions{})
	p.g.Expect(err).NotTo(HaveOccurred())
	p.namespace = namespace.Name
	return p
}

func (p *place) leaseLock(name, identity string) *resourcelock.LeaseLock {
	return &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: name}, Client: p.client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}
}

// replica is a replica of a hub.
type replica struct {
	resourcelock.Interface

	mu             sync.Mutex
	lockedReported []string
	// lockedLost counts the calls of Options.Lost.
	lockedLost int
}

func (p *place) replica(hub, identity string, namespaces ...string) *replica {
	r := &replica{}
	own := p.leaseLock(leaseOf(hub), identity)
	r.Interface = claim.New(own, own, claim.Options{
		Hub: hub, AllLease: allLease, Lease: lease, Namespaces: namespaces, DashboardURL: "https://" + hub + ".example.com",
		Report: func(why error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if why == nil {
				r.lockedReported = append(r.lockedReported, "")
				return
			}
			r.lockedReported = append(r.lockedReported, why.Error())
		},
		Lost: func(*claim.Conflict) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.lockedLost++
		},
		Clock: clock.RealClock{},
	})
	return r
}

func (r *replica) lost() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lockedLost
}

func (r *replica) reports() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{}, r.lockedReported...)
}

// acquire writes the lease, as the election does when it is free, or held by the replica.
func acquire(ctx context.Context, l resourcelock.Interface) error {
	record := resourcelock.LeaderElectionRecord{
		HolderIdentity: l.Identity(), LeaseDurationSeconds: int(lease / time.Second), RenewTime: metav1.Now(), AcquireTime: metav1.Now(),
	}
	_, _, err := l.Get(ctx)
	if apierrors.IsNotFound(err) {
		return l.Create(ctx, record)
	}
	if err != nil {
		return err
	}
	return l.Update(ctx, record)
}

// pause is what a replica does meanwhile.
func pause(d time.Duration) { <-clock.RealClock{}.After(d) }

func release(ctx context.Context, l resourcelock.Interface) error {
	if _, _, err := l.Get(ctx); err != nil {
		return err
	}
	return l.Update(ctx, resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1, RenewTime: metav1.Now(), AcquireTime: metav1.Now()})
}

// acquired tries to acquire until it does: on a busy machine a request may take longer than the part of the lease that it has.
func (p *place) acquired(l resourcelock.Interface) {
	p.t.Helper()
	p.g.Eventually(func() error { return acquire(p.t.Context(), l) }).Should(Succeed())
}

// refused tries to acquire for a moment, and expects that this fails.
func (p *place) refused(l resourcelock.Interface) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Second)
	defer cancel()
	p.g.Expect(acquire(ctx, l)).NotTo(Succeed())
}

func (p *place) hubs() []claim.Hub {
	p.t.Helper()
	hubs, err := claim.Hubs(p.t.Context(), p.client.CoordinationV1().Leases(p.namespace))
	p.g.Expect(err).NotTo(HaveOccurred())
	return hubs
}

// TestClaimedTwice: the second hub says which namespace is served by which hub, and is not elected, until the leader of
// the first one has ended, in order or not.
func TestClaimedTwice(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(context.Context, resourcelock.Interface) error{
		"released": release,
		"killed":   func(context.Context, resourcelock.Interface) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			east, west := p.replica("east", "e1", "a", "b"), p.replica("west", "w1", "b", "c")
			p.acquired(east)
			p.g.Expect(p.hubs()).To(Equal([]claim.Hub{{Name: "east", Namespaces: []string{"a", "b"}, Dashboard: "https://east.example.com"}}))

			quiet := time.Now() // The standby sees the first hub for the first time after this.
			p.refused(west)
			p.g.Expect(west.reports()).To(ConsistOf(fmt.Sprintf("namespace b is served by hub east (Lease %s/capstan-hub-east): this hub does not act until b is in --namespace of one hub only", p.namespace)))
			_, err := p.client.CoordinationV1().Leases(p.namespace).Get(t.Context(), leaseOf("west"), metav1.GetOptions{})
			p.g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "it does not hold its own lease")

			if name == "released" {
				quiet = time.Now()
			}
			p.g.Expect(end(t.Context(), east)).To(Succeed())
			p.acquired(west)
			p.g.Expect(time.Since(quiet)).To(BeNumerically(">", lease-500*time.Millisecond), "a standby of the first hub could lead again")
			p.g.Expect(west.reports()).To(HaveLen(2))
			p.g.Expect(p.hubs()).To(ContainElement(claim.Hub{Name: "west", Namespaces: []string{"b", "c"}, Dashboard: "https://west.example.com"}))
			if name == "released" {
				p.g.Expect(p.hubs()).To(HaveLen(1), "the first hub has ended")
			}
			p.refused(p.replica("east", "e2", "a", "b"))
		})
	}
}

// user is the one of withRights.
func (p *place) user() string { return "hub-of-" + p.namespace }

// as returns the client of a user.
func (p *place) as(user string) kubernetes.Interface {
	p.t.Helper()
	config := rest.CopyConfig(management.Get(p.t).Config())
	config.QPS, config.Impersonate = -1, rest.ImpersonationConfig{UserName: user}
	client, err := kubernetes.NewForConfig(config)
	p.g.Expect(err).NotTo(HaveOccurred())
	return client
}

// withRights makes the replicas that follow use the rights of the chart for hubs of these names and namespaces.
func (p *place) withRights(names ...string) {
	p.t.Helper()
	p.grant(names...)
	user := p.user()
	_, err := p.client.RbacV1().RoleBindings(p.namespace).Create(p.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "hub"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "hub"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	p.g.Expect(err).NotTo(HaveOccurred())
	p.client = p.as(user)
	p.g.Eventually(func() error {
		_, err := p.client.CoordinationV1().Leases(p.namespace).List(p.t.Context(), metav1.ListOptions{})
		return err
	}).Should(Succeed())
}

// grant writes the Role of withRights.
func (p *place) grant(names ...string) {
	p.t.Helper()
	leases := func(verbs []string, names ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: verbs, ResourceNames: names}
	}
	role, roles := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "hub"},
		Rules: []rbacv1.PolicyRule{
			leases([]string{"create"}), leases([]string{"list"}), leases([]string{"get", "update"}, allLease), leases([]string{"get", "update", "delete"}, names...),
		},
	}, p.client.RbacV1().Roles(p.namespace)
	_, err := roles.Update(p.t.Context(), role, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = roles.Create(p.t.Context(), role, metav1.CreateOptions{})
	}
	p.g.Expect(err).NotTo(HaveOccurred())
}

// TestRemovedHub: after an upgrade without the second hub, the rights do not name its Lease any more. The first hub gets its
// namespace when the Lease has not changed for its duration.
func TestRemovedHub(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	west := p.replica("west", "w1", "b")
	p.acquired(west)
	p.withRights("capstan-hub-east", "capstan-namespace-a", "capstan-namespace-b")
	east := p.replica("east", "e1", "a", "b")
	p.refused(east)
	p.g.Expect(east.reports()).To(ConsistOf(ContainSubstring("namespace b is served by hub west")))
	p.acquired(east)
	p.g.Expect(p.hubs()).To(ContainElement(claim.Hub{Name: "east", Namespaces: []string{"a", "b"}, Dashboard: "https://east.example.com"}))
}

// TestNotPermitted: a hub that may not list Leases says so once, and which right it needs, until it may.
func TestNotPermitted(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	admin := p.client
	p.client = p.as(p.user())
	east := p.replica("east", "e1", "a")
	for range 3 {
		p.refused(east)
	}
	p.g.Expect(east.reports()).To(ConsistOf(ContainSubstring("until it may list Leases in namespace " + p.namespace + ": leases.coordination.k8s.io is forbidden")))
	p.client = admin
	p.withRights("capstan-hub-east", "capstan-namespace-a")
	p.acquired(east)
	p.g.Expect(east.reports()).To(HaveLen(2))
	p.g.Expect(east.reports()[1]).To(BeEmpty())
}

// TestClaimRefused: a hub that may not write a claim says so once, and which right it needs. It is not elected again and again
// meanwhile: another hub gets a namespace that it had. When it may, it is elected.
func TestClaimRefused(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	admin := p.client
	former := p.replica("east", "e1", "a", "b")
	p.acquired(former)
	p.g.Expect(release(t.Context(), former)).To(Succeed())
	west := p.replica("west", "w1", "a")
	p.withRights("capstan-hub-east", "capstan-namespace-a")
	east := p.replica("east", "e2", "a", "b")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			_ = acquire(ctx, east)
			pause(lease / 10)
		}
	}()
	p.g.Eventually(east.reports).Should(ConsistOf(HavePrefix(
		"namespace b cannot be claimed: this hub does not act until it may create, get and update Lease " + p.namespace + "/capstan-namespace-b: ")))
	within, done := context.WithTimeout(ctx, 4*lease)
	defer done()
	p.g.Expect(acquire(within, west)).To(Succeed())
	cancel()
	<-ended
	p.g.Expect(release(t.Context(), west)).To(Succeed())

	p.client = admin
	p.grant("capstan-hub-east", "capstan-namespace-a", "capstan-namespace-b")
	p.acquired(east)
	p.g.Expect(east.reports()[len(east.reports())-1]).To(BeEmpty(), "it is over")
}

// TestLeaderMayNotClaim: a leader that may not write a claim that a user has emptied does not go on.
func TestLeaderMayNotClaim(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	admin := p.client
	p.withRights("capstan-hub-east", "capstan-namespace-a", "capstan-namespace-b")
	east := p.replica("east", "e1", "a", "b")
	p.acquired(east)
	p.client = admin
	p.grant("capstan-hub-east", "capstan-namespace-a")
	_, err := admin.CoordinationV1().Leases(p.namespace).Patch(t.Context(), "capstan-namespace-b", types.MergePatchType, []byte(`{"spec":{"holderIdentity":null}}`), metav1.PatchOptions{})
	p.g.Expect(err).NotTo(HaveOccurred())
	p.g.Eventually(func() error { return acquire(t.Context(), east) }, 3*claim.CheckEvery, lease/10).Should(MatchError(ContainSubstring("namespace b cannot be claimed")))
	p.g.Consistently(func() error { return acquire(t.Context(), east) }, lease/2, lease/10).ShouldNot(Succeed())
	p.g.Expect(east.reports()).To(ConsistOf(ContainSubstring("namespace b cannot be claimed")))
}

// TestRemovedLabels: neither a hub nor its claim is overlooked because a user has removed the labels of their Leases.
func TestRemovedLabels(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.acquired(p.replica("east", "e1", "a"))
	leases := p.client.CoordinationV1().Leases(p.namespace)
	for _, name := range []string{leaseOf("east"), "capstan-namespace-a"} {
		_, err := leases.Patch(t.Context(), name, types.JSONPatchType, []byte(`[{"op":"remove","path":"/metadata/labels"}]`), metav1.PatchOptions{})
		p.g.Expect(err).NotTo(HaveOccurred())
	}
	west := p.replica("west", "w1", "a")
	p.refused(west)
	p.g.Expect(west.reports()).To(ConsistOf(ContainSubstring("namespace a is served by hub east")))
	p.acquired(west)
}

// TestMoved: a namespace goes to another hub when the first one is elected without it.
func TestMoved(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	east, west := p.replica("east", "e1", "a", "b"), p.replica("west", "w1", "c")
	p.acquired(east)
	p.acquired(west)

	p.g.Expect(release(t.Context(), west)).To(Succeed())
	west = p.replica("west", "w2", "b", "c")
	p.refused(west)

	p.g.Expect(release(t.Context(), east)).To(Succeed())
	p.acquired(p.replica("east", "e2", "a"))
	p.acquired(west)
	p.g.Expect(p.hubs()).To(HaveExactElements(
		HaveField("Namespaces", []string{"a"}), HaveField("Namespaces", []string{"b", "c"})))
}

// TestAllNamespaces: a hub that serves all namespaces has no claims; one with claims gives way to it, also while it leads.
func TestAllNamespaces(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	all, east := p.leaseLock(allLease, "all"), p.replica("east", "e1", "a")
	p.acquired(all)
	p.refused(east)
	p.g.Expect(east.reports()).To(ConsistOf(ContainSubstring("a hub without --hub-name leads (Lease " + p.namespace + "/capstan-hub) and may serve all namespaces")))

	released := time.Now()
	p.g.Expect(release(t.Context(), all)).To(Succeed())
	p.acquired(east)
	p.g.Expect(time.Since(released)).To(BeNumerically(">", lease-500*time.Millisecond), "a standby of the hub of all could lead")
	p.g.Expect(east.reports()).To(HaveLen(2))

	p.acquired(all)
	var conflict *claim.Conflict
	p.g.Eventually(func() error {
		p.acquired(all)
		return acquire(t.Context(), east)
	}, lease, 100*time.Millisecond).Should(MatchError(ContainSubstring("may serve all namespaces")))
	p.g.Expect(errors.As(acquire(t.Context(), east), &conflict)).To(BeTrue())
	p.g.Expect(east.lost()).To(BeNumerically(">", 0), "it ends at once")
}

// TestConflictThatEnds: a replica that stands by reports a conflict only while there is one, also when another replica of
// its hub leads meanwhile.
func TestConflictThatEnds(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	west, first, second := p.replica("west", "w1", "a"), p.replica("east", "e1", "a"), p.replica("east", "e2", "a")
	p.acquired(west)
	p.refused(first)
	p.g.Expect(first.reports()).To(HaveLen(1))
	p.g.Expect(release(t.Context(), west)).To(Succeed())
	p.acquired(second)
	p.g.Eventually(func() []string {
		p.acquired(second)
		_, _, err := first.Get(t.Context())
		p.g.Expect(err).NotTo(HaveOccurred())
		return first.reports()
	}).Should(HaveLen(2))
	p.g.Expect(first.reports()[1]).To(BeEmpty())
}

// TestPaused: a leader whose process was paused for longer than its lease does not go on with a namespace that another
// hub has claimed meanwhile.
func TestPaused(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	east, west := p.replica("east", "e1", "a"), p.replica("west", "w1", "a")
	p.acquired(east)
	p.acquired(west)
	p.g.Expect(acquire(t.Context(), east)).To(MatchError(ContainSubstring("namespace a is served by hub west")))
	p.g.Expect(east.lost()).To(Equal(1))
}

// TestDeletedLease: a leader whose Lease a user has deleted keeps it, unless another hub has claimed its namespaces.
func TestDeletedLease(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	east, west := p.replica("east", "e1", "a"), p.replica("west", "w1", "a")
	remove := func() {
		p.g.Expect(p.client.CoordinationV1().Leases(p.namespace).Delete(t.Context(), leaseOf("east"), metav1.DeleteOptions{})).To(Succeed())
	}
	p.acquired(east)
	remove()
	p.acquired(east)
	remove()
	p.acquired(west)
	p.g.Expect(acquire(t.Context(), east)).To(MatchError(ContainSubstring("namespace a is served by hub west")))
	p.g.Expect(east.lost()).To(Equal(1))
}

// TestDeletedClaim: the leader writes a claim again that a user has deleted.
func TestDeletedClaim(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	east := p.replica("east", "e1", "a")
	p.acquired(east)
	p.g.Expect(p.client.CoordinationV1().Leases(p.namespace).Delete(t.Context(), "capstan-namespace-a", metav1.DeleteOptions{})).To(Succeed())
	p.g.Eventually(func() []claim.Hub {
		p.acquired(east)
		return p.hubs()
	}, 3*claim.CheckEvery, 200*time.Millisecond).Should(HaveLen(1))
}

// TestNeverTwo: hubs with namespaces in common are elected, release their leases, or end without that. Never have two
// of them the same namespace at the same time.
func TestNeverTwo(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	enough := time.Now().Add(30 * time.Second)
	lists := [][]string{{"a", "b"}, {"b", "c"}, {"c", "a"}, {"d", "a"}}
	var mu sync.Mutex
	servedBy, terms := map[string]string{}, map[string]int{}
	var hubs sync.WaitGroup
	for i, namespaces := range lists {
		hub := fmt.Sprintf("h%d", i)
		hubs.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				r := p.replica(hub, fmt.Sprintf("%s-%d", hub, n), namespaces...)
				if acquire(ctx, r) != nil {
					continue
				}
				mu.Lock()
				for _, namespace := range namespaces {
					if other := servedBy[namespace]; other != "" {
						t.Errorf("namespace %s is served by %s and %s", namespace, other, hub)
					}
					servedBy[namespace] = hub
				}
				if terms[hub]++; len(terms) == len(lists) && time.Now().After(enough) {
					cancel()
				}
				mu.Unlock()
				pause(rand.N(50 * time.Millisecond)) // Its work.
				mu.Lock()
				for _, namespace := range namespaces {
					delete(servedBy, namespace)
				}
				mu.Unlock()
				if rand.N(5) > 0 { // Else it ends and another replica of it waits for the lease.
					_ = release(context.WithoutCancel(ctx), r)
				} else {
					pause(lease)
				}
				pause(rand.N(4 * lease)) // Longer than a waiting hub waits for a standby of this one.
			}
		})
	}
	hubs.Wait()
	for i := range lists {
		p.g.Expect(terms).To(HaveKeyWithValue(fmt.Sprintf("h%d", i), BeNumerically(">", 0)), "each hub is elected at some time: %v", terms)
	}
	t.Logf("terms: %v", terms)
}
