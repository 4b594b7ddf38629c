package promotion

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

const (
	// perTenant is how many calls of strategies run at a time for the Promotions of one
	// namespace: attempts, checks of pull requests and closes. Two namespaces whose servers
	// hang or are slow leave a quarter of the workers to the others. Three clones of a
	// namespace run at a time (gitrepo.DefaultClones), so more calls than six would wait for
	// these.
	perTenant = 6

	// placeDelay is the wait for a place if the wake is lost. A finished call wakes the next
	// Promotion at once.
	placeDelay = time.Minute
)

// tenants bound the calls of strategies by namespace, so that the calls of one namespace that
// last long never have all workers. A Promotion without a place has no worker: it is queued
// here, in order, and is reconciled again when a call of its namespace has finished.
type tenants struct {
	most int
	// queue of the controller; nil until it starts.
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]

	// mu guards the fields that follow.
	mu sync.Mutex
	// lockedRunning counts the calls, by namespace; no count is 0.
	lockedRunning map[string]int
	// lockedWaiting has the Promotions without a place, by namespace, in order.
	lockedWaiting map[string][]string
	// lockedWoken has the Promotions that were woken and were not reconciled yet.
	lockedWoken map[types.NamespacedName]bool
}

var _ source.Source = &tenants{}

func newTenants(most int) *tenants {
	return &tenants{most: most, lockedRunning: map[string]int{}, lockedWaiting: map[string][]string{}, lockedWoken: map[types.NamespacedName]bool{}}
}

// Start implements source.Source.
func (t *tenants) Start(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	t.queue = q
	return nil
}

// enter takes a place for a call, which leave returns. If there is none, the Promotion is
// woken when there is one.
func (t *tenants) enter(p types.NamespacedName) (leave func(), ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.lockedWoken, p)
	waiting := t.lockedWaiting[p.Namespace]
	at := slices.Index(waiting, p.Name)
	if t.lockedRunning[p.Namespace] >= t.most {
		if at < 0 {
			t.lockedWaiting[p.Namespace] = append(waiting, p.Name)
		}
		return nil, false
	}
	if at >= 0 {
		t.setWaitingLocked(p.Namespace, slices.Delete(waiting, at, at+1))
	}
	t.lockedRunning[p.Namespace]++
	return func() { t.leave(p.Namespace) }, true
}

func (t *tenants) leave(namespace string) {
	t.mu.Lock()
	if t.lockedRunning[namespace]--; t.lockedRunning[namespace] == 0 {
		delete(t.lockedRunning, namespace)
	}
	next, ok := t.nextLocked(namespace)
	t.mu.Unlock()
	t.wake(next, ok)
}

// reconciled passes a wake on to the next Promotion if the woken one did not need its place.
func (t *tenants) reconciled(p types.NamespacedName) {
	t.mu.Lock()
	woken := t.lockedWoken[p]
	delete(t.lockedWoken, p)
	var next types.NamespacedName
	ok := false
	if woken {
		next, ok = t.nextLocked(p.Namespace)
	}
	t.mu.Unlock()
	t.wake(next, ok)
}

// nextLocked returns the Promotion to wake, if there is a place for it.
func (t *tenants) nextLocked(namespace string) (next types.NamespacedName, ok bool) {
	waiting := t.lockedWaiting[namespace]
	if len(waiting) == 0 || t.lockedRunning[namespace] >= t.most {
		return next, false
	}
	next = types.NamespacedName{Namespace: namespace, Name: waiting[0]}
	t.setWaitingLocked(namespace, waiting[1:])
	t.lockedWoken[next] = true
	return next, true
}

func (t *tenants) setWaitingLocked(namespace string, waiting []string) {
	if len(waiting) == 0 {
		delete(t.lockedWaiting, namespace)
		return
	}
	t.lockedWaiting[namespace] = waiting
}

func (t *tenants) wake(p types.NamespacedName, ok bool) {
	if ok && t.queue != nil {
		t.queue.Add(reconcile.Request{NamespacedName: p})
	}
}

// withoutPlace is the result for a Promotion without a place.
func withoutPlace() (ctrl.Result, error) { return ctrl.Result{RequeueAfter: placeDelay}, nil }
