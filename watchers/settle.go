package watchers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/index"
	"github.com/capstan-hub/capstan/internal/truncate"
)

// How a run meets the demand: which informers it has, and how it observes what is
// demanded and was not observed. All of it is done by the work goroutine.

// align starts and stops informers as the demand requires, and observes demanded objects
// that were not observed.
func (r *run) align() {
	needed := r.needed()
	present := r.stopUnneeded(needed)
	r.ledger.prune(r.subject.wants)
	for _, namespace := range needed {
		i := present[namespace]
		if i == nil {
			r.start(namespace)
		} else if i.isSynced() && r.ctx.Err() == nil {
			r.settle(i)
		}
	}
}

// needed returns the namespaces to be watched; one empty name means the whole cluster. An
// object of a namespaced kind that is demanded without a namespace cannot exist, and
// watching for it would need the whole cluster.
func (r *run) needed() []string {
	shared := r.subject.shared
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if r.lockedState.scopes == scopeAll {
		return []string{metav1.NamespaceAll}
	}
	return r.subject.lockedState.demand.namespaces()
}

// stopUnneeded stops the informers of namespaces that are not needed, and returns the
// others.
func (r *run) stopUnneeded(needed []string) map[string]*informer {
	shared := r.subject.shared
	shared.mu.Lock()
	defer shared.mu.Unlock()
	present := make(map[string]*informer, len(r.lockedState.informers))
	for namespace, i := range r.lockedState.informers {
		if !slices.Contains(needed, namespace) {
			delete(r.lockedState.informers, namespace)
			i.stop()
			shared.changedLocked(r.subject.cluster.name)
			continue
		}
		present[namespace] = i
	}
	return present
}

// settle observes every demanded object of a synced informer that this run has not
// observed, or that the index does not have any more. These are objects that are stored,
// objects whose key is stored (one read each), and objects that do not exist. An object
// that another run observed may have been deleted in between. Then the informer is ready.
func (r *run) settle(i *informer) {
	named, wide := r.demandOf(i)
	if i.lacks(wide) {
		r.fail(errReplan)
		return
	}
	var unread []wanted
	for _, want := range named {
		if r.subject.kind.Observe == nil {
			if isUnread(i.stored(want)) {
				r.fail(errReplan)
				return
			}
			continue
		}
		_, known, _ := r.subject.shared.options.Index.Last(r.subject.object(want))
		if !known || !r.ledger.isObserved(want) {
			unread = append(unread, want)
		}
	}
	read, err := r.readTogether(i, unread)
	if err != nil {
		r.subject.shared.options.Logger.V(1).Info("objects cannot be listed, reading them one by one", "cluster", r.subject.cluster.name, "error", err.Error())
	}
	for _, want := range unread {
		if r.ctx.Err() != nil {
			return
		}
		if read[want] {
			continue
		}
		if err := r.settleOne(i, want); err != nil {
			r.retryLater(want, err)
		} else {
			delete(r.work.failing, want)
		}
	}
	r.forgetFailures()
	r.setReady(i)
}

// demandOf are the demands that concern an informer.
func (r *run) demandOf(i *informer) (named, wide []wanted) {
	shared := r.subject.shared
	shared.mu.Lock()
	defer shared.mu.Unlock()
	return r.subject.lockedState.demand.in(i.namespace)
}

// listApart is the time between two lists of readTogether.
const listApart = 2 * time.Second

// readOneByOne is the largest number of objects, stored as their keys, that are read one
// by one. For more objects, the rate limit of a cluster makes one list faster.
const readOneByOne = 8

// readTogether observes objects that are stored as their keys with one list, if there are
// more than readOneByOne, and returns those that it read or postponed. What is to be
// confirmed is read one by one: each of these reads has a date.
func (r *run) readTogether(i *informer, unread []wanted) (map[wanted]bool, error) {
	keys := make(map[wanted]bool, len(unread))
	for _, want := range unread {
		if isUnread(i.stored(want)) && !r.ledger.isToConfirm(want) {
			keys[want] = true
		}
	}
	if len(keys) <= readOneByOne {
		return nil, nil
	}
	options := &r.subject.shared.options
	if next := r.work.listed.Add(listApart); options.Clock.Now().Before(next) {
		// Demands often follow each other closely; what is postponed is read together.
		r.subject.retryBy(next)
		return keys, nil
	}
	r.work.listed = options.Clock.Now()
	ctx, cancel := context.WithTimeout(r.ctx, options.Timings.SlowList)
	defer cancel()
	list, err := r.calls.list(ctx, i.namespace, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", r.subject.kind.GroupKind.Kind, err)
	}
	read := make(map[wanted]bool, len(keys))
	var woken []types.NamespacedName
	for j := range list.Items {
		o, ok := list.Items[j].Object.(client.Object)
		if want := (wanted{o.GetNamespace(), o.GetName()}); ok && keys[want] {
			read[want] = true
			woken = append(woken, r.ledger.observe(o, r.subject.kind.Observe)...)
		}
	}
	r.subject.wake(woken, false)
	return read, nil
}

