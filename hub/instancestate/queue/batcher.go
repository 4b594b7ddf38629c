package queue

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/capstan-hub/capstan/internal/backoff"
)

const (
	// firstCallRetry and lastCallRetry bound the delay before a failed job is retried.
	firstCallRetry = 100 * time.Millisecond
	lastCallRetry  = 5 * time.Second
	// maxTries of one message, over about 20 s. Then SQS delivers it again: by that time its
	// receipt may be invalid.
	maxTries = 8
)

// job is one entry of a batch.
type job struct {
	d *Delivery
	// visibility to set, in a batch that changes visibility.
	visibility time.Duration
	// last is set when the message leaves the window with this job.
	last bool
	// tries that failed.
	tries int
}

// batcher makes batches of jobs. While no call is in progress it makes a batch at once, so
// that a single job does not wait. Otherwise it makes full batches, so that many jobs need
// few calls.
type batcher struct {
	clock clock.Clock
	// call returns the jobs that failed and may be tried again.
	call func(context.Context, []job) (again []job)
	// done is called with the jobs that have ended, with success or not.
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

// put adds jobs. It never blocks: the window bounds their number.
func (b *batcher) put(jobs ...job) {
	b.mu.Lock()
	b.pending = append(b.pending, jobs...)
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default: // All workers are already called.
	}
}

// take returns a batch if one is due.
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

// work makes calls until drain is closed and no job is left, or the context ends.
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

// finish ends the jobs of a batch, and puts those to retry back after a delay.
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
