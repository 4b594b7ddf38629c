package annotator

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/capstan-hub/capstan/internal/backoff"
)

const (
	// contestWait is how long a change waits that another client has reverted more than once.
	// It doubles up to contestWaitMax.
	contestWait, contestWaitMax = time.Second, 5 * time.Minute
	// contestOver is the time without a revert after which the next one counts as the first. It
	// is longer than the interval of controllers that reconcile Git or a ClusterClass.
	contestOver = 15 * time.Minute
)

// contests records the last change of each node group. Another client may revert it, such as
// GitOps or the topology controller of a ClusterClass. Without the record, two controllers
// would overwrite each other without a pause.
type contests struct {
	clock clock.Clock

	mu          sync.Mutex
	lockedState map[mcreconcile.Request]*contest
}

type contest struct {
	change string
	at     time.Time
	wait   time.Duration
}

// until returns how long a change must wait; 0 for not at all. contested reports whether the
// change was reverted more than once.
func (c *contests) until(who mcreconcile.Request, change string) (wait time.Duration, contested bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.lockedState[who]
	if last == nil || last.change != change || last.wait == 0 {
		return 0, false
	}
	return max(0, last.at.Add(last.wait).Sub(c.clock.Now())), true
}

// wrote records a written change.
func (c *contests) wrote(who mcreconcile.Request, change string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lockedState == nil {
		c.lockedState = map[mcreconcile.Request]*contest{}
	}
	now := c.clock.Now()
	next := &contest{change: change, at: now}
	if last := c.lockedState[who]; last != nil && last.change == change && now.Sub(last.at) < contestOver {
		next.wait = backoff.Policy{First: contestWait, Max: contestWaitMax}.Next(last.wait)
	}
	c.lockedState[who] = next
}

// forget removes a deleted object.
func (c *contests) forget(who mcreconcile.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.lockedState, who)
}
