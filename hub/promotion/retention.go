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
)

const (
	// retainEvery is the time between two passes of the retention. One timer for all
	// promotions: a timer for each would need more memory than the promotion.
	retainEvery = 10 * time.Minute
	// retainMost bounds the deletions of one pass to one per second, so that a hub that
	// gets a lower limit does not use up its requests.
	retainMost = 600
	// keepAtLeast is how long a finished promotion is kept at least: its events are
	// published, users see its end, and the signature that approved it is not valid any
	// more, which its label prevents from being used again.
	keepAtLeast = time.Hour
)

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

// retain deletes old promotions until the context ends.
func (r *Reconciler) retain(ctx context.Context) error {
	ticker := r.Clock.NewTicker(retainEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C():
			if err := r.Retain(ctx); err != nil && ctx.Err() == nil {
				log.FromContext(ctx).Info("old Promotions cannot be deleted, another try follows", "in", retainEvery, "error", err.Error())
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// Retain deletes the finished promotions that are not kept any more, at most retainMost.
func (r *Reconciler) Retain(ctx context.Context) error {
	left := retainMost
	for _, name := range r.ledgers.all() {
		// Noted again if a Promotion arrives after the list.
		all, err := promotions.OfName(ctx, r.Client, name)
		if err != nil {
			return err
		}
		if len(all) == 0 {
			r.ledgers.forget(name)
			continue
		}
		uid, err := r.uidOf(ctx, name)
		if err != nil {
			return err
		}
		for _, p := range r.outdated(all, uid) {
			if left == 0 {
				return nil
			}
			left--
			if err := r.deleteOld(ctx, p); err != nil {
				return err
			}
		}
	}
	return nil
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

func (r *Reconciler) deleteOld(ctx context.Context, p *capstanv1.Promotion) error {
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

// outdated returns the promotions to delete, of all those with one Pipeline name. uid is
// that of the existing Pipeline; empty if there is none.
func (r *Reconciler) outdated(all []capstanv1.Promotion, uid types.UID) []*capstanv1.Promotion {
	type series struct {
		uid         types.UID
		environment string
	}
	of := map[series][]*capstanv1.Promotion{}
	replaced := map[string]bool{} // environments into which the existing Pipeline brought a revision
	for i := range all {
		p := &all[i]
		s := series{p.Spec.Pipeline.UID, p.Spec.Environment}
		of[s] = append(of[s], p)
		if s.uid == uid && decision.EntryOf(p).Brought() {
			replaced[s.environment] = true
		}
	}
	var outdated []*capstanv1.Promotion
	for s, list := range of {
		slices.SortFunc(list, func(a, b *capstanv1.Promotion) int { return cmp.Compare(b.Spec.Number, a.Spec.Number) })
		// The promotions of a former Pipeline of the same name show how the environment got
		// its revision, until one of the existing Pipeline does.
		needed := uid != "" && (s.uid == uid || !replaced[s.environment])
		outdated = append(outdated, r.outdatedIn(list, needed)...)
	}
	return outdated
}

// outdatedIn returns the promotions to delete, of those of one Pipeline into one environment
// in the order of their numbers, the highest first. If the Pipeline needs them, two are
// always kept: the newest, for the numbering, and the newest that brought its revision, which
// shows that the state of the environment was promoted.
func (r *Reconciler) outdatedIn(list []*capstanv1.Promotion, needed bool) []*capstanv1.Promotion {
	var outdated []*capstanv1.Promotion
	finished, brought := 0, false
	for i, p := range list {
		if !p.Status.Phase.Finished() || p.Status.FinishTime == nil {
			continue
		}
		finished++
		newestBrought := !brought && decision.EntryOf(p).Brought()
		brought = brought || newestBrought
		age := r.Clock.Since(p.Status.FinishTime.Time)
		tooMany := r.Keep > 0 && finished > r.Keep && age >= keepAtLeast && !r.mayBeOpen(p)
		kept := needed && (i == 0 || newestBrought)
		if (age >= r.Retention || tooMany) && !kept {
			outdated = append(outdated, p)
		}
	}
	return outdated
}
