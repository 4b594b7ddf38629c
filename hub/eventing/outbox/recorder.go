package outbox

import (
	"context"
	"encoding/json"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
)

const (
	// DefaultRecordDelay has one patch do for what several backends settle.
	DefaultRecordDelay = time.Second
	// recordRate a second is written of Promotions, after a first recordBurst: a record
	// costs the API server as much as the edge it is of, and news are not to wait for it.
	recordRate, recordBurst = 40, 40
	// recordWithin is how long a record should wait for those before it: the more wait,
	// the more are written a second. A process that dies has the next one publish again
	// what waited; a stream knows that again for ten minutes by default.
	recordWithin = time.Minute
	// recorders write from each queue at a time, and flushers at the end.
	recorders, flushers = 4, 16
	// recordTimeout of one patch.
	recordTimeout = 10 * time.Second
	// flushTimeout bounds what is recorded at the end.
	flushTimeout = 5 * time.Second
	// A patch that failed is tried again after recordRetry, which doubles up to
	// recordRetryMax.
	recordRetry, recordRetryMax = 100 * time.Millisecond, time.Minute
)

func newQueue(c clock.WithTicker) workqueue.TypedRateLimitingInterface[key] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[key](recordRetry, recordRetryMax),
		workqueue.TypedRateLimitingQueueConfig[key]{Clock: c},
	)
}

// queueLocked of an object's record. Without it a Promotion is told again what was told;
// of a level it is the only memory, and the next leader would not know that it changed
// back. So levels are written at once.
func (b *Outbox) queueLocked(k key) workqueue.TypedDelayingInterface[key] {
	if k.kind == capstanv1.PromotionKind {
		return b.lockedState.leisurely
	}
	return b.lockedState.prompt
}

// record what is settled, until the queue is shut down; at leisure when there is a pace.
func (b *Outbox) record(ctx context.Context, queue workqueue.TypedRateLimitingInterface[key], pace *rate.Limiter) {
	for {
		k, over := queue.Get()
		if over {
			return
		}
		if pace != nil {
			if _, _, due := b.outdated(k); due { // What is not written takes no turn.
				b.pause(ctx, pace, queue.Len())
			}
		}
		if ctx.Err() != nil { // What waits is the flush's.
			queue.Done(k)
			continue
		}
		if err := b.write(ctx, k); err != nil {
			b.options.Logger.V(1).Info("recording what was told failed, and is tried again", "kind", k.kind, "namespace", k.Namespace, "name", k.Name, "error", err.Error())
			queue.AddRateLimited(k)
		} else {
			queue.Forget(k)
		}
		queue.Done(k)
	}
}

// pause before a record, while so many others wait.
func (b *Outbox) pause(ctx context.Context, pace *rate.Limiter, others int) {
	limit := rate.Limit(recordRate)
	if others > 0 { // Once raised, it stays: the last of those that wait has a minute, too.
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

// flush what is settled and not recorded when the leader ends: the next one would
// publish it again.
func (b *Outbox) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	b.mu.Lock()
	var keys []key
	for k, e := range b.lockedState.entries {
		if len(e.settled) > 0 {
			keys = append(keys, k)
		}
	}
	b.mu.Unlock()
	var writing errgroup.Group // One that fails does not end the others.
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
		b.options.Logger.Info("recording what was told failed; it is told again", "objects", failed.Load(), "error", err.Error())
	}
}

// write the record of an object, if it is another.
func (b *Outbox) write(ctx context.Context, k key) error {
	o, value, ok := b.outdated(k)
	if !ok {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": o.GetUID(), "annotations": map[string]any{ToldAnnotation: value},
	}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	err = b.options.Client.Patch(ctx, blank(o), client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // It is gone, or another one of that name.
		return nil
	}
	return err
}

// blank is an object with nothing but the name of another.
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

// outdated is an object, and what its record is to be; false when that stands.
func (b *Outbox) outdated(k key) (client.Object, string, bool) {
	now := b.options.Clock.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.lockedState.entries[k]
	if e == nil || len(e.settled) == 0 {
		return nil, "", false
	}
	next := b.recordLocked(e, now)
	value := next.String()
	return e.object, value, value != e.object.GetAnnotations()[ToldAnnotation]
}

// recordLocked is what the record of an object is to be: of its present events, those
// that are settled, by the backends that there are.
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
