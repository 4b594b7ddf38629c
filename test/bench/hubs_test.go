package bench

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// newNamespace creates a namespace that is not that of a fleet.
func newNamespace(t testing.TB) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"}}
	NewWithT(t).Expect(admin.Create(t.Context(), namespace)).To(Succeed())
	return namespace.Name
}

// TestSeveralHubs: three hubs share a management cluster. Each needs what it needs alone; none acts in a namespace
// of another one; and a namespace goes from one to another while promotions are under way in it.
func TestSeveralHubs(t *testing.T) {
	lease, none := leaseOf(), math.Inf(1)
	home, spare := newNamespace(t), newNamespace(t)
	var fleets []*replicas
	for range 3 {
		fleets = append(fleets, newReplicas(t, count(10, 1000), count(2, 10), lease))
	}
	g, of := NewWithT(t), fmt.Sprintf("of %d clusters × %d applications", len(fleets[0].clusters), fleets[0].traffic.applications)
	hub := func(name string, flags []string, namespaces ...string) *hubProcess {
		return startHubOf(t, kubeconfigFile, home, append(flags, "--hub-name="+name, "--namespace="+strings.Join(namespaces, ","))...)
	}
	sets := [][]string{{fleets[0].namespace, spare}, {fleets[1].namespace}, {fleets[2].namespace}}

	var hubs []*hubProcess
	var starts, memories []float64
	for i, f := range fleets {
		h := hub(fmt.Sprintf("h%d", i), f.flags, sets[i]...).leads().ready()
		starts = append(starts, time.Since(h.began).Seconds())
		f.connected()
		memories = append(memories, float64(h.cost().Resident)/mib)
		hubs = append(hubs, h)
	}
	report("a hub "+of+" that has the management cluster for itself: start until ready", starts[0], none, "s")
	report("the same, resident", memories[0], none, "MiB")
	report("the third of three such hubs: start until ready", starts[2], 1.5*starts[0], "s")
	report("the same, resident", memories[2], 1.2*memories[0], "MiB")

	t.Run("a namespace claimed twice", func(t *testing.T) {
		f := fleets[0].in(t)
		second := startHubOf(t, kubeconfigFile, home, append(f.flags, "--hub-name=second", "--namespace="+spare+","+f.namespace)...)
		second.ready()
		p := f.during(func() {
			g.Eventually(func() float64 {
				return sum(second.scrape(), "capstan_hub_namespace_conflict", map[string]string{"hub": "second"})
			}).Should(Equal(1.0))
			pause(2 * lease)
		})
		f.g.Expect(second.isLeader()).To(BeFalse())
		f.g.Expect(p.stale).To(BeEmpty())
		f.g.Eventually(func(g Gomega) {
			var all eventsv1.EventList
			g.Expect(admin.List(t.Context(), &all, client.InNamespace(home))).To(Succeed())
			g.Expect(all.Items).To(ContainElement(And(
				HaveField("Reason", "NamespaceConflict"), HaveField("Note", And(ContainSubstring("hub second: namespace "), ContainSubstring("is served by hub h0 (Lease "+home+"/capstan-hub-h0)"))))))
		}).Should(Succeed())
		f.promotedOnce()
	})

	t.Run("a namespace goes to another hub", func(t *testing.T) {
		f := fleets[0].in(t)
		var waits *hubProcess
		p := f.during(func() {
			// The order that is worse: the hub that gets the namespace ends first, and the new one has to wait.
			waits = startHubOf(t, kubeconfigFile, home, append(f.flags, "--hub-name=h1", "--namespace="+sets[1][0]+","+f.namespace)...).ready()
			hubs[1].stop()
			g.Eventually(func() float64 {
				return sum(waits.scrape(), "capstan_hub_namespace_conflict", map[string]string{"hub": "h1"})
			}).Should(Equal(1.0))
			left := startHubOf(t, kubeconfigFile, home, append(f.flags, "--hub-name=h0", "--namespace="+spare)...).ready()
			hubs[0].stop()
			left.leads()
			waits.leads()
			g.Expect(sum(waits.scrape(), "capstan_hub_namespace_conflict", map[string]string{"hub": "h1"})).To(BeZero())
		})
		f.g.Expect(p.stale).To(BeEmpty())
		report("a namespace goes to another hub: a change is shown after, at most", p.worst.Seconds(), 5, "s")
		f.promotedOnce()
		_, _, doubled := f.inbox.received()
		report("the same, notifications that were sent twice", float64(len(doubled)), none, "")

		moved := fleets[1].in(t)
		p = moved.during(func() {})
		moved.g.Expect(p.stale).To(BeEmpty())
		moved.promotedOnce()
	})
}
