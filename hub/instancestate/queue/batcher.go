package queue

import (
	"context"
	"slices"
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
	// tries that failed, and due, when the next one may begin.
	tries int
	due   time.Time
}

// batcher makes batches of jobs. While no call is in progress it makes a batch at once, so
// that a single job does not wait. Otherwise it makes full batches, so that many jobs need
// few calls. A job that failed waits for its next try beside the others and delays none.
type batcher struct {
	clock clock.Clock
	// call returns the jobs that failed and may be tried again.
	call func(context.Context, []job) (again []job)
	// done is called with the jobs that have ended, and failed with those that have failed maxTries
	// times.
	done, failed func([]job)
	wake         chan struct{}

	// mu guards the fields that follow.
	mu sync.Mutex
	// pending are the jobs to do, and delayed those that failed and are not due yet.
	pending, delayed []job
	active           int
}

func newBatcher(c clock.Clock, call func(context.Context, []job) []job, done, failed func([]job)) *batcher {
	return &batcher{clock: c, call: call, done: done, failed: failed, wake: make(chan struct{}, settlers)}
}

// put adds jobs. It never blocks: the window bounds their number.
func (b *batcher) put(jobs ...job) {
	b.mu.Lock()
	b.pending = append(b.pending, jobs...)
	b.mu.Unlock()
	b.signal()
}

// signal lets a worker look for jobs.
func (b *batcher) signal() {
	select {
	case b.wake <- struct{}{}:
	default: // All workers are already called.
	}
}

// take returns a batch if one can be made, else the time until a delayed job is due; 0 when
// there is none. While draining, every job is due, and batches need not be full.
func (b *batcher) take(draining bool) ([]job, time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var wait time.Duration
	if len(b.delayed) > 0 {
		wait = b.dueLocked(draining)
	}
	n := min(len(b.pending), batchSize)
	if n == 0 || n < batchSize && b.active > 0 && !draining {
		return nil, wait
	}
	batch := append([]job(nil), b.pending[:n]...)
	if b.pending = b.pending[n:]; len(b.pending) == 0 {
		b.pending = nil
	}
	b.active++
	return batch, 0
}

// dueLocked makes delayed jobs that are due pending. It returns when the next one is due; 0
// when none is left.
func (b *batcher) dueLocked(draining bool) (wait time.Duration) {
	now := b.clock.Now()
	b.delayed = slices.DeleteFunc(b.delayed, func(j job) bool {
		left := j.due.Sub(now)
		if draining || left <= 0 {
			b.pending = append(b.pending, j)
			return true
		}
		if wait == 0 || left < wait {
			wait = left
		}
		return false
	})
	return wait
}

// work makes calls until drain is closed and no job is left, or the context ends.
func (b *batcher) work(ctx context.Context, drain <-chan struct{}) {
	draining := false
	for ctx.Err() == nil {
		batch, wait := b.take(draining)
		if batch == nil {
			if draining {
				return
			}
			draining = b.wait(ctx, drain, wait)
			continue
		}
		b.finish(batch, b.call(ctx, batch), draining)
	}
}

// wait returns when there may be a batch, after a time if that is not 0. It returns true when
// drain is closed.
func (b *batcher) wait(ctx context.Context, drain <-chan struct{}, after time.Duration) (draining bool) {
	var due <-chan time.Time
	if after > 0 {
		timer := b.clock.NewTimer(after)
		defer timer.Stop()
		due = timer.C()
	}
	select {
	case <-b.wake:
	case <-due:
	case <-drain:
		return true
	case <-ctx.Done():
	}
	return false
}

// finish ends the jobs of a batch, except those to retry, which it delays. While draining,
// none is retried.
func (b *batcher) finish(batch, again []job, draining bool) {
	now := b.clock.Now()
	// An extension and the last job of a message may be in one batch.
	type key struct {
		d    *Delivery
		last bool
	}
	unfinished := map[key]bool{}
	var retry, over, failed []job
	for _, j := range again {
		switch j.tries++; {
		case draining:
			continue
		case j.tries < maxTries:
			j.due = now.Add(backoff.Policy{First: firstCallRetry, Max: lastCallRetry}.Doubled(int64(j.tries - 1)))
			retry = append(retry, j)
		default:
			failed = append(failed, j)
		}
		unfinished[key{j.d, j.last}] = true
	}
	for _, j := range batch {
		if !unfinished[key{j.d, j.last}] {
			over = append(over, j)
		}
	}
	b.mu.Lock()
	b.active--
	b.delayed = append(b.delayed, retry...)
	b.mu.Unlock()
	if len(over) > 0 {
		b.done(over)
	}
	if len(failed) > 0 {
		b.failed(failed)
	}
	// A worker that waits does not know of the delayed jobs, nor that no call is active.
	b.signal()
}
