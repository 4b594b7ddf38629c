package clusters

import (
	"math/rand/v2"
	"time"
)

// backoff doubles from least to most. Each wait is drawn from its upper half, so
// that clusters lost together are not sought together.
type backoff struct {
	least, most time.Duration
	next        time.Duration
}

func (b *backoff) wait() time.Duration {
	b.next = max(b.next, b.least)
	wait := b.next/2 + rand.N(b.next/2+1)
	b.next = min(b.next*2, b.most)
	return wait
}

func (b *backoff) reset() { b.next = 0 }

// probeJitter spreads the probes of many clusters.
const probeJitter = 0.2

// jittered is d ±20 %.
func jittered(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (1 - probeJitter + 2*probeJitter*rand.Float64()))
}
