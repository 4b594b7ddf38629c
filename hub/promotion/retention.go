package promotion

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/internal/promotions"
	"github.com/capstan-hub/capstan/internal/revision"
)

const (
	// retainEvery is the time between two passes of the retention. One timer for all
	// promotions: a timer for each would need more memory than the promotion.
	retainEvery = 10 * time.Minute
	// retainMost bounds the deletions of one pass to one per second, so that a hub that
	// gets a lower limit does not use up its requests.
	retainMost = 600
	// clearEvery is the time between two requests that remove managed fields. They are never
	// urgent, so they have no burst.
	clearEvery = time.Second
	// clearMost bounds the promotions whose managed fields are removed after one pass.
	clearMost = int(retainEvery / clearEvery)
	// keepAtLeast is how long a finished promotion is kept at least: its events are
	// published, users see its end, and the signature that approved it is not valid any
	// more, which its label prevents from being used again. It also keeps its managed fields
	// for that time.
	keepAtLeast = time.Hour
)

// keptSucceeded is of how many distinct revisions the newest promotion that succeeded is kept: of the one that
// runs, and of the one to which a rollback goes back.
const keptSucceeded = 2

// ledgers are the names of the Pipelines that Promotions exist for. The Pipelines
// themselves may not exist any more.
type ledgers struct {
	// mu guards lockedNames.
	mu          sync.Mutex
	lockedNames map[types.NamespacedName]struct{}
}

func newLedgers() *ledgers { return &ledgers{lockedNames: map[types.NamespacedName]struct{}{}} }

func (l *ledgers) note(pipeline types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lockedNames[pipeline] = struct{}{}
}

func (l *ledgers) forget(name types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.lockedNames, name)
}

func (l *ledgers) all() []types.NamespacedName {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.lockedNames))
}

// retain deletes old promotions, and removes the managed fields of settled ones, until the context
// ends.
func (r *Reconciler) retain(ctx context.Context) error {
	passes, clearing := r.Clock.NewTicker(retainEvery), r.Clock.NewTicker(clearEvery)
	defer passes.Stop()
	defer clearing.Stop()
	var managed []Stored
	for {
		var err error
		select {
		case <-passes.C():
			if managed, err = r.Retain(ctx); err == nil {
				err = r.RetainRequests(ctx)
			}
		case <-clearing.C():
			if len(managed) > 0 {
				err = r.ClearManagedFields(ctx, managed[0])
				managed = managed[1:]
			}
		case <-ctx.Done():
			return nil
		}
		if err != nil && ctx.Err() == nil {
			managed = nil // The others have their turn: each pass begins with another ledger.
			log.FromContext(ctx).Info("the ledger of Promotions was not made smaller, another try follows", "in", retainEvery, "error", err.Error())
		}
	}
}

// Stored identifies one version of a stored Promotion. It does not keep the Promotion in memory.
type Stored struct {
	types.NamespacedName
	uid             types.UID
	resourceVersion string
}

// Retain deletes the finished promotions that are not kept any more, at most retainMost. It
// returns settled ones that are kept and have managed fields, at most clearMost.
func (r *Reconciler) Retain(ctx context.Context) ([]Stored, error) {
	left := retainMost
	var managed []Stored
	for _, name := range r.ledgers.all() {
		if left == 0 && len(managed) == clearMost {
			break
		}
		// Noted again if a Promotion arrives after the list.
		all, err := promotions.OfName(ctx, r.Client, name)
		if err != nil {
			return nil, err
		}
		if len(all) == 0 {
			r.ledgers.forget(name)
			continue
		}
		uid, err := r.uidOf(ctx, name)
		if err != nil {
			return nil, err
		}
		outdated := r.outdated(all, uid)
		for _, p := range outdated[:min(left, len(outdated))] {
			left--
			if err := r.deleteOld(ctx, p); err != nil {
				return nil, err
			}
		}
		for i := range all {
			p := &all[i]
			if len(managed) < clearMost && promotions.HasManagedFields(p) && r.Clock.Since(p.Status.FinishTime.Time) >= keepAtLeast && !slices.Contains(outdated, p) {
				managed = append(managed, Stored{client.ObjectKeyFromObject(p), p.UID, p.ResourceVersion})
			}
		}
	}
	return managed, nil
}

