package watchers

import (
	"math/rand/v2"
	"time"
)

// backoff doubles from least to most. Each wait is drawn from its upper half, so that
// clusters with the same problem do not retry at once.
type backoff struct{ least, most, next time.Duration }

func (b *backoff) wait() time.Duration {
	b.next = max(b.next, b.least)
	wait := b.next/2 + rand.N(b.next/2+1)
	b.next = min(2*b.next, b.most)
	return wait
}

func (b *backoff) reset() { b.next = 0 }
