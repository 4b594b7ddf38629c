package instancestate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/capstan-hub/capstan/hub/instancestate/message"
	"github.com/capstan-hub/capstan/hub/instancestate/owner"
	"github.com/capstan-hub/capstan/internal/capa"
	"github.com/capstan-hub/capstan/internal/memberwrite"
	"github.com/capstan-hub/capstan/watchers"
)

// attempts to patch an object when other clients write to it too. Then SQS delivers the
// message again.
const attempts = 5

// apply merges works into an object and patches it. A worker calls it. It returns whether
// the object's cluster answered.
func (r *Labeler) apply(ctx context.Context, key owner.Key, works []work) (outcome memberwrite.Outcome) {
	var err error
	defer func() {
		if p := recover(); p != nil {
			r.metrics.panics.Inc()
			err = fmt.Errorf("panic: %v", p)
			r.Logger.Error(err, "Applying an event panicked; SQS delivers it again", "kind", key.Kind.Kind, "namespace", key.Namespace, "name", key.Name)
		}
		if err != nil {
			if memberwrite.Silent(err) {
				outcome = memberwrite.Unanswered
			}
			fail(works)
		}
	}()
	var at seen
	at, err = r.write(ctx, key, works)
	switch {
	case notFound(err):
		err = nil // The object was deleted: nothing is left to write.
		for _, w := range works {
			w.tracker.done(acknowledged)
		}
	case err != nil:
		if ctx.Err() == nil {
			r.metrics.failed.WithLabelValues(key.Kind.Kind).Inc()
			r.Logger.V(1).Info("Patching an object failed; SQS delivers its events again", "kind", key.Kind.Kind, "namespace", key.Namespace, "name", key.Name, "cluster", key.Cluster, "error", err.Error())
		}
	default:
		r.acknowledge(ctx, key, at, works)
	}
	return memberwrite.Answered
}

func fail(works []work) {
	for _, w := range works {
		w.tracker.done(failed)
	}
}

// write patches an object if works change it. It returns the object's state after that.
func (r *Labeler) write(ctx context.Context, key owner.Key, works []work) (seen, error) {
	at, err := r.current(ctx, key)
	reread := false
	for range attempts {
		if err != nil || at.deleting {
			return at, err
		}
		c, unreadable := merge(key, at, works)
		if unreadable != nil {
			r.Logger.Info("An annotation was changed by another client and cannot be read; it is written again from the new events", "kind", key.Kind.Kind, "namespace", key.Namespace, "name", key.Name, "error", unreadable.Error())
		}
		if c == nil {
			r.metrics.noops.Add(float64(len(works)))
			if reread {
				r.writer.wrote(key, at) // Another replica wrote it, and no watch has delivered it.
			}
			return at, nil
		}
		if err := c.declare(at, r.Clock.Now()); err != nil {
			return at, err
		}
		after, err := r.patch(ctx, key, at, c)
		switch {
		case err == nil:
			r.recordApplied(ctx, key, at, c, works)
			return after, nil
		case !apierrors.IsConflict(err):
			return at, err
		}
		r.metrics.conflicts.Inc()
		fresh, err := r.writer.read(ctx, key, at.gvk)
		if err != nil {
			return at, err
		}
		next := seenOf(at.gvk, fresh, key)
		if next.uid != at.uid || next.instance() != at.instance() && slices.ContainsFunc(works, func(w work) bool { return !w.repair && w.fact.InstanceID != next.instance() }) {
			return at, errReplaced
		}
		at, reread = next, true
	}
	return at, fmt.Errorf("%d patches in a row conflicted with other writes of the object; SQS delivers its events again", attempts)
}

// errReplaced reports that another object, or the same object with another instance, now
// has the name that the facts were routed to. They are routed again after redelivery,
// when a watch has delivered the new object.
var errReplaced = errors.New("the object was replaced by another one of the same name, or has another instance now; SQS delivers its events again")

func (r *Labeler) patch(ctx context.Context, key owner.Key, at seen, c *change) (seen, error) {
	patch, err := c.patch(key, at)
	if err != nil {
		return at, err
	}
	written, err := r.writer.patch(ctx, key, at, patch)
	if err != nil {
		return at, err
	}
	after := c.applied(at, written.GetResourceVersion())
	r.writer.wrote(key, after)
	return after, nil
}

