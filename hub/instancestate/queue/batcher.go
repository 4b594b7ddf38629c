package queue

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/capstan-hub/capstan/internal/backoff"
)

const (
	// firstCallRetry and lastCallRetry bound the wait before what failed is tried again.
	firstCallRetry = 100 * time.Millisecond
	lastCallRetry  = 5 * time.Second
	// maxTries of one message, over about 20 s. Then it is left to come again: by that
	// time its receipt may well be void.
	maxTries = 8
)

// job is one entry of a batch.
type job struct {
	d *Delivery
	// visibility to set, where that is the batch's business.
	visibility time.Duration
	// last says that the message leaves the window with it.
	last bool
	// tries that failed.
	tries int
}

// batcher makes batches of jobs: at once while nothing is under way, so that one alone
// does not wait, and full ones beside that, so that many take few calls.
type batcher struct {
	clock clock.Clock
	// call returns the jobs that failed and may be tried again.
	call func(context.Context, []job) (again []job)
	// done is told of the jobs that are over, well or not.
	done func([]job)
	wake chan struct{}

	// mu guards the fields that follow.
	mu      sync.Mutex
	pending []job
	active  int
}

func newBatcher(c clock.Clock, call func(context.Context, []job) []job, done func([]job)) *batcher {
	return &batcher{clock: c, call: call, done: done, wake: make(chan struct{}, settlers)}
}

// put jobs; it never blocks. The window bounds how many there are.
func (b *batcher) put(jobs ...job) {
	b.mu.Lock()
	b.pending = append(b.pending, jobs...)
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default: // As many as there are workers are already called.
	}
}

// take a batch, if one is due.
func (b *batcher) take(draining bool) []job {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(b.pending), batchSize)
	if n == 0 || n < batchSize && b.active > 0 && !draining {
		return nil
	}
	batch := append([]job(nil), b.pending[:n]...)
	if b.pending = b.pending[n:]; len(b.pending) == 0 {
		b.pending = nil
	}
	b.active++
	return batch
}

// work until drain is closed and nothing is left, or the context ends.
func (b *batcher) work(ctx context.Context, drain <-chan struct{}) {
	draining := false
	for ctx.Err() == nil {
		batch := b.take(draining)
		if batch == nil {
			if draining {
				return
			}
			select {
			case <-b.wake:
			case <-drain:
				draining = true
			case <-ctx.Done():
			}
			continue
		}
		again := b.call(ctx, batch)
		b.mu.Lock()
		b.active--
		b.mu.Unlock()
		b.finish(ctx, drain, batch, again)
	}
}

// finish a batch: what failed is put back after a while.
func (b *batcher) finish(ctx context.Context, drain <-chan struct{}, batch, again []job) {
	draining := false
	select {
	case <-drain:
		draining = true
	default:
	}
	failed := map[*Delivery]bool{}
	var retry, over []job
	tries := 0
	for _, j := range again {
		if j.tries++; j.tries < maxTries && !draining {
			failed[j.d] = true
			tries = max(tries, j.tries)
			retry = append(retry, j)
		}
	}
	for _, j := range batch {
		if !failed[j.d] {
			over = append(over, j)
		}
	}
	if len(over) > 0 {
		b.done(over)
	}
	if len(retry) == 0 {
		return
	}
	timer := b.clock.NewTimer(backoff.Policy{First: firstCallRetry, Max: lastCallRetry}.Doubled(int64(tries - 1)))
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-drain:
	case <-ctx.Done():
	}
	b.put(retry...)
}
