package annotator

import (
	"sync"

	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

// unseen records on which state of an object a patch was based, until the watch delivers a newer
// state. A reconciliation in between would only cause a conflict.
type unseen struct {
	mu          sync.Mutex
	lockedState map[mcreconcile.Request]string
}

// writes records that a patch of the state with a resourceVersion is sent. It is called before
// the patch: the watch may be faster than the answer.
func (u *unseen) writes(who mcreconcile.Request, resourceVersion string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.lockedState == nil {
		u.lockedState = map[mcreconcile.Request]string{}
	}
	u.lockedState[who] = resourceVersion
}

// holds reports whether this is still the state that a patch was based on. If not, it removes
// the record.
func (u *unseen) holds(who mcreconcile.Request, resourceVersion string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.lockedState[who] == resourceVersion {
		return true
	}
	delete(u.lockedState, who)
	return false
}

// awaits is like holds, and changes nothing.
func (u *unseen) awaits(who mcreconcile.Request, resourceVersion string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.lockedState[who] == resourceVersion
}

// forget removes a deleted object.
func (u *unseen) forget(who mcreconcile.Request) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.lockedState, who)
}
