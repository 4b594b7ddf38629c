package annotator

import (
	"sync"

	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

// unseen remembers on which state of an object a patch was based, until the watch brings
// another: what wakes its reconciliation in between would only earn a conflict.
type unseen struct {
	mu          sync.Mutex
	lockedState map[mcreconcile.Request]string
}

// writes a patch of the state with a resourceVersion. It comes before the patch: the
// watch may be faster than the answer.
func (u *unseen) writes(who mcreconcile.Request, resourceVersion string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.lockedState == nil {
		u.lockedState = map[mcreconcile.Request]string{}
	}
	u.lockedState[who] = resourceVersion
}

// holds is whether this is still the state that a patch was based on.
func (u *unseen) holds(who mcreconcile.Request, resourceVersion string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.lockedState[who] == resourceVersion {
		return true
	}
	delete(u.lockedState, who)
	return false
}

// awaits is holds, for who only wants to know.
func (u *unseen) awaits(who mcreconcile.Request, resourceVersion string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.lockedState[who] == resourceVersion
}

// forget an object that is gone.
func (u *unseen) forget(who mcreconcile.Request) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.lockedState, who)
}