// ClearManagedFields removes the managed fields of a settled promotion, unless it has changed. They
// are nearly half of its size in etcd, in the API server's memory and in a list. They tell who
// wrote which field; what a promotion did, and who approved it, is in its status. The API server
// ignores them in a write of the status, so that this needs a request of its own.
func (r *Reconciler) ClearManagedFields(ctx context.Context, stored Stored) error {
	p := &capstanv1.Promotion{}
	p.Namespace, p.Name = stored.Namespace, stored.Name
	err := r.Client.Patch(ctx, p, promotions.ClearManagedFields(stored.uid, stored.resourceVersion))
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // The next pass judges it again.
		return nil
	}
	return fmt.Errorf("removing the managed fields of Promotion %s: %w", stored.NamespacedName, err)
}

// uidOf returns the UID of a Pipeline; empty if it does not exist. The cache may not have
// the Pipeline yet, and the promotions of one that does not exist are all deleted, so that
// is read uncached.
func (r *Reconciler) uidOf(ctx context.Context, name types.NamespacedName) (types.UID, error) {
	pipeline := &pipelinesv1.Pipeline{}
	err := r.Client.Get(ctx, name, pipeline, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		err = r.APIReader.Get(ctx, name, pipeline)
	}
	if err != nil {
		return "", client.IgnoreNotFound(err)
	}
	return pipeline.UID, nil
}

// deleteOld deletes a promotion, and before it the request that caused it: a request without its promotion could
// look as if it had not been carried out.
func (r *Reconciler) deleteOld(ctx context.Context, p *capstanv1.Promotion) error {
	if by := p.Spec.Request; by != nil {
		if err := r.deleteRequest(ctx, types.NamespacedName{Namespace: p.Namespace, Name: by.Name}, by.UID); err != nil {
			return err
		}
	}
	doomed := &capstanv1.Promotion{}
	doomed.Namespace, doomed.Name = p.Namespace, p.Name
	err := r.Client.Delete(ctx, doomed, client.Preconditions{UID: &p.UID, ResourceVersion: &p.ResourceVersion})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		return nil // It has changed: the next pass judges it again.
	case err != nil:
		return fmt.Errorf("deleting the old Promotion %s/%s: %w", p.Namespace, p.Name, err)
	}
	log.FromContext(ctx).Info("old promotion deleted", "promotion", p.Namespace+"/"+p.Name, "finished", p.Status.FinishTime, "retention", r.Retention, "keep", r.Keep)
	return nil
}

func (r *Reconciler) deleteRequest(ctx context.Context, key types.NamespacedName, uid types.UID) error {
	doomed := &capstanv1.PromotionRequest{}
	doomed.Namespace, doomed.Name = key.Namespace, key.Name
	if err := r.Client.Delete(ctx, doomed, client.Preconditions{UID: &uid}); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting the old PromotionRequest %s: %w", key, err)
	}
	return nil
}

// RetainRequests deletes the requests without a promotion when they are as old as promotions may get: they caused none,
// or a user deleted it. The others are deleted with their promotion.
func (r *Reconciler) RetainRequests(ctx context.Context) error {
	var list capstanv1.PromotionRequestList
	if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing PromotionRequests: %w", err)
	}
	for i := range list.Items {
		request := &list.Items[i]
		s := request.Status
		if s.FinishTime == nil || r.Clock.Since(s.FinishTime.Time) < r.Retention {
			continue
		}
		if s.Promotion != "" {
			err := r.Client.Get(ctx, types.NamespacedName{Namespace: request.Namespace, Name: s.Promotion}, &capstanv1.Promotion{}, client.UnsafeDisableDeepCopy)
			if client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("reading Promotion %s/%s: %w", request.Namespace, s.Promotion, err)
			}
			if err == nil {
				continue
			}
		}
		if err := r.deleteRequest(ctx, client.ObjectKeyFromObject(request), request.UID); err != nil {
			return err
		}
	}
	return nil
}

