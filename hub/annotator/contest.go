package annotator

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/capstan-hub/capstan/internal/backoff"
)

const (
	// contestWait is how long a change stands back that somebody undid more than once. It
	// doubles up to contestWaitMax.
	contestWait, contestWaitMax = time.Second, 5 * time.Minute
	// contestOver is how long nothing has to be undone before it counts as new: longer
	// than what reconciles Git or a ClusterClass leaves between its looks.
	contestOver = 15 * time.Minute
)

// contests remember the last change of each node group, so that another who undoes what
// is written here, such as the topology controller of a ClusterClass or GitOps, is not
// fought at the speed of two controllers.
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

// until when a change has to wait: 0 if not at all. Contested is whether it was undone
// more than once.
func (c *contests) until(who mcreconcile.Request, change string) (wait time.Duration, contested bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.lockedState[who]
	if last == nil || last.change != change || last.wait == 0 {
		return 0, false
	}
	return max(0, last.at.Add(last.wait).Sub(c.clock.Now())), true
}

// wrote a change.
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

// forget an object that is gone.
func (c *contests) forget(who mcreconcile.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.lockedState, who)
}