// settleOne observes one object.
func (r *run) settleOne(i *informer, want wanted) error {
	if r.ledger.isToConfirm(want) {
		return r.confirmOne(i, want)
	}
	o := i.stored(want)
	switch {
	case o == nil && !r.ledger.isObservedByAnother(want):
		r.subject.wake(r.ledger.observeAbsent(want, r.began), false)
		return nil
	case o == nil: // It was deleted meanwhile, or this server is behind the other: read it.
	case !isUnread(o):
		r.subject.wake(r.ledger.observe(o, r.subject.kind.Observe), false)
		return nil
	}
	ctx, cancel := context.WithTimeout(r.ctx, r.subject.shared.options.Timings.Call)
	defer cancel()
	u, err := r.calls.get(ctx, want)
	switch {
	case apierrors.IsNotFound(err) && o == nil:
		r.subject.wake(r.ledger.observeMissed(want), false)
		return nil
	case apierrors.IsNotFound(err):
		return nil // The informer is about to deliver the deletion.
	case apierrors.IsForbidden(err):
		r.fail(errReplan) // The list delivers it.
		return nil
	case err != nil:
		return fmt.Errorf("reading %s %s/%s: %w", r.subject.kind.GroupKind.Kind, want.namespace, want.name, err)
	}
	r.subject.wake(r.ledger.observe(r.subject.reduce(u), r.subject.kind.Observe), false)
	return nil
}

// confirmOne reads one object, whatever is stored of it.
func (r *run) confirmOne(i *informer, want wanted) error {
	ctx, cancel := context.WithTimeout(r.ctx, r.subject.shared.options.Timings.Call)
	defer cancel()
	began := r.subject.shared.options.Clock.Now()
	read, err := r.readOne(ctx, want)
	stored := i.stored(want)
	switch {
	case err != nil:
		return fmt.Errorf("reading %s %s/%s again: %w", r.subject.kind.GroupKind.Kind, want.namespace, want.name, err)
	case read != nil:
		r.subject.wake(r.ledger.observeRead(read, stored, began, r.subject.kind.Observe), false)
	case stored == nil:
		r.subject.wake(r.ledger.observeAbsent(want, began), false)
	} // Else the informer is about to deliver the deletion, which is the next observation.
	return nil
}

// readOne reads one object from the API server; nil if it does not exist.
func (r *run) readOne(ctx context.Context, want wanted) (client.Object, error) {
	u, err := r.calls.get(ctx, want)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case apierrors.IsForbidden(err): // The credentials allow list and watch only.
		list, err := r.calls.list(ctx, want.namespace, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, want.name).String()})
		if err != nil || len(list.Items) == 0 {
			return nil, err
		}
		o, _ := list.Items[0].Object.(client.Object)
		return o, nil
	case err != nil:
		return nil, err
	}
	return r.subject.reduce(u), nil
}

// retryLater postpones an object that could not be read. It is not observed until then. If
// reading it has failed for SlowList, the index shows that it cannot be read: the failure
// may not end without a user, and an earlier observation is not current.
func (r *run) retryLater(want wanted, err error) {
	options := &r.subject.shared.options
	if !r.ledger.isToConfirm(want) { // Else it is not observed already.
		r.ledger.unread(want)
	}
	options.Logger.V(1).Info("object cannot be read yet", "cluster", r.subject.cluster.name, "error", err.Error())
	now := options.Clock.Now()
	since, failed := r.work.failing[want]
	if !failed {
		since = now
		r.work.failing[want] = now
	}
	wait := options.Timings.TransientRetry
	if now.Sub(since) >= options.Timings.SlowList {
		wait = options.Timings.Retry
		message := fmt.Sprintf("%s %s/%s cannot be read in %s: %s", r.subject.kind.GroupKind.Kind, want.namespace, want.name,
			r.subject.cluster.display, truncate.Bytes(lasting(err), maxProblem))
		r.subject.wake(options.Index.SetUnread(r.subject.object(want), index.Freshness{Reason: ReasonUnreadable, Message: message}), false)
	}
	r.subject.retryBy(now.Add(wait))
}

// forgetFailures ends the failures of objects that were read in another way, by the watch or
// with a list, and of those that are not demanded any more.
func (r *run) forgetFailures() {
	maps.DeleteFunc(r.work.failing, func(want wanted, _ time.Time) bool {
		return r.ledger.isObserved(want) || !r.subject.wants(want.namespace, want.name)
	})
}

// setReady marks an informer as ready, so that freshness is judged by it.
func (r *run) setReady(i *informer) {
	if version, synced := r.markReady(i); synced {
		r.subject.shared.options.Logger.V(1).Info("kind is watched",
			"cluster", r.subject.cluster.name, "kind", r.subject.kind.GroupKind.String(), "version", version)
	}
}

// markReady marks an informer as ready. synced is true when it was the last one that the
// run waited for.
func (r *run) markReady(i *informer) (version string, synced bool) {
	shared := r.subject.shared
	shared.mu.Lock()
	defer shared.mu.Unlock()
	first := !i.lockedState.ready
	i.lockedState.ready = true
	all := r.syncedLocked()
	if first && all {
		r.subject.lockedState.problem = problem{}
	}
	if all && r.lockedState.replacement {
		r.subject.pokeLocked() // To replace the run that counts.
	}
	if first {
		shared.changedLocked(r.subject.cluster.name)
	}
	return r.lockedState.version, first && all
}
