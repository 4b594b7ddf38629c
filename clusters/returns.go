package clusters

import (
	"sync"
	"time"
)

// releasePace is the share of each returning cluster in the time over which their waiting requests
// are sent.
const releasePace = 2 * time.Millisecond

// returns counts the clusters that became reachable at about the same time.
type returns struct {
	mu          sync.Mutex
	lockedState struct {
		since time.Time
		count int
	}
}

// spread counts one more cluster. It returns the time over which its waiting requests are sent,
// at most most: one cluster does not wait, and a thousand at once do not overload the hub.
func (r *returns) spread(now time.Time, most time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.lockedState
	if now.Sub(s.since) >= most {
		s.since, s.count = now, 0
	}
	s.count++
	return min(most, time.Duration(s.count-1)*releasePace)
}
