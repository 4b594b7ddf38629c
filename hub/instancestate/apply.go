package instancestate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/hub/instancestate/guard"
	"github.com/capstan-hub/capstan/hub/instancestate/message"
	"github.com/capstan-hub/capstan/hub/instancestate/owner"
	"github.com/capstan-hub/capstan/internal/capa"
	"github.com/capstan-hub/capstan/internal/memberwrite"
	"github.com/capstan-hub/capstan/watchers"
)

// attempts at one object while others write to it too. Beyond them the message comes
// again.
const attempts = 5

// apply works to an object; it is one worker's turn. It returns whether the object's
// cluster answered.
func (r *AWSInstanceStateReconciler) apply(ctx context.Context, key owner.Key, works []work) (outcome memberwrite.Outcome) {
	var err error
	defer func() {
		if p := recover(); p != nil {
			r.metrics.panics.Inc()
			err = fmt.Errorf("panic: %v", p)
			r.Logger.Error(err, "Telling of an event failed", "kind", kindOf(key).Kind, "namespace", key.Namespace, "name", key.Name)
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
	case gone(err):
		err = nil // It is gone, and nothing is to be told on it.
		for _, w := range works {
			w.tracker.done(acknowledged)
		}
	case err != nil:
		if ctx.Err() == nil {
			r.metrics.failed.WithLabelValues(kindOf(key).Kind).Inc()
			r.Logger.V(1).Info("Patching failed", "kind", kindOf(key).Kind, "namespace", key.Namespace, "name", key.Name, "cluster", key.Cluster, "error", err.Error())
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

// write what works change, if anything. It returns the object as it is then.
func (r *AWSInstanceStateReconciler) write(ctx context.Context, key owner.Key, works []work) (seen, error) {
	at, err := r.current(ctx, key)
	for range attempts {
		if err != nil || at.deleting {
			return at, err
		}
		c, unreadable := merge(key, at, works)
		if unreadable != nil {
			r.Logger.Info("An annotation is not as it was written, and is made anew", "kind", kindOf(key).Kind, "namespace", key.Namespace, "name", key.Name, "error", unreadable.Error())
		}
		if c == nil {
			r.metrics.noops.Add(float64(len(works)))
			return at, nil
		}
		after, err := r.patch(ctx, key, at, c)
		switch {
		case err == nil:
			r.told(ctx, key, at, c, works)
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
		at = next
	}
	return at, errors.New("others write to it all the time")
}

// errReplaced says that facts were for another object, or for another instance, than the
// one that has the name now: they are brought to theirs when a watch has told of it.
var errReplaced = errors.New("another object has its name, or it has another instance")

func (r *AWSInstanceStateReconciler) patch(ctx context.Context, key owner.Key, at seen, c *change) (seen, error) {
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

// current state of an object: as it was written here, or as a watch has brought it.
func (r *AWSInstanceStateReconciler) current(ctx context.Context, key owner.Key) (seen, error) {
	if at, ahead := r.writer.last(key); ahead {
		return at, nil
	}
	u, err := r.read(ctx, key)
	if err != nil {
		return seen{}, err
	}
	return seenOf(u.GroupVersionKind(), u, key), nil
}

// News is a fact that an object's label, or what is remembered behind it, was changed by.
type News struct {
	Fact message.Fact
	// Object that was patched, and the key of its label.
	Object owner.Key
	Label  string
	// Account and Region of the instance: the event's own, else those of its source.
	Account, Region string
}

// told says that a change was written.
func (r *AWSInstanceStateReconciler) told(ctx context.Context, key owner.Key, before seen, c *change, works []work) {
	now := r.Clock.Now()
	for _, w := range works {
		if w.repair {
			r.metrics.repairs.Inc()
			continue
		}
		r.metrics.applied.WithLabelValues(string(w.fact.Kind)).Inc()
		if r.Tell != nil {
			r.Tell(News{Fact: w.fact, Object: key, Label: labelOf(key), Account: cmp.Or(w.fact.Account, w.from.account), Region: cmp.Or(w.fact.Region, w.from.region)})
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
		r.teller.changed(ctx, key, before, c, works)
	}
}

// acknowledge works that are written, or change nothing. A work whose event is behind the
// label waits for the handlers.
func (r *AWSInstanceStateReconciler) acknowledge(ctx context.Context, key owner.Key, at seen, works []work) {
	behind := eventID(at.annotations)
	r.handlers.supersede(key, behind)
	for _, w := range works {
		if !w.repair && !at.deleting {
			if err := r.remediate(ctx, key, at, w); err != nil {
				r.Logger.Info("Annotating the Machine failed, and is tried again", "namespace", key.Namespace, "name", key.Name, "error", err.Error())
				w.tracker.done(failed)
				continue
			}
		}
		if w.repair || at.deleting || behind == "" || w.event.whole.ID != behind {
			w.tracker.done(acknowledged) // No handler is woken for it.
			continue
		}
		for _, wake := range r.handlers.await(key, behind, func() { w.tracker.done(acknowledged) }) {
			wake(objectFor(key, at))
		}
	}
}

// remediate the Machine of an object, where the source of a fact asks for it, and the
// instance was not alive after it: whether the label shows the fact, or a state that came
// with it or before it, is not asked, so that the order does not matter, nor whether it is
// tried a second time. Machines of self-managed clusters are not written to: transports let
// no such patch through.
func (r *AWSInstanceStateReconciler) remediate(ctx context.Context, key owner.Key, at seen, w work) error {
	if key.Pool || key.Cluster != "" || len(w.from.remediate) == 0 {
		return nil
	}
	known, err := guard.ParseInstance(at.annotations[AnnotationGuard])
	if err != nil {
		return nil //nolint:nilerr // It was just written; who has broken it since is told when it is merged.
	}
	if !slices.Contains(w.from.remediate, remediation(w.fact)) || known.Outlived(w.fact) || paused(ctx, r.reader(key.Cluster), at.cluster, &metav1.ObjectMeta{Namespace: key.Namespace, Annotations: at.annotations}) {
		return nil
	}
	for _, o := range at.owners {
		if !capa.IsOwner(o, capa.Machine) {
			continue
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": o.UID, "annotations": map[string]any{clusterv1.RemediateMachineAnnotation: ""},
		}})
		if err != nil {
			return err
		}
		switch err := r.writer.annotateMachine(ctx, key.Namespace, o, patch); {
		case err == nil:
			r.metrics.remediated.WithLabelValues(string(w.fact.Kind)).Inc()
		case !gone(err) && !otherUID(err):
			return err
		}
	}
	return nil
}

// remediation is the word for what a fact announces, in the remediate key of a source.
func remediation(f message.Fact) string {
	switch f.Kind { //nolint:exhaustive // The rest are not to be chosen.
	case message.SpotInterruption:
		return schema.RemediateSpot
	case message.CapacityReservation:
		return schema.RemediateReservation
	case message.ScheduledChange:
		return schema.RemediateMaintenance
	case message.Rebalance:
		return schema.RemediateRebalance
	case message.StateChange:
		if f.Word == message.WordTerminated {
			return schema.RemediateTerminated
		}
	}
	return ""
}

// fill waits until the index holds what the management cluster has; false when the
// context ends before.
func (r *AWSInstanceStateReconciler) fill(ctx context.Context) bool {
	look := r.Clock.NewTicker(fillEvery)
	defer look.Stop()
	for !r.filled(ctx) {
		select {
		case <-look.C():
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// fillEvery is how often it is looked whether the watches are there.
const fillEvery = 50 * time.Millisecond

// filled reads all that is watched of the management cluster; false while a list of it
// is under way. A kind that cannot be read has a reason, and is not waited for.
func (r *AWSInstanceStateReconciler) filled(ctx context.Context) bool {
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
			r.Logger.Error(err, "Reading what is watched failed", "kind", kind.Kind)
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
