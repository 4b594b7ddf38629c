package promotion

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// One namespace has a hundred Promotions whose calls hang, and another one has fifty. With the
// hub's number of workers, those of the second are all called while those of the first hang,
// and no wake is lost when these end.
func TestANamespaceThatHangsLeavesWorkersToTheOthers(t *testing.T) {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(30 * time.Second)
	tenants := newTenants(perTenant)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	g.Expect(tenants.Start(t.Context(), queue)).To(Succeed())
	var hanging, most, slow, quick atomic.Int32
	release := make(chan struct{})
	call := func(p types.NamespacedName) {
		defer tenants.reconciled(p)
		leave, ok := tenants.enter(p)
		if !ok {
			return
		}
		defer leave()
		if p.Namespace == "quick" {
			quick.Add(1)
			return
		}
		most.Store(max(most.Load(), hanging.Add(1)))
		<-release
		hanging.Add(-1)
		slow.Add(1)
	}
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for {
				request, shutdown := queue.Get()
				if shutdown {
					return
				}
				call(request.NamespacedName)
				queue.Done(request)
			}
		})
	}
	add := func(namespace string, n int) {
		for i := range n {
			queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: fmt.Sprint(i)}})
		}
	}
	add("slow", 100)
	g.Eventually(hanging.Load).Should(BeEquivalentTo(perTenant))
	add("quick", 50)
	g.Eventually(quick.Load).Should(BeEquivalentTo(50))
	g.Expect(slow.Load()).To(BeZero())
	close(release)
	g.Eventually(slow.Load).Should(BeEquivalentTo(100))
	g.Expect(most.Load()).To(BeNumerically("<=", perTenant))
	queue.ShutDown()
	group.Wait()
	g.Expect(tenants.lockedRunning).To(BeEmpty())
	g.Expect(tenants.lockedWaiting).To(BeEmpty())
	g.Expect(tenants.lockedWoken).To(BeEmpty())
}

// A woken Promotion that needs no call any more, because it ended meanwhile, passes its wake
// on to the next one.
func TestAWakeThatIsNotNeededIsPassedOn(t *testing.T) {
	g := NewWithT(t)
	tenants := newTenants(1)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	g.Expect(tenants.Start(t.Context(), queue)).To(Succeed())
	named := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "apps", Name: name} }
	leave, ok := tenants.enter(named("a"))
	g.Expect(ok).To(BeTrue())
	for _, name := range []string{"b", "c", "b"} {
		_, ok := tenants.enter(named(name))
		g.Expect(ok).To(BeFalse())
		tenants.reconciled(named(name))
	}
	leave()
	g.Expect(queue.Len()).To(Equal(1))
	woken, _ := queue.Get()
	g.Expect(woken.NamespacedName).To(Equal(named("b")))
	tenants.reconciled(woken.NamespacedName)
	queue.Done(woken)
	g.Expect(queue.Len()).To(Equal(1))
	woken, _ = queue.Get()
	g.Expect(woken.NamespacedName).To(Equal(named("c")))
	leave, ok = tenants.enter(woken.NamespacedName)
	g.Expect(ok).To(BeTrue())
	leave()
	tenants.reconciled(woken.NamespacedName)
	g.Expect(queue.Len()).To(BeZero())
}
