package hub

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

// warmPatience is how long a replica may be not ready because it has not observed all clusters. One that does not
// answer is judged within a minute; after this time the replica serves and stands by, as warm as it is.
const warmPatience = 2 * time.Minute

// isWarm returns a check of /readyz that succeeds when warm returns nil for the first time, or after warmPatience,
// and from then on: a cluster that is added later makes no replica unready. A rolling update waits for it, and so
// always has a replica that can take over.
func isWarm(c clock.PassiveClock, warm func() error) healthz.Checker {
	began := c.Now()
	var done atomic.Bool
	return func(*http.Request) error {
		if done.Load() || c.Since(began) >= warmPatience {
			return nil
		}
		if err := warm(); err != nil {
			return fmt.Errorf("not warm: %w", err)
		}
		done.Store(true)
		return nil
	}
}