// current returns the state of an object: as this process last wrote it, or as a watch
// delivered it.
func (r *Labeler) current(ctx context.Context, key owner.Key) (seen, error) {
	if at, ahead := r.writer.last(key); ahead {
		return at, nil
	}
	u, err := r.read(ctx, key)
	if err != nil {
		return seen{}, err
	}
	return seenOf(u.GroupVersionKind(), u, key), nil
}

// Applied is a fact that changed an object's label or the annotations behind it.
type Applied struct {
	Fact message.Fact
	// Object that was patched.
	Object owner.Key
	// LabelKey is the key of the object's label.
	LabelKey string
	// Account and Region of the instance: those of the event, else those of its source.
	Account, Region string
	// Label is the value of the label after the patch; empty when the object has none.
	Label string
}

// recordApplied counts and publishes the facts of a change that was written.
func (r *Labeler) recordApplied(ctx context.Context, key owner.Key, before seen, c *change, works []work) {
	now := r.Clock.Now()
	repairs := 0
	for _, w := range works {
		if w.repair {
			repairs++
		}
	}
	r.metrics.repairs.Add(float64(repairs))
	r.metrics.noops.Add(float64(len(works) - repairs - len(c.merged)))
	for _, w := range c.merged {
		r.metrics.applied.WithLabelValues(string(w.fact.Kind)).Inc()
		if r.Publish != nil {
			r.Publish(Applied{Fact: w.fact, Object: key, LabelKey: labelOf(key), Label: c.label, Account: cmp.Or(w.fact.Account, w.from.account), Region: cmp.Or(w.fact.Region, w.from.region)})
		}
		if w.fact.Guessed {
			continue
		}
		r.metrics.eventToLabel.Observe(now.Sub(w.fact.Time).Seconds())
		if w.fact.Kind == message.SpotInterruption && !w.fact.Deadline.IsZero() {
			r.metrics.spotLeft.Observe(max(0, w.fact.Deadline.Sub(now).Seconds()))
		}
	}
	if before.label != c.label {
		r.events.changed(ctx, key, before, c, works)
	}
}

// acknowledge ends works that are written or change nothing. A work whose event is behind
// the label waits for the handlers.
func (r *Labeler) acknowledge(ctx context.Context, key owner.Key, at seen, works []work) {
	behind := eventID(at.annotations)
	r.handlers.supersede(key, behind, acknowledged)
	for _, w := range works {
		if !w.repair && !at.deleting {
			if err := r.remediate(ctx, key, at, w); err != nil {
				r.Logger.Info("Annotating the Machine for remediation failed; it is retried when SQS delivers the event again", "namespace", key.Namespace, "name", key.Name, "error", err.Error())
				w.tracker.done(failed)
				continue
			}
		}
		if w.repair || behind == "" || w.event.whole.ID != behind {
			w.tracker.done(acknowledged) // No handler waits for it.
			continue
		}
		if r.waits(ctx, key, at, w.from) {
			w.tracker.done(failed)
			continue
		}
		if at.deleting {
			w.tracker.done(acknowledged) // Handlers of this process are not awaited for it.
			continue
		}
		for _, wake := range r.handlers.await(key, behind, w.tracker.done) {
			wake(objectFor(key, at))
		}
	}
}

// fill waits until the index has all objects of the management cluster. It returns false
// when the context ends before.
func (r *Labeler) fill(ctx context.Context) bool {
	ticker := r.Clock.NewTicker(fillEvery)
	defer ticker.Stop()
	for !r.filled(ctx) {
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// fillEvery is the interval at which fill checks the watches.
const fillEvery = 50 * time.Millisecond

// filled puts all watched objects of the management cluster into the index. It returns
// false while a list is in progress. It does not wait for a kind that cannot be read,
// which has a reason.
func (r *Labeler) filled(ctx context.Context) bool {
	local := r.reader("")
	for _, kind := range append(labelled(), capa.PlaceKinds()...) {
		list := newList(kind)
		var unsynced *watchers.NotSyncedError
		switch err := local.List(ctx, list); {
		case errors.As(err, &unsynced):
			if unsynced.Reason == "" {
				return false
			}
			continue
		case err != nil:
			r.Logger.Error(err, "Reading watched objects failed", "kind", kind.Kind)
			continue
		}
		if !slices.Contains(labelled(), kind) {
			continue
		}
		for i := range list.Items {
			r.index.Set(objectOf("", &list.Items[i]))
		}
	}
	return true
}