// outdated returns the promotions to delete, of all those with one Pipeline name. uid is
// that of the existing Pipeline; empty if there is none.
func (r *Reconciler) outdated(all []capstanv1.Promotion, uid types.UID) []*capstanv1.Promotion {
	type series struct {
		uid         types.UID
		environment string
	}
	of := map[series][]*capstanv1.Promotion{}
	for i := range all {
		p := &all[i]
		s := series{p.Spec.Pipeline.UID, p.Spec.Environment}
		of[s] = append(of[s], p)
	}
	replaced := map[string]bool{} // environments into which the existing Pipeline brought a revision
	for s, list := range of {
		slices.SortFunc(list, func(a, b *capstanv1.Promotion) int { return cmp.Compare(b.Spec.Number, a.Spec.Number) })
		if s.uid == uid {
			replaced[s.environment] = slices.ContainsFunc(entriesOf(list), decision.Entry.Brought)
		}
	}
	var outdated []*capstanv1.Promotion
	for s, list := range of {
		// The promotions of a former Pipeline of the same name show how the environment got
		// its revision, until one of the existing Pipeline does.
		needed := uid != "" && (s.uid == uid || !replaced[s.environment])
		outdated = append(outdated, r.outdatedIn(list, needed)...)
	}
	return outdated
}

// entriesOf returns what the decisions read of promotions into one environment, the newest first.
func entriesOf(list []*capstanv1.Promotion) []decision.Entry {
	entries := make([]decision.Entry, len(list))
	for i, p := range list {
		entries[i] = decision.EntryOf(p)
	}
	decision.MarkNothingNewer(entries)
	return entries
}

// outdatedIn returns the promotions to delete, of those of one Pipeline into one environment
// in the order of their numbers, the highest first. If the Pipeline needs them, some are
// always kept: the newest, for the numbering; the newest that brought its revision, which
// shows that the state of the environment was promoted; a newer one that was replaced after it was
// carried out, because it may yet be that one, if what replaced it brings nothing new; one with the approval of that
// revision, if the newest that brought it has none, because an approval is for all waves; the newest
// that succeeded with another revision, to which a rollback goes back; and the newest that holds the
// environment.
func (r *Reconciler) outdatedIn(list []*capstanv1.Promotion, needed bool) []*capstanv1.Promotion {
	var outdated []*capstanv1.Promotion
	finished, brought, replaced, holds := 0, false, false, false
	var sequence int64 // of the newer promotions
	var succeeded []string
	var unapproved *decision.Entry // It brought its revision without an approval, and an earlier one with an approval was not found yet.
	entries := entriesOf(list)
	for i, p := range list {
		if i > 0 {
			sequence = max(sequence, list[i-1].Spec.Source.Sequence)
		}
		if !p.Status.Phase.Finished() || p.Status.FinishTime == nil {
			continue
		}
		finished++
		entry := entries[i]
		newestBrought := !brought && entry.Brought()
		newestReplaced := !brought && !replaced && entry.Replaced()
		brought, replaced = brought || newestBrought, replaced || newestReplaced
		if newestBrought && !entry.Permitted() {
			unapproved = &entry
		}
		approval := unapproved != nil && entry.Permitted() && entry.Intent.App == unapproved.Intent.App && revision.Same(entry.Revision, unapproved.Revision)
		if approval {
			unapproved = nil
		}
		other := p.Status.Phase == capstanv1.PhaseSucceeded && len(succeeded) < keptSucceeded &&
			!slices.ContainsFunc(succeeded, func(s string) bool { return revision.Same(s, p.Spec.Revision) })
		if other {
			succeeded = append(succeeded, p.Spec.Revision)
		}
		newestHold := !holds && entry.Holds() && entry.Hold > sequence
		holds = holds || newestHold
		age := r.Clock.Since(p.Status.FinishTime.Time)
		tooMany := r.Keep > 0 && finished > r.Keep && age >= keepAtLeast && !r.mayBeOpen(p)
		kept := needed && (i == 0 || newestBrought || newestReplaced || approval || other || newestHold)
		if (age >= r.Retention || tooMany) && !kept {
			outdated = append(outdated, p)
		}
	}
	return outdated
}
