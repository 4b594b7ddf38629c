package publisher

import (
	"context"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
)

// walkRetry is the time after a walk that failed. A walk reads the hub's own cache, and fails
// only until the cache has the backend.
const walkRetry = 5 * time.Second

// walk queues the pending events of every Source.
func (b *backend) walk(ctx context.Context) {
	fits, err := true, error(nil)
	b.mu.Lock()
	b.lockedQueue.deferring = false
	settings := b.lockedQueue.settings
	b.mu.Unlock()
	for _, source := range b.options.Sources {
		err = source.Pending(ctx, b.name, func(e ce.Event) bool {
			if settings.wants(b.name, e) {
				v := b.offer(e, source, true)
				fits = v != deferred && v != closed
			} else {
				source.Settled(b.name, e.ID(), Unwanted)
			}
			return fits && ctx.Err() == nil
		})
		if err != nil || !fits || ctx.Err() != nil {
			break
		}
	}
	if err != nil && ctx.Err() == nil {
		b.log.Error(err, "listing the pending events of a backend failed; the list is retried", "after", walkRetry)
	}
	now := b.clock.Now()
	b.mu.Lock()
	q := b.lockedQueue
	aside := q.aside
	q.walking, q.aside = false, nil
	if err != nil || ctx.Err() != nil {
		q.deferring, q.walkAt = true, now.Add(walkRetry)
	}
	before := q.standing()
	offers := make([]offered, 0, len(aside))
	for _, it := range aside { // In order: after a deferred one, the rest is deferred as well.
		offers = append(offers, q.take(it, now, false))
	}
	after := q.standing()
	b.mu.Unlock()
	b.turned(before, after, nil)
	for _, o := range offers {
		b.taken(o)
	}
	b.poke()
}
