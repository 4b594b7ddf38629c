package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
)

const (
	// DefaultRecordDelay lets one patch record what several backends settle.
	DefaultRecordDelay = time.Second
	// recordRate is how many records of Promotions are written per second, after a first
	// recordBurst. A record costs the API server as much as the edge that it records, and new
	// edges must not wait for records.
	recordRate, recordBurst = 40, 40
	// recordWithin is how long a record should wait at most: the more records wait, the
	// more are written per second. If the process dies, the next one publishes the events of
	// the waiting records again. A stream detects such duplicates for ten minutes by default.
	recordWithin = time.Minute
	// recorders is the number of workers of each queue; flushers is their number at the end.
	recorders, flushers = 4, 16
	// recordTimeout bounds one patch.
	recordTimeout = 10 * time.Second
	// flushTimeout bounds the writes at the end.
	flushTimeout = 5 * time.Second
	// A patch that failed is retried after recordRetry, which doubles up to recordRetryMax.
	recordRetry, recordRetryMax = 100 * time.Millisecond, time.Minute
)

func newQueue(c clock.WithTicker) workqueue.TypedRateLimitingInterface[key] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[key](recordRetry, recordRetryMax),
		workqueue.TypedRateLimitingQueueConfig[key]{Clock: c},
	)
}

// queueLocked returns the queue for the record of an object. Without its record, the events
// of a Promotion are published again. The event of a level waits for its record, so levels are
// written at once.
func (b *Outbox) queueLocked(k key) workqueue.TypedDelayingInterface[key] {
	if k.kind == capstanv1.PromotionKind {
		return b.lockedState.paced
	}
	return b.lockedState.prompt
}

// record writes the records of a queue until it is shut down, at the rate of pace if that is
// not nil.
func (b *Outbox) record(ctx context.Context, queue workqueue.TypedRateLimitingInterface[key], pace *rate.Limiter) {
	for {
		k, over := queue.Get()
		if over {
			return
		}
		if pace != nil {
			if _, _, due := b.outdated(k); due { // An unchanged record does not count.
				b.pause(ctx, pace, queue.Len())
			}
		}
		if ctx.Err() != nil { // flush writes what waits.
			queue.Done(k)
			continue
		}
		if err := b.write(ctx, k); err != nil {
			b.options.Logger.V(1).Info("recording the published events of an object failed; it is retried", "kind", k.kind, "namespace", k.Namespace, "name", k.Name, "error", err.Error())
			queue.AddRateLimited(k)
		} else {
			queue.Forget(k)
		}
		queue.Done(k)
	}
}

// pause waits before a record; others is how many more wait.
func (b *Outbox) pause(ctx context.Context, pace *rate.Limiter, others int) {
	limit := rate.Limit(recordRate)
	if others > 0 { // The limit is not lowered: the last that waits also has a minute.
		limit = max(pace.Limit(), rate.Limit(float64(others)/recordWithin.Seconds()))
	}
	now := b.options.Clock.Now()
	pace.SetLimitAt(now, limit)
	delay := pace.ReserveN(now, 1).DelayFrom(now)
	if delay <= 0 {
		return
	}
	timer := b.options.Clock.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-ctx.Done():
	}
}

// flush records what is settled and not recorded when the leader ends. Otherwise the next
// leader would publish it again.
func (b *Outbox) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	b.mu.Lock()
	var keys []key
	for k, e := range b.lockedState.entries {
		if e.unrecorded() {
			keys = append(keys, k)
		}
	}
	b.mu.Unlock()
	var writing errgroup.Group // A failed write does not stop the others.
	writing.SetLimit(flushers)
	var failed atomic.Int64
	for _, k := range keys {
		writing.Go(func() error {
			err := b.write(ctx, k)
			if err != nil {
				failed.Add(1)
			}
			return err
		})
	}
	if err := writing.Wait(); err != nil {
		b.options.Logger.Info("recording the published events of some objects failed; the next leader publishes them again", "objects", failed.Load(), "error", err.Error())
	}
}

// errUndone: the API server accepted a record and did not store it.
var errUndone = errors.New("the annotation " + RecordAnnotation + " is not stored: an admission webhook or policy removes it")

// write patches the record of an object if it has changed.
func (b *Outbox) write(ctx context.Context, k key) error {
	o, value, ok := b.outdated(k)
	if !ok {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": o.GetUID(), "annotations": map[string]any{RecordAnnotation: value},
	}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	written := blank(o)
	err = b.options.Client.Patch(ctx, written, client.RawPatch(types.MergePatchType, patch))
	if err == nil && written.GetAnnotations()[RecordAnnotation] != value {
		err = errUndone
	}
	if err != nil { // 404 and 409 are retried too: the watch soon says that the object is deleted or replaced.
		b.failures.WithLabelValues(reasonOf(err)).Inc()
	}
	return err
}

// blank returns an object of the same kind with only its name and namespace set.
func blank(o client.Object) client.Object {
	var made client.Object
	switch o.(type) {
	case *capstanv1.Promotion:
		made = &capstanv1.Promotion{}
	case *capstanv1.ClusterConnection:
		made = &capstanv1.ClusterConnection{}
	default:
		made = &eventingv1.EventingBackend{}
	}
	made.SetNamespace(o.GetNamespace())
	made.SetName(o.GetName())
	return made
}

// outdated returns an object and the record that it should have; false if it has it.
func (b *Outbox) outdated(k key) (client.Object, string, bool) {
	now := b.options.Clock.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.lockedState.entries[k]
	if e == nil || !e.unrecorded() {
		return nil, "", false
	}
	next := b.recordLocked(e, now)
	value := next.String()
	return e.object, value, value != e.object.GetAnnotations()[RecordAnnotation]
}

// recordLocked returns the record that an object should have: for each existing backend, the
// current events of the object that are settled there.
func (b *Outbox) recordLocked(e *entry, now time.Time) record {
	before := recordOf(e.object)
	next := record{To: map[types.UID][]string{}}
	if e.level.State != "" {
		next.Level = &e.level
	}
	if !e.credentials.End.IsZero() {
		next.Credentials = &e.credentials
	}
	present := e.events(b.options.Hub, now)
	for name, backend := range b.lockedState.backends {
		uid := backend.object.GetUID()
		noted := slices.Concat(e.settled[name], e.unwanted[name])
		for _, one := range present {
			if before.has(uid, one.ID()) || slices.Contains(noted, one.ID()) {
				next.To[uid] = append(next.To[uid], short(one.ID()))
			}
		}
	}
	return next
}
